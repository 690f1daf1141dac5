//! The deterministic state machine: log entries in, responses and events out.
//!
//! Guards in etcd's order (corrupt, no space, quota), then key-values, leases, alarms, members.
//! Nothing here looks at time, randomness, or options that may differ between members.

mod applier;
mod entry;
mod install;
mod open;
mod quota;
mod records;
mod sink;
mod step;

pub use crate::backend::OpenStorage;
pub use applier::{Applier, CompactionProgress, StateOptions};
pub use entry::{Entry, EntryPayload, LogPosition, Membership, Operation, Outcome, Response, Seat};
pub use install::{BUMPED_REVISION_MAX, Rewrite, build_state};
pub(crate) use quota::fits;
pub use quota::{LEASE_COST, QUOTA_DEFAULT_BYTES, put_cost, txn_cost};
pub(crate) use records::Records;
pub use sink::{EventSink, NoEvents};
