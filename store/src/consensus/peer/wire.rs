//! Raft's messages to and from their wire form.
//!
//! What a peer sends is checked here: openraft takes some impossible messages for a broken program
//! and panics, and a bad message must not end the member.

use bytes::Bytes;
use holdfast_proto::peer::v1 as wire;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};

use super::super::membership::{decode_plain_membership, encode_plain_membership};
use super::super::types::{LogEntry, LogId, Payload, Proposal, TypeConfig, Vote, log_id, term_of};

/// A message that no member of ours would send.
#[derive(Debug, thiserror::Error)]
#[error("malformed peer message: {0}")]
pub(in crate::consensus) struct Malformed(pub(super) &'static str);

pub(super) fn to_log_id(id: &LogId) -> wire::LogId {
    wire::LogId {
        term: term_of(id),
        index: id.index,
    }
}

pub(super) fn from_log_id(id: wire::LogId) -> LogId {
    log_id(id.term, id.index)
}

pub(super) fn to_vote(vote: &Vote) -> wire::Vote {
    wire::Vote {
        term: vote.leader_id.term,
        member: vote.leader_id.voted_for,
        committed: vote.committed,
    }
}

pub(super) fn from_vote(vote: Option<wire::Vote>) -> Result<Vote, Malformed> {
    let vote = vote.ok_or(Malformed("no vote"))?;
    Ok(if vote.committed {
        Vote::new_committed(vote.term, vote.member)
    } else {
        Vote::new(vote.term, vote.member)
    })
}

/// The vote of a leader: what it sends is only taken from itself.
pub(super) fn from_leader_vote(vote: Option<wire::Vote>, from: u64) -> Result<Vote, Malformed> {
    let found = from_vote(vote)?;
    if !found.committed {
        return Err(Malformed("a leader that nobody elected"));
    }
    if vote.is_none_or(|vote| vote.member != from) {
        return Err(Malformed("a leader that speaks for another one"));
    }
    Ok(found)
}

pub(super) fn to_append(
    request: AppendEntriesRequest<TypeConfig>,
) -> std::io::Result<wire::AppendRequest> {
    let entries = request.entries.into_iter().map(to_entry);
    Ok(wire::AppendRequest {
        vote: Some(to_vote(&request.vote)),
        previous: request.prev_log_id.as_ref().map(to_log_id),
        entries: entries.collect::<Result<_, _>>()?,
        committed: request.leader_commit.as_ref().map(to_log_id),
    })
}

fn to_entry(entry: LogEntry) -> std::io::Result<wire::Entry> {
    let (kind, body) = match entry.payload {
        Payload::Blank => (wire::EntryKind::Blank, Bytes::new()),
        Payload::Normal(proposal) => (wire::EntryKind::Command, proposal.encoded),
        Payload::Membership(membership) => (
            wire::EntryKind::Membership,
            encode_plain_membership(&membership)?,
        ),
    };
    Ok(wire::Entry {
        term: term_of(&entry.log_id),
        kind: kind.into(),
        body,
    })
}

/// Reads a request of the leader `from`.
pub(super) fn from_append(
    request: wire::AppendRequest,
    from: u64,
) -> Result<AppendEntriesRequest<TypeConfig>, Malformed> {
    let vote = from_leader_vote(request.vote, from)?;
    let previous = request.previous.map(from_log_id);
    let mut last_term = previous.as_ref().map_or(0, term_of);
    let mut index = match &previous {
        Some(id) => id.index.checked_add(1).ok_or(Malformed("no such index"))?,
        None => 0,
    };
    let mut entries = Vec::with_capacity(request.entries.len());
    for entry in request.entries {
        if entry.term < last_term {
            return Err(Malformed("terms that go back"));
        }
        last_term = entry.term;
        entries.push(from_entry(entry, index)?);
        index = index.checked_add(1).ok_or(Malformed("no such index"))?;
    }
    let committed = request.committed.map(from_log_id);
    let committed_term = committed.as_ref().map_or(0, term_of);
    if last_term.max(committed_term) > vote.leader_id.term {
        return Err(Malformed("an entry of a later leader"));
    }
    Ok(AppendEntriesRequest {
        vote,
        prev_log_id: previous,
        entries,
        leader_commit: committed,
    })
}

fn from_entry(entry: wire::Entry, index: u64) -> Result<LogEntry, Malformed> {
    let payload = match entry.kind() {
        wire::EntryKind::Blank => Payload::Blank,
        wire::EntryKind::Command => Payload::Normal(
            Proposal::decode(entry.body).or(Err(Malformed("a command that is none")))?,
        ),
        wire::EntryKind::Membership => Payload::Membership(
            decode_plain_membership(&entry.body).or(Err(Malformed("a membership that is none")))?,
        ),
    };
    Ok(LogEntry {
        log_id: log_id(entry.term, index),
        payload,
    })
}

pub(super) fn to_append_response(result: &StreamAppendResult<TypeConfig>) -> wire::AppendResponse {
    use wire::append_response::Result as Answer;
    let answer = match result {
        Ok(matching) => Answer::Matching(wire::Matching {
            last: matching.as_ref().map(to_log_id),
        }),
        Err(StreamAppendError::Conflict(id)) => Answer::Conflict(to_log_id(id)),
        Err(StreamAppendError::HigherVote(vote)) => Answer::HigherVote(to_vote(vote)),
    };
    wire::AppendResponse {
        result: Some(answer),
    }
}

pub(super) fn from_append_response(
    response: wire::AppendResponse,
) -> Result<StreamAppendResult<TypeConfig>, Malformed> {
    use wire::append_response::Result as Answer;
    Ok(match response.result {
        Some(Answer::Matching(matching)) => Ok(matching.last.map(from_log_id)),
        Some(Answer::Conflict(id)) => Err(StreamAppendError::Conflict(from_log_id(id))),
        Some(Answer::HigherVote(vote)) => {
            Err(StreamAppendError::HigherVote(from_vote(Some(vote))?))
        }
        None => return Err(Malformed("an empty answer")),
    })
}

pub(super) fn to_vote_request(request: &VoteRequest<TypeConfig>) -> wire::VoteRequest {
    wire::VoteRequest {
        vote: Some(to_vote(&request.vote)),
        last_log: request.last_log_id.as_ref().map(to_log_id),
        leadership_transfer: request.leadership_transfer,
    }
}

/// Reads a request of the candidate `from`.
pub(super) fn from_vote_request(
    request: wire::VoteRequest,
    from: u64,
) -> Result<VoteRequest<TypeConfig>, Malformed> {
    let vote = from_vote(request.vote)?;
    if vote.committed || request.vote.is_none_or(|vote| vote.member != from) {
        return Err(Malformed("a candidate that stands for another one"));
    }
    let last = request.last_log.map(from_log_id);
    if last.as_ref().map_or(0, term_of) > vote.leader_id.term {
        return Err(Malformed("a log that is ahead of its candidate"));
    }
    let mut found = VoteRequest::new(vote, last);
    found.leadership_transfer = request.leadership_transfer;
    Ok(found)
}

pub(super) fn to_vote_response(response: &VoteResponse<TypeConfig>) -> wire::VoteResponse {
    wire::VoteResponse {
        vote: Some(to_vote(&response.vote)),
        granted: response.vote_granted,
        last_log: response.last_log_id.as_ref().map(to_log_id),
    }
}

pub(super) fn from_vote_response(
    response: wire::VoteResponse,
) -> Result<VoteResponse<TypeConfig>, Malformed> {
    let vote = from_vote(response.vote)?;
    let last = response.last_log.map(from_log_id);
    Ok(VoteResponse::new(vote, last, response.granted))
}

pub(super) fn to_transfer(
    request: &TransferLeaderRequest<TypeConfig>,
) -> wire::TransferLeaderRequest {
    wire::TransferLeaderRequest {
        from: Some(to_vote(request.from_leader())),
        to: *request.to_node_id(),
        last_log: request.last_log_id().map(to_log_id),
    }
}

pub(super) fn from_transfer(
    request: wire::TransferLeaderRequest,
    from: u64,
) -> Result<TransferLeaderRequest<TypeConfig>, Malformed> {
    let vote = from_leader_vote(request.from, from)?;
    let last = request.last_log.map(from_log_id);
    Ok(TransferLeaderRequest::new(vote, request.to, last))
}

pub(super) fn to_transfer_response(
    response: &TransferLeaderResponse<TypeConfig>,
) -> wire::TransferLeaderResponse {
    use wire::transfer_leader_response::Refusal;
    let refusal = match response {
        Ok(()) => None,
        Err(TransferLeaderError::VoteChanged { actual, .. }) => {
            Some(Refusal::OtherVote(to_vote(actual)))
        }
        Err(TransferLeaderError::LogNotFlushed { actual, .. }) => {
            Some(Refusal::Behind(wire::Matching {
                last: actual.as_ref().map(to_log_id),
            }))
        }
    };
    wire::TransferLeaderResponse { refusal }
}

pub(super) fn from_transfer_response(
    response: wire::TransferLeaderResponse,
    asked: &TransferLeaderRequest<TypeConfig>,
) -> Result<TransferLeaderResponse<TypeConfig>, Malformed> {
    use wire::transfer_leader_response::Refusal;
    Ok(match response.refusal {
        None => Ok(()),
        Some(Refusal::OtherVote(vote)) => Err(TransferLeaderError::VoteChanged {
            expected: *asked.from_leader(),
            actual: from_vote(Some(vote))?,
        }),
        Some(Refusal::Behind(behind)) => Err(TransferLeaderError::LogNotFlushed {
            expected: asked.last_log_id().copied(),
            actual: behind.last.map(from_log_id),
        }),
    })
}
