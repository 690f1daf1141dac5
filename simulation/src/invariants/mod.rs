//! What must be true of a cluster whatever happens to it; one a file.

mod acknowledged;
mod lease_expiry;
mod log_prefix;
mod one_leader;
mod revision;
mod state_equal;

use std::fmt;

use holdfast_proto::etcd::kv;
use holdfast_store::consensus::log::Fingerprint;

pub use acknowledged::AcknowledgedWritesSurvive;
pub use lease_expiry::NoLeaseExpiresEarly;
pub use log_prefix::LogsAgree;
pub use one_leader::OneLeaderATerm;
pub use revision::RevisionsNeverGoBack;
pub use state_equal::StatesAreEqual;

use crate::history::Nanos;

/// A member by its place in the cluster, from 0 on.
pub type Place = usize;

/// What was seen of a running cluster.
#[derive(Debug, Clone, Copy)]
pub enum Sight<'a> {
    /// A member opened what was durable of its state.
    Started {
        /// Who.
        member: Place,
        /// Its revision then.
        revision: i64,
    },
    /// A member is ready to serve, with everything acknowledged before applied.
    Ready {
        /// Who.
        member: Place,
        /// Its revision then.
        revision: i64,
    },
    /// A member made its state durable.
    Checkpointed {
        /// Who.
        member: Place,
        /// The revision in the durable state.
        revision: i64,
    },
    /// What a member says of itself.
    Status {
        /// Who.
        member: Place,
        /// The term it is in.
        term: u64,
        /// The leader it knows of, by id.
        leader: Option<u64>,
        /// Its revision.
        revision: i64,
    },
    /// A member's whole state at one position.
    State {
        /// Who.
        member: Place,
        /// The last log entry in it.
        applied: u64,
        /// A digest of everything in it.
        digest: u64,
    },
    /// A revision can be read from a member.
    Published {
        /// Who.
        member: Place,
        /// The revision.
        revision: i64,
        /// Everything that changed in it.
        events: &'a [kv::Event],
    },
    /// A member holds an entry in its log.
    Logged {
        /// Who.
        member: Place,
        /// Where in the log.
        index: u64,
        /// What it is.
        entry: Fingerprint,
        /// Whether the member has applied it.
        is_committed: bool,
    },
    /// A client was told that its write took effect.
    Acknowledged {
        /// The member that said so.
        member: Place,
        /// The revision of the write.
        revision: i64,
        /// What was written: keys, and values unless removed.
        changes: &'a [(String, Option<String>)],
    },
    /// A lease was granted or renewed, and the client knows.
    Renewed {
        /// The lease.
        lease: i64,
        /// When the client asked for it.
        asked: Nanos,
        /// The time to live it was given.
        ttl: Nanos,
    },
    /// A lease is gone from a member's state.
    Revoked {
        /// Who.
        member: Place,
        /// The lease.
        lease: i64,
        /// When.
        at: Nanos,
    },
    /// All that happened, from a member's state at rest.
    Finished {
        /// Who.
        member: Place,
        /// Every change since the cluster was founded, in the order of revisions.
        events: &'a [kv::Event],
    },
}

/// Something that must always be true.
pub trait Invariant: fmt::Debug + Send {
    /// What it says, in a few words.
    fn name(&self) -> &'static str;

    /// Looks at what was seen.
    ///
    /// # Errors
    /// What is not true any more.
    fn see(&mut self, sight: &Sight<'_>) -> Result<(), String>;
}

/// All of them.
pub fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(StatesAreEqual::default()),
        Box::new(RevisionsNeverGoBack::default()),
        Box::new(AcknowledgedWritesSurvive::default()),
        Box::new(OneLeaderATerm::default()),
        Box::new(NoLeaseExpiresEarly::default()),
        Box::new(LogsAgree::default()),
    ]
}
