//! Receiving a snapshot: into a file beside the state, which stays as it is until the whole file
//! is there and its digest is right.

use std::cmp::Ordering;
use std::fs::File as StdFile;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use holdfast_proto::peer::v1 as proto;
use openraft::storage::Snapshot;
use openraft::type_config::alias::SnapshotOf;
use sha2::{Digest as _, Sha256};
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::{Status, Streaming};

use super::super::membership::decode_membership;
use super::super::snapshot::{RaftSnapshot, SnapshotFile, remove_leftovers};
use super::super::types::{SnapshotMeta, TypeConfig, Vote, term_of};
use super::service::{PeerCalls, refuse, stopped};
use super::wire::{self, Malformed};
use crate::datadir::durable;
use crate::failpoint::{self, Point};

/// Where snapshots of other members arrive; one at a time.
#[derive(Debug)]
pub(super) struct Inbox {
    dir: PathBuf,
    busy: Mutex<()>,
}

/// A checked head.
struct Announced {
    vote: Vote,
    meta: SnapshotMeta,
    head: proto::SnapshotHead,
}

impl Inbox {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            busy: Mutex::default(),
        }
    }

    fn path(&self, from: u64, id: u64) -> PathBuf {
        self.dir.join(format!("{from:016x}-{id:016x}.part"))
    }

    async fn length(&self, from: u64, id: u64) -> u64 {
        let found = tokio::fs::metadata(self.path(from, id)).await;
        found.map_or(0, |found| found.len())
    }

    /// Opens the file that the bytes go to; what other transfers left is removed.
    async fn open(&self, from: u64, head: &proto::SnapshotHead) -> Result<File, Status> {
        let length = self.length(from, head.id).await;
        if head.offset > 0 && head.offset != length {
            return Err(Status::aborted(format!(
                "the snapshot goes on at {}, and {length} bytes of it are here",
                head.offset
            )));
        }
        if head.offset == 0 {
            remove_leftovers(&self.dir).map_err(|error| local(&error))?;
            durable::private_dir_all(&self.dir).map_err(|error| local(&error))?;
        }
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).mode(0o600);
        let file = file.open(self.path(from, head.id)).await;
        file.map_err(|error| local(&error))
    }
}

fn local(error: &io::Error) -> Status {
    tracing::warn!(%error, "a snapshot cannot be received");
    Status::internal(format!("the snapshot cannot be stored: {error}"))
}

impl PeerCalls {
    /// Bytes of the snapshot `id` that are here.
    pub(crate) async fn snapshot_offset(
        &self,
        from: u64,
        request: &proto::SnapshotOffsetRequest,
    ) -> proto::SnapshotOffsetResponse {
        let offset = self.inbox.length(from, request.id).await;
        proto::SnapshotOffsetResponse { offset }
    }

    /// Takes a snapshot of the leader `from` and installs it.
    pub(crate) async fn snapshot(
        &self,
        from: u64,
        inbound: Streaming<proto::SnapshotRequest>,
    ) -> Result<proto::SnapshotResponse, Status> {
        let begin = Instant::now();
        let received = self.receive(from, inbound).await;
        let tally = &self.traffics().of(from).snapshots_received;
        tally.note(received.is_ok(), begin.elapsed());
        received
    }

    async fn receive(
        &self,
        from: u64,
        mut inbound: Streaming<proto::SnapshotRequest>,
    ) -> Result<proto::SnapshotResponse, Status> {
        use proto::snapshot_request::Part;
        let first = inbound.message().await?.and_then(|message| message.part);
        let Some(Part::Head(head)) = first else {
            return Err(refuse(&Malformed("a snapshot without its head")));
        };
        let announced = announced(head, from).map_err(|error| refuse(&error))?;
        if let Some(own) = self.later_vote(&announced.vote).await? {
            return Ok(answer(&own));
        }
        let Ok(_busy) = self.inbox.busy.try_lock() else {
            return Err(Status::unavailable("another snapshot is being received"));
        };
        failpoint::pause(Point::RaftBeforeSaveSnap).await;
        let head = &announced.head;
        let file = self.inbox.open(from, head).await?;
        write(file, head, &mut inbound).await?;
        let file = SnapshotFile::new(self.inbox.path(from, head.id));
        check_digest(file.path(), head).await?;
        failpoint::pause(Point::RaftAfterSaveSnap).await;
        self.check_position(&announced.meta).await?;
        tracing::info!(
            from = format!("{from:x}"),
            bytes = head.size,
            at = announced.meta.last_log_id.map(|id| id.index),
            "install a snapshot"
        );
        let snapshot: SnapshotOf<TypeConfig, RaftSnapshot> = Snapshot {
            meta: announced.meta,
            snapshot: RaftSnapshot::File(file),
        };
        let installed = self
            .raft
            .install_full_snapshot(announced.vote, snapshot)
            .await;
        let installed = installed.map_err(|error| stopped(&error))?;
        Ok(answer(&installed.vote))
    }

    /// This member's vote, when it is not the sender's or an earlier one.
    async fn later_vote(&self, vote: &Vote) -> Result<Option<Vote>, Status> {
        let own = self.raft.with_raft_state(|state| *state.vote_ref()).await;
        let own = own.map_err(|error| stopped(&error))?;
        let is_earlier = matches!(vote.partial_cmp(&own), Some(Ordering::Less) | None);
        Ok(is_earlier.then_some(own))
    }

    /// Refuses what contradicts what is committed here: raft takes that for a broken program.
    async fn check_position(&self, meta: &SnapshotMeta) -> Result<(), Status> {
        let committed = self
            .raft
            .with_raft_state(|state| state.local_committed().copied());
        let committed = committed.await.map_err(|error| stopped(&error))?;
        let (last, committed) = (meta.last_log_id, committed);
        let contradicts = last > committed
            && last.map_or(0, |id| id.index) <= committed.map_or(0, |id| id.index)
            && committed.is_some();
        if contradicts {
            return Err(refuse(&Malformed(
                "a snapshot that contradicts the log here",
            )));
        }
        Ok(())
    }
}

fn answer(vote: &Vote) -> proto::SnapshotResponse {
    proto::SnapshotResponse {
        vote: Some(wire::to_vote(vote)),
    }
}

fn announced(head: proto::SnapshotHead, from: u64) -> Result<Announced, Malformed> {
    let vote = wire::from_leader_vote(head.vote, from)?;
    let last = head.last_log.ok_or(Malformed("a snapshot of nothing"))?;
    let last = wire::from_log_id(last);
    let membership =
        decode_membership(&head.membership).or(Err(Malformed("a membership that is none")))?;
    let decided = *membership.log_id();
    if term_of(&last) > vote.leader_id.term || decided > Some(last) {
        return Err(Malformed("a snapshot that is ahead of its leader"));
    }
    if head.digest.len() != 32 || head.offset > head.size {
        return Err(Malformed("a snapshot with a wrong head"));
    }
    Ok(Announced {
        vote,
        meta: SnapshotMeta {
            last_log_id: Some(last),
            last_membership: membership,
        },
        head,
    })
}

/// Writes what arrives. What is there when the stream breaks off stays, and is gone on from.
async fn write(
    mut file: File,
    head: &proto::SnapshotHead,
    inbound: &mut Streaming<proto::SnapshotRequest>,
) -> Result<(), Status> {
    use proto::snapshot_request::Part;
    let mut length = head.offset;
    while let Some(message) = inbound.message().await? {
        let Some(Part::Bytes(bytes)) = message.part else {
            return Err(refuse(&Malformed("a snapshot with two heads")));
        };
        length = length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if length > head.size {
            return Err(refuse(&Malformed("a snapshot that is longer than it said")));
        }
        file.write_all(&bytes)
            .await
            .map_err(|error| local(&error))?;
    }
    file.flush().await.map_err(|error| local(&error))?;
    if length < head.size {
        return Err(Status::aborted("the snapshot broke off"));
    }
    Ok(())
}

async fn check_digest(path: &Path, head: &proto::SnapshotHead) -> Result<(), Status> {
    let (path, wanted) = (path.to_owned(), head.digest.clone());
    let found = tokio::task::spawn_blocking(move || {
        let mut digest = Sha256::new();
        let mut file = StdFile::open(path)?;
        let mut piece = vec![0; 1 << 20];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok::<_, io::Error>(digest.finalize()),
                read => digest.update(piece.get(..read).unwrap_or(&piece)),
            }
        }
    });
    let found = found
        .await
        .map_err(|error| local(&io::Error::other(error)))?;
    let found = found.map_err(|error| local(&error))?;
    if *found != *wanted {
        return Err(Status::data_loss("the snapshot arrived damaged"));
    }
    Ok(())
}
