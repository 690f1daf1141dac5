//! What goes into the state machine and what comes out.

use bytes::Bytes;
use holdfast_proto::etcd::rpc;
use holdfast_proto::store::v1::Command;

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
