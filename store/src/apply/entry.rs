//! What goes into the state machine and what comes out.

use bytes::Bytes;
use holdfast_proto::etcd::rpc;
use holdfast_proto::store::v1::Command;
use holdfast_proto::store::v1::command::Request;

use crate::error::Error;

/// A position in the raft log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// The leader's term.
    pub term: u64,
    /// The leader's node id.
    pub node: u64,
    /// The entry's index.
    pub index: u64,
}

/// One committed log entry.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where it stands in the log.
    pub position: LogPosition,
    /// What it says.
    pub payload: EntryPayload,
}

/// What a log entry says.
#[derive(Debug, Clone)]
pub enum EntryPayload {
    /// Nothing; a new leader's first entry.
    Blank,
    /// Who votes and who learns, from here on.
    Membership(Membership),
    /// A request.
    Command(Command),
}

/// What an entry asks for, under the name that etcd's metrics use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Operation {
    Put,
    DeleteRange,
    Txn,
    Compaction,
    LeaseGrant,
    LeaseRevoke,
    LeaseCheckpoint,
    Alarm,
    ClusterMemberAttrSet,
    ClusterVersionSet,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Put,
        Self::DeleteRange,
        Self::Txn,
        Self::Compaction,
        Self::LeaseGrant,
        Self::LeaseRevoke,
        Self::LeaseCheckpoint,
        Self::Alarm,
        Self::ClusterMemberAttrSet,
        Self::ClusterVersionSet,
    ];

    /// What `entry` asks for; `None` for one without a request.
    pub fn of(entry: &Entry) -> Option<Self> {
        let EntryPayload::Command(command) = &entry.payload else {
            return None;
        };
        command.request.as_ref().map(|request| match request {
            Request::Put(_) => Self::Put,
            Request::DeleteRange(_) => Self::DeleteRange,
            Request::Txn(_) => Self::Txn,
            Request::Compact(_) => Self::Compaction,
            Request::LeaseGrant(_) => Self::LeaseGrant,
            Request::LeaseRevoke(_) => Self::LeaseRevoke,
            Request::LeaseCheckpoint(_) => Self::LeaseCheckpoint,
            Request::Alarm(_) => Self::Alarm,
            Request::MemberAttributes(_) => Self::ClusterMemberAttrSet,
            Request::ClusterVersion(_) => Self::ClusterVersionSet,
        })
    }

    /// etcd's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "Put",
            Self::DeleteRange => "DeleteRange",
            Self::Txn => "Txn",
            Self::Compaction => "Compaction",
            Self::LeaseGrant => "LeaseGrant",
            Self::LeaseRevoke => "LeaseRevoke",
            Self::LeaseCheckpoint => "LeaseCheckpoint",
            Self::Alarm => "Alarm",
            Self::ClusterMemberAttrSet => "ClusterMemberAttrSet",
            Self::ClusterVersionSet => "ClusterVersionSet",
        }
    }
}

/// Who votes and who learns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// The consensus layer's own form, kept and given back untouched.
    pub encoded: Bytes,
    /// The same, as the `members` table and a snapshot's `confState` need it.
    pub seats: Vec<Seat>,
}

/// One member's place in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// The member id.
    pub id: u64,
    /// Where its peers reach it.
    pub peer_urls: Vec<String>,
    /// Whether it only learns.
    pub is_learner: bool,
}

/// The answer to one entry. An error here is the request's own, the same on every member, and
/// leaves the state as it was; except [`Error::NoSpace`] from the quota, which, as in etcd, comes
/// with the write done.
pub type Outcome = Result<Response, Error>;

/// What a request answers. Headers carry the revision and nothing else.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Response {
    /// A blank or membership entry, or a command without an answer.
    Empty,
    /// To a put.
    Put(rpc::PutResponse),
    /// To a delete.
    DeleteRange(rpc::DeleteRangeResponse),
    /// To a transaction.
    Txn(rpc::TxnResponse),
    /// To a compaction that is scheduled; the rows go in [`super::Applier::compact_step`].
    Compact(rpc::CompactionResponse),
    /// To a lease grant.
    LeaseGrant(rpc::LeaseGrantResponse),
    /// To a lease revocation.
    LeaseRevoke(rpc::LeaseRevokeResponse),
    /// To lease checkpoints.
    LeaseCheckpoint(rpc::LeaseCheckpointResponse),
    /// To an alarm request.
    Alarm(rpc::AlarmResponse),
}
