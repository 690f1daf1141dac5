//! Histories of concurrent clients and the checks they must pass.
//!
//! etcd's writes say at which revision they took effect, so a history needs no search: sorted by
//! revision it is replayed once ([`Timeline`]), every answer is compared with the replay, and the
//! order of revisions with the order in time. That takes n log n, for millions of operations;
//! small ones are checked a second time, by the search of the library porcupine.

pub mod calls;
mod check;
mod porcupine;
mod timeline;
mod watches;

pub use check::{Summary, check};
pub use porcupine::to_json_lines;
pub use timeline::Timeline;
pub use watches::check_watch;

use std::fmt;

/// A time in nanoseconds after the start of the history.
pub type Nanos = u64;

/// A key of the history; `k7` on the wire is 7.
pub type Key = u16;

/// A value, written by one operation and no other.
pub type Value = u64;

/// A key as a read or an event shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// The value.
    pub value: Value,
    /// The revision that made the key.
    pub created: i64,
    /// The revision that wrote the value.
    pub modified: i64,
    /// Writes since it was made.
    pub version: i64,
    /// The lease it is attached to, or 0.
    pub lease: i64,
}

/// What a client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A linearizable read of one key.
    Get {
        /// The key.
        key: Key,
    },
    /// A write of one key.
    Put {
        /// The key.
        key: Key,
        /// What is written.
        value: Value,
        /// The lease it is attached to, or 0.
        lease: i64,
    },
    /// One transaction that writes the same value to two keys.
    PutBoth {
        /// The keys, in the order written.
        keys: [Key; 2],
        /// What is written.
        value: Value,
    },
    /// A removal of one key.
    Delete {
        /// The key.
        key: Key,
    },
    /// A write if the key was last modified at a revision (0: is absent), else a read.
    Swap {
        /// The key.
        key: Key,
        /// The revision compared with.
        expected: i64,
        /// What is written.
        value: Value,
    },
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect once, or never: the client was not told.
    Unknown,
    /// It certainly never took effect.
    Refused,
    /// It was answered.
    Done {
        /// The revision of the answer's header.
        revision: i64,
        /// Whether something was written.
        has_written: bool,
        /// What a read showed.
        shown: Option<Shown>,
    },
}

/// One operation of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Who; a client has one operation under way at a time.
    pub client: u32,
    /// When it was sent.
    pub start: Nanos,
    /// When the answer was there.
    pub end: Nanos,
    /// What was asked.
    pub call: Call,
    /// What came of it.
    pub outcome: Outcome,
}

/// One change as a watch shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The revision of the change.
    pub revision: i64,
    /// The key.
    pub key: Key,
    /// What the key became; `None`: it was removed.
    pub shown: Option<Shown>,
}

/// One lease of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its id.
    pub id: i64,
    /// Its time to live.
    pub ttl: Nanos,
    /// When the last grant or renewal that was answered had been sent.
    pub renewed: Nanos,
    /// Whether a client asked for its revocation.
    pub is_revoked: bool,
}

/// One answer of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchAnswer {
    /// The revision of its header.
    pub revision: i64,
    /// The changes in it; none: a report of progress.
    pub events: Vec<Event>,
}

/// What one watch saw, over however many streams it was carried on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// The first revision asked for.
    pub from: i64,
    /// The first key watched and the first one not.
    pub keys: (Key, Key),
    /// Its answers in the order of arrival.
    pub answers: Vec<WatchAnswer>,
}

/// Everything that was recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The revision before the first operation.
    pub base: i64,
    /// What the clients did.
    pub operations: Vec<Operation>,
    /// Their leases.
    pub leases: Vec<Lease>,
    /// Every change after `base`, read back in the end by one watch.
    pub events: Vec<Event>,
}

/// What a store that keeps etcd's promises would not have done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The revision it shows at.
    pub revision: i64,
    /// What is wrong.
    pub what: String,
}

impl Violation {
    fn new(revision: i64, what: impl Into<String>) -> Self {
        Self {
            revision,
            what: what.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at revision {}: {}", self.revision, self.what)
    }
}

impl std::error::Error for Violation {}
