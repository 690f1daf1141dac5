//! Sending a snapshot: from the offset that the receiver has, in pieces, no faster than allowed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use holdfast_proto::peer::v1 as proto;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError};
use openraft::network::RPCTypes;
use openraft::raft::SnapshotResponse;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::time::{Instant, sleep_until};

use super::super::membership::encode_membership;
use super::super::snapshot::{Made, Pinned};
use super::super::types::{SnapshotMeta, TypeConfig, Vote};
use super::link::Link;
use super::network::{failure, malformed};
use super::wire;

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;
/// How long the receiver may take to say what it has.
const OFFSET_PATIENCE: Duration = Duration::from_secs(2);

type Failure = StreamingError<TypeConfig>;

/// What is sent: made already, or still to be made.
pub(super) enum Cargo {
    Made(Arc<Made>),
    Pinned(Pinned, SnapshotMeta),
}

/// Sends a snapshot and waits until it is installed.
pub(super) async fn send(
    link: &Arc<Link>,
    vote: Vote,
    cargo: Cargo,
    bytes_per_s: Option<u64>,
) -> Result<SnapshotResponse<TypeConfig>, Failure> {
    // Nothing is written for a receiver that is away.
    let known = match &cargo {
        Cargo::Made(made) => made.id,
        Cargo::Pinned(..) => 0,
    };
    let had = offset(link, known).await?;
    let (made, offset) = match cargo {
        Cargo::Made(made) if had <= made.size => (made, had),
        Cargo::Made(made) => (made, 0),
        Cargo::Pinned(pinned, meta) => {
            let made = pinned.make(meta).await;
            (made.map_err(|error| broken(link, &error.to_string()))?, 0)
        }
    };
    tracing::info!(
        to = format!("{:x}", link.id),
        bytes = made.size,
        offset,
        at = made.meta.last_log_id.map(|id| id.index),
        "send a snapshot"
    );
    let head = head(&vote, &made, offset).map_err(|error| broken(link, &error.to_string()))?;
    let pieces = pieces(head, Arc::clone(&made), offset, bytes_per_s);
    let mut client = link.snapshots();
    let response = client.snapshot(link.request(pieces)).await;
    let response = response.map_err(|status| {
        let error = failure(link, &status, RPCTypes::InstallSnapshot, OFFSET_PATIENCE);
        into_streaming(error)
    })?;
    let vote = wire::from_vote(response.into_inner().vote);
    let vote = vote.map_err(|error| into_streaming(malformed(link, &error)))?;
    Ok(SnapshotResponse::new(vote))
}

async fn offset(link: &Link, id: u64) -> Result<u64, Failure> {
    let request = link.request_within(proto::SnapshotOffsetRequest { id }, OFFSET_PATIENCE);
    let response = link.snapshots().snapshot_offset(request).await;
    match response {
        Ok(response) => Ok(response.into_inner().offset),
        Err(status) => {
            let error = failure(link, &status, RPCTypes::InstallSnapshot, OFFSET_PATIENCE);
            Err(into_streaming(error))
        }
    }
}

fn head(vote: &Vote, made: &Made, offset: u64) -> io::Result<proto::SnapshotHead> {
    Ok(proto::SnapshotHead {
        vote: Some(wire::to_vote(vote)),
        id: made.id,
        last_log: made.meta.last_log_id.as_ref().map(wire::to_log_id),
        membership: encode_membership(&made.meta.last_membership)?,
        size: made.size,
        digest: Bytes::copy_from_slice(&made.digest),
        offset,
    })
}

/// What the stream has still to send.
struct Pieces {
    head: Option<proto::SnapshotHead>,
    made: Arc<Made>,
    file: Option<File>,
    sent: u64,
    bytes_per_s: Option<u64>,
    start: Instant,
}

/// The head, then the bytes. An error of the file ends the stream early, which the receiver sees.
fn pieces(
    head: proto::SnapshotHead,
    made: Arc<Made>,
    offset: u64,
    bytes_per_s: Option<u64>,
) -> impl Stream<Item = proto::SnapshotRequest> + Send + 'static {
    let state = Pieces {
        head: Some(head),
        made,
        file: None,
        sent: 0,
        bytes_per_s,
        start: Instant::now(),
    };
    futures::stream::unfold(state, move |mut state| async move {
        use proto::snapshot_request::Part;
        if let Some(head) = state.head.take() {
            let part = Some(Part::Head(head));
            return Some((proto::SnapshotRequest { part }, state));
        }
        match state.next(offset).await {
            Ok(Some(bytes)) => {
                let part = Some(Part::Bytes(bytes));
                Some((proto::SnapshotRequest { part }, state))
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(%error, "a snapshot cannot be read back while it is sent");
                None
            }
        }
    })
}

impl Pieces {
    async fn next(&mut self, offset: u64) -> io::Result<Option<Bytes>> {
        let file = if let Some(file) = &mut self.file {
            file
        } else {
            let mut file = File::open(self.made.file.path()).await?;
            file.seek(io::SeekFrom::Start(offset)).await?;
            self.file.insert(file)
        };
        let mut piece = vec![0; PIECE_BYTES];
        let read = file.read(&mut piece).await?;
        if read == 0 {
            return Ok(None);
        }
        piece.truncate(read);
        self.sent = self.sent.saturating_add(u64::try_from(read).unwrap_or(0));
        if let Some(rate) = self.bytes_per_s.filter(|rate| *rate > 0) {
            let millis = self.sent.saturating_mul(1000) / rate;
            sleep_until(self.start + Duration::from_millis(millis)).await;
        }
        Ok(Some(piece.into()))
    }
}

fn broken(link: &Link, text: &str) -> Failure {
    let status = tonic::Status::unavailable(format!("the snapshot cannot be made: {text}"));
    into_streaming(failure(
        link,
        &status,
        RPCTypes::InstallSnapshot,
        OFFSET_PATIENCE,
    ))
}

fn into_streaming(error: RPCError<TypeConfig>) -> Failure {
    match error {
        RPCError::Timeout(error) => Failure::Timeout(error),
        RPCError::Unreachable(error) => Failure::Unreachable(error),
        RPCError::Network(error) => Failure::Network(error),
        RPCError::RemoteError(error) => match error.source {},
    }
}

/// The end of a transfer that raft gave up.
pub(super) async fn unless_cancelled<T>(
    work: impl Future<Output = Result<T, Failure>>,
    cancel: impl Future<Output = ReplicationClosed>,
) -> Result<T, Failure> {
    tokio::select! {
        result = work => result,
        closed = cancel => Err(Failure::Closed(closed)),
    }
}
