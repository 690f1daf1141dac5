//! The deterministic state machine: log entries in, responses and events out.
//!
//! Guards in etcd's order (corrupt, no space, quota), then key-values, leases, alarms, members.
//! Nothing here looks at time, randomness, or options that may differ between members.

mod applier;
mod entry;
mod sink;

pub use applier::{Applier, CompactionProgress, StateOptions};
pub use entry::{Entry, EntryPayload, LogPosition, Membership, Outcome, Response, Seat};
pub use sink::{EventSink, NoEvents};
