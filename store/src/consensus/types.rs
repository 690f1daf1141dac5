//! What openraft is parameterised with.
//!
//! `leader_id_std` allows one leader a term, so that the term that clients see in a response
//! header names one leader; openraft's default allows several.

use std::fmt;

use bytes::Bytes;
use holdfast_proto::store::v1::Command;
use prost::Message as _;
use serde::{Deserialize, Serialize};

/// openraft's view of a member id.
pub type NodeId = u64;

/// What the group's membership says of one member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerNode {
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
    /// What it is to clients, whether or not it has its vote yet.
    pub wanted: Wanted,
}

/// What a member is meant to be. One that is to vote learns until it has caught up, and is given
/// its vote then: until that moment it counts for no quorum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wanted {
    /// It votes, now or as soon as it has caught up.
    #[default]
    Voter,
    /// It only learns until it is promoted.
    Learner,
}

impl PeerNode {
    /// Whether the member votes for all that the caller has to know.
    pub(crate) fn is_wanted_voter(&self) -> bool {
        self.wanted == Wanted::Voter
    }
}

/// One command on its way through the log: decoded for apply, encoded for the disk.
///
/// Encoding happens once, on the task that proposes, and never on openraft's core task.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// The command.
    pub command: Command,
    /// The same command as its protobuf bytes.
    pub encoded: Bytes,
}

impl Proposal {
    /// Encodes `command`.
    pub fn new(command: Command) -> Self {
        let encoded = Bytes::from(command.encode_to_vec());
        Self { command, encoded }
    }

    /// Reads a command back from its bytes; values are slices of `encoded`, not copies.
    pub fn decode(encoded: Bytes) -> Result<Self, prost::DecodeError> {
        let command = Command::decode(encoded.clone())?;
        Ok(Self { command, encoded })
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "command {} ({} bytes)",
            self.command.id,
            self.encoded.len()
        )
    }
}

openraft::declare_raft_types!(
    /// The types of this store's raft group.
    pub TypeConfig:
        D = Proposal,
        R = crate::apply::Outcome,
        NodeId = NodeId,
        Node = PeerNode,
        Term = u64,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>,
        Vote = openraft::impls::Vote<Self::LeaderId>,
        Entry = openraft::Entry<<Self::LeaderId as openraft::vote::RaftLeaderId>::Committed, Self::Payload>,
        AsyncRuntime = openraft::impls::TokioRuntime,
);

/// One entry of the raft log.
pub type LogEntry = <TypeConfig as openraft::RaftTypeConfig>::Entry;
pub(crate) type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
pub(crate) type Payload = <TypeConfig as openraft::RaftTypeConfig>::Payload;
pub(crate) type Membership = openraft::Membership<NodeId, PeerNode>;
pub(crate) type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type ApplyResponder = openraft::storage::ApplyResponder<TypeConfig>;

/// The log id of `index` in `term`.
pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new_term_index(term, index)
}

/// The term of a log id.
pub(crate) fn term_of(id: &LogId) -> u64 {
    id.leader_id.term
}
