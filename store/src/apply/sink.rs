//! Where the state machine tells what changed.

use holdfast_proto::etcd::kv;

use crate::lease::LeaseChange;

/// Told of every change once readers can see it, in the order of revisions, on the applying
/// thread: an implementation must not block.
pub trait EventSink: Send + Sync {
    /// All events of one revision (`prev_kv` is left out: see `State::previous`).
    fn publish(&self, revision: i64, events: &[kv::Event]);

    /// History before `revision` cannot be read any more.
    fn compacted(&self, revision: i64);

    /// The set of leases changed.
    fn lease_changed(&self, change: LeaseChange);

    /// The whole state was replaced by a snapshot at `revision`.
    fn replaced(&self, revision: i64);
}

/// Listens to nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn publish(&self, _revision: i64, _events: &[kv::Event]) {}
    fn compacted(&self, _revision: i64) {}
    fn lease_changed(&self, _change: LeaseChange) {}
    fn replaced(&self, _revision: i64) {}
}
