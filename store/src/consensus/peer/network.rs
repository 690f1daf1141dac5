//! Raft's calls to another member.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, Stream, StreamExt as _, TryFutureExt as _};
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RPCTypes};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use tokio::time::Instant;
use tonic::{Code, Status};

use super::super::snapshot::RaftSnapshot;
use super::super::types::{NodeId, PeerNode, TypeConfig, Vote};
use super::link::Link;
use super::send::{self, Cargo};
use super::{Peers, append, wire};
use crate::failpoint::{self, Point};

/// The longest pause between two attempts to reach a peer.
const BACKOFF_MAX: Duration = Duration::from_millis(500);

type RpcResult<T> = Result<T, RPCError<TypeConfig>>;

/// Raft's connection to one peer.
#[derive(Debug)]
pub(crate) struct Network {
    link: Arc<Link>,
    snapshot_bytes_per_s: Option<u64>,
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = Network;

    async fn new_client(&mut self, target: NodeId, node: &PeerNode) -> Network {
        Network {
            link: self.reach(target, &node.peer_urls),
            snapshot_bytes_per_s: self.snapshot_bytes_per_s,
        }
    }
}

/// What a status means to raft: try again later, at once, or after the wait that has passed.
pub(super) fn failure(
    link: &Link,
    status: &Status,
    action: RPCTypes,
    patience: Duration,
) -> RPCError<TypeConfig> {
    link.note(status);
    let text = || format!("member {:x}: {}", link.id, status.message());
    match status.code() {
        Code::DeadlineExceeded | Code::Cancelled => RPCError::Timeout(Timeout {
            action,
            id: link.own.member.0,
            target: link.id,
            timeout: patience,
        }),
        // It does not want this member's calls: asking at once again would change nothing.
        Code::Unavailable | Code::FailedPrecondition | Code::Unimplemented => {
            RPCError::Unreachable(Unreachable::from_string(text()))
        }
        _ => RPCError::Network(NetworkError::from_string(text())),
    }
}

/// No answer within `patience`.
pub(super) fn late(link: &Link, action: RPCTypes, patience: Duration) -> RPCError<TypeConfig> {
    link.traffic.lost("no answer in time");
    RPCError::Timeout(Timeout {
        action,
        id: link.own.member.0,
        target: link.id,
        timeout: patience,
    })
}

pub(super) fn malformed(link: &Link, error: &wire::Malformed) -> RPCError<TypeConfig> {
    let text = format!("member {:x}: {error}", link.id);
    RPCError::Unreachable(Unreachable::from_string(text))
}

fn unreadable(error: &io::Error) -> RPCError<TypeConfig> {
    RPCError::Network(NetworkError::new(error))
}

async fn within<T>(
    link: &Link,
    patience: Duration,
    action: RPCTypes,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> RpcResult<T> {
    match tokio::time::timeout(patience, call).await {
        Ok(Ok(response)) => {
            link.traffic.answered();
            Ok(response.into_inner())
        }
        Ok(Err(status)) => Err(failure(link, &status, action, patience)),
        Err(_elapsed) => Err(late(link, action, patience)),
    }
}

/// One request on its own, ahead of what is on the way in streams.
async fn probe(
    link: &Link,
    request: AppendEntriesRequest<TypeConfig>,
    patience: Duration,
) -> RpcResult<StreamAppendResult<TypeConfig>> {
    let message = wire::to_append(request).map_err(|error| unreadable(&error))?;
    failpoint::pause(Point::RaftBeforeLeaderSend).await;
    let mut client = link.calls();
    let call = client.probe(link.request_within(message, patience));
    let begin = Instant::now();
    let response = within(link, patience, RPCTypes::AppendEntries, call).await?;
    link.traffic.round_trips.observe(begin.elapsed());
    wire::from_append_response(response).map_err(|error| malformed(link, &error))
}

impl Network {
    async fn ask_vote(
        &self,
        request: &VoteRequest<TypeConfig>,
        option: &RPCOption,
        is_real: bool,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let patience = option.hard_ttl();
        let message = self
            .link
            .request_within(wire::to_vote_request(request), patience);
        let mut client = self.link.calls();
        let response = if is_real {
            within(&self.link, patience, RPCTypes::Vote, client.vote(message)).await?
        } else {
            within(
                &self.link,
                patience,
                RPCTypes::Vote,
                client.pre_vote(message),
            )
            .await?
        };
        wire::from_vote_response(response).map_err(|error| malformed(&self.link, &error))
    }
}

impl RaftNetworkV2<TypeConfig> for Network {
    type SnapshotData = RaftSnapshot;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
        Ok(probe(&self.link, rpc, option.hard_ttl()).await?.into())
    }

    fn stream_append<S>(
        &mut self,
        mut input: S,
        option: RPCOption,
    ) -> BoxFuture<'_, RpcResult<BoxStream<'_, RpcResult<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let link = Arc::clone(&self.link);
        // Begun when the answers are asked for: only then does raft end it when it must.
        let begin = async move {
            let Some(first) = input.next().await else {
                return Ok(futures::stream::empty().boxed());
            };
            // A heartbeat, or the news of a commit: it does not open a stream. When more follows,
            // raft asks again.
            if first.entries.is_empty() {
                let answer = probe(&link, first, option.hard_ttl()).await?;
                return Ok(futures::stream::once(async { Ok(answer) }).boxed());
            }
            let requests = futures::stream::once(async { first }).chain(input);
            append::stream(&link, requests, option.hard_ttl()).await
        };
        async move { Ok(begin.try_flatten_stream().boxed()) }.boxed()
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        self.ask_vote(&rpc, &option, true).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        self.ask_vote(&rpc, &option, false).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, RaftSnapshot>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let cargo = match snapshot.snapshot {
            RaftSnapshot::Made(made) => Cargo::Made(made),
            RaftSnapshot::Here(pinned) => Cargo::Pinned(pinned, snapshot.meta),
            RaftSnapshot::File(_) => {
                let text = "a received snapshot is not sent on";
                return Err(StreamingError::Unreachable(Unreachable::from_string(text)));
            }
        };
        let work = send::send(&self.link, vote, cargo, self.snapshot_bytes_per_s);
        let begin = Instant::now();
        let sent = send::unless_cancelled(work, cancel).await;
        let tally = &self.link.traffic.snapshots_sent;
        tally.note(sent.is_ok(), begin.elapsed());
        sent
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        let patience = option.hard_ttl();
        let message = self
            .link
            .request_within(wire::to_transfer(&request), patience);
        let mut client = self.link.calls();
        let call = client.transfer_leader(message);
        let response = within(&self.link, patience, RPCTypes::TransferLeader, call).await?;
        wire::from_transfer_response(response, &request)
            .map_err(|error| malformed(&self.link, &error))
    }

    fn backoff(&self) -> Option<Backoff> {
        let mut pause = Duration::from_millis(10);
        Some(Backoff::new(std::iter::from_fn(move || {
            let this = pause;
            pause = (pause * 2).min(BACKOFF_MAX);
            Some(this)
        })))
    }
}
