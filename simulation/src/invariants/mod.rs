//! What must be true of a cluster whatever happens to it; one a file.

mod acknowledged;
mod compaction;
mod content;
mod lease_expiry;
mod log_prefix;
mod members;
mod one_leader;
mod revision;
mod state_equal;
mod watches;

use std::collections::BTreeSet;
use std::fmt;

use holdfast_proto::etcd::kv;
use holdfast_store::consensus::log::Fingerprint;

pub use acknowledged::AcknowledgedWritesSurvive;
pub use compaction::CompactionsNeverGoBack;
pub use content::ContentFollowsFromChanges;
pub use lease_expiry::NoLeaseExpiresEarly;
pub use log_prefix::LogsAgree;
pub use members::RemovedMembersStayOut;
pub use one_leader::OneLeaderATerm;
pub use revision::RevisionsNeverGoBack;
pub use state_equal::StatesAreEqual;
pub use watches::WatchesSeeEveryChange;

use crate::history::{Event, Nanos, Watch};

/// A member by its place in the cluster, from 0 on.
pub type Place = usize;

/// What was seen of a running cluster.
#[derive(Debug, Clone, Copy)]
pub enum Sight<'a> {
    /// A host begins anew, without any data, as another member.
    Emptied {
        /// Where.
        member: Place,
    },
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
    /// Who the members are, as one of them says.
    Members {
        /// Who.
        member: Place,
        /// The term and the index of the last log entry in its state.
        applied: (u64, u64),
        /// The ids of the members.
        listed: &'a [u64],
        /// The ids of those that were removed.
        removed: &'a BTreeSet<u64>,
    },
    /// History before a revision cannot be read from a member any more.
    Compacted {
        /// Who.
        member: Place,
        /// The last log entry in its state.
        applied: u64,
        /// The revision.
        revision: i64,
    },
    /// A member's whole state at one position.
    State {
        /// Who.
        member: Place,
        /// The last log entry in it.
        applied: u64,
        /// Everything in it, the keys as a hash.
        content: &'a str,
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
    /// What can be read of all that happened from a member's state at rest.
    Finished {
        /// Who.
        member: Place,
        /// The first revision that is not compacted.
        from: i64,
        /// Every change from there on, in the order of revisions.
        events: &'a [kv::Event],
    },
    /// Everything that a member's state at rest holds.
    Content {
        /// Who.
        member: Place,
        /// The keys, in order.
        pairs: &'a [kv::KeyValue],
    },
    /// What one watch was given, in the end.
    Watched {
        /// The watch.
        watch: &'a Watch,
        /// Whether it lasted to the end.
        is_whole: bool,
        /// The revision before the first change.
        base: i64,
        /// Every change.
        changes: &'a [Event],
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
        Box::new(RemovedMembersStayOut::default()),
        Box::new(CompactionsNeverGoBack::default()),
        Box::new(ContentFollowsFromChanges::default()),
        Box::new(WatchesSeeEveryChange),
    ]
}
