//! What raft is asked by other members.

use std::path::PathBuf;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use holdfast_proto::peer::v1 as proto;
use openraft::Raft;
use openraft::errors::RaftError;
use openraft::raft::AppendEntriesRequest;
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::{Status, Streaming};

use super::super::leadership::Contact;
use super::super::machine::Machine;
use super::super::types::TypeConfig;
use super::handshake::{Identity, RefusalLog};
use super::receive::Inbox;
use super::traffic::Traffics;
use super::wire::{self, Malformed};
use crate::failpoint::{self, Point};

/// Answers the calls of other members that are raft's; cheap to clone.
#[derive(Clone)]
pub(crate) struct PeerCalls {
    own: Identity,
    pub(super) raft: Raft<TypeConfig, Machine>,
    pub(super) inbox: Arc<Inbox>,
    contact: Arc<Contact>,
    traffics: Traffics,
    refused: Arc<RefusalLog>,
}

pub(super) fn refuse(error: &Malformed) -> Status {
    tracing::warn!(%error, "a peer call was refused");
    Status::invalid_argument(error.to_string())
}

pub(super) fn stopped(error: &dyn std::error::Error) -> Status {
    tracing::debug!(%error, "raft does not answer a peer");
    Status::unavailable("the member is stopping")
}

/// A failed call: only a raft that stopped makes one.
fn failed(error: &RaftError<TypeConfig>) -> Status {
    stopped(error)
}

impl PeerCalls {
    pub(in crate::consensus) fn new(
        own: Identity,
        raft: Raft<TypeConfig, Machine>,
        contact: Arc<Contact>,
        traffics: Traffics,
        inbox: PathBuf,
    ) -> Self {
        Self {
            own,
            raft,
            inbox: Arc::new(Inbox::new(inbox)),
            contact,
            traffics,
            refused: Arc::default(),
        }
    }

    /// Who calls, when the call is for this member.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`, naming both sides, when it is not.
    pub(crate) fn admit(
        &self,
        metadata: &MetadataMap,
        is_removed: impl FnOnce(u64) -> bool,
    ) -> Result<u64, Status> {
        let checked = self.own.check(metadata, is_removed);
        match &checked {
            Ok(from) => drop(self.traffics.of(*from)),
            Err(status) => self.refused.note(status, Instant::now()),
        }
        checked
    }

    /// What went to and came from the other members.
    pub(crate) fn traffics(&self) -> &Traffics {
        &self.traffics
    }

    /// The entries of the leader `from`; answers in the order of the requests.
    pub(crate) fn append(
        &self,
        from: u64,
        inbound: Streaming<proto::AppendRequest>,
    ) -> impl Stream<Item = Result<proto::AppendResponse, Status>> + Send + 'static {
        let bad = Arc::new(Mutex::new(None));
        let requests = requests(from, inbound, Arc::clone(&bad));
        let contact = Arc::clone(&self.contact);
        let answers = self.raft.stream_append(requests).map(move |answer| {
            let answer = answer.map_err(|error| stopped(&error))?;
            let answer = wire::to_append_response(&answer);
            contact.note(from, &answer, Instant::now());
            Ok(answer)
        });
        // What was wrong with the requests is said after the answers to those before.
        let last = futures::stream::once(async move { bad.lock().take() });
        let answers = failpoint::before_each(Point::RaftBeforeFollowerSend, answers);
        answers.chain(last.filter_map(|bad| async move { bad.map(Err) }))
    }

    /// One request without entries of the leader `from`.
    pub(crate) async fn probe(
        &self,
        from: u64,
        request: proto::AppendRequest,
    ) -> Result<proto::AppendResponse, Status> {
        let request = wire::from_append(request, from).map_err(|error| refuse(&error))?;
        let (previous, last) = (request.prev_log_id, request.prev_log_id);
        if !request.entries.is_empty() {
            return Err(Status::invalid_argument("a probe carries no entries"));
        }
        if failpoint::pause(Point::RaftDropHeartbeat).await {
            return Err(Status::unavailable("the heartbeat was lost"));
        }
        let answer = self.raft.append_entries(request).await;
        let answer = answer.map_err(|error| failed(&error))?;
        if answer.is_conflict() && previous.is_none() {
            return Err(Status::internal("a conflict with nothing"));
        }
        let answer = wire::to_append_response(&answer.into_stream_result(previous, last));
        self.contact.note(from, &answer, Instant::now());
        failpoint::pause(Point::RaftBeforeFollowerSend).await;
        Ok(answer)
    }

    pub(crate) async fn vote(
        &self,
        from: u64,
        request: proto::VoteRequest,
    ) -> Result<proto::VoteResponse, Status> {
        let request = wire::from_vote_request(request, from).map_err(|error| refuse(&error))?;
        let answer = self.raft.vote(request).await;
        let answer = answer.map_err(|error| failed(&error))?;
        Ok(wire::to_vote_response(&answer))
    }

    pub(crate) async fn pre_vote(
        &self,
        from: u64,
        request: proto::VoteRequest,
    ) -> Result<proto::VoteResponse, Status> {
        let request = wire::from_vote_request(request, from).map_err(|error| refuse(&error))?;
        let answer = self.raft.pre_vote(request).await;
        let answer = answer.map_err(|error| failed(&error))?;
        Ok(wire::to_vote_response(&answer))
    }

    pub(crate) async fn transfer_leader(
        &self,
        from: u64,
        request: proto::TransferLeaderRequest,
    ) -> Result<proto::TransferLeaderResponse, Status> {
        let request = wire::from_transfer(request, from).map_err(|error| refuse(&error))?;
        let answer = self.raft.handle_transfer_leader(request).await;
        let answer = answer.map_err(|error| stopped(&error))?;
        Ok(wire::to_transfer_response(&answer))
    }
}

/// The requests up to the first bad one, which ends them.
fn requests(
    from: u64,
    inbound: Streaming<proto::AppendRequest>,
    bad: Arc<Mutex<Option<Status>>>,
) -> impl Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + 'static {
    futures::stream::unfold((inbound, bad), move |(mut inbound, bad)| async move {
        let request = match inbound.message().await {
            Ok(message) => message?,
            // The leader went away, or sent what is no message.
            Err(status) => {
                tracing::debug!(%status, "a stream of entries ended");
                *bad.lock() = Some(status);
                return None;
            }
        };
        match wire::from_append(request, from) {
            Ok(request) => Some((request, (inbound, bad))),
            Err(error) => {
                *bad.lock() = Some(refuse(&error));
                None
            }
        }
    })
}
