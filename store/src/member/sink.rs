//! Events of the apply thread, for the lease clock and for whoever the member was started with.

use std::sync::Arc;

use holdfast_proto::etcd::kv;
use tokio::time::Instant;

use crate::apply::EventSink;
use crate::lease::{LeaseChange, LeaseClock};

/// Passes everything on, and tells the clock of leases.
pub(super) struct LeaseSink {
    pub(super) leases: Arc<LeaseClock>,
    pub(super) events: Arc<dyn EventSink>,
}

impl EventSink for LeaseSink {
    fn publish(&self, revision: i64, events: &[kv::Event]) {
        self.events.publish(revision, events);
    }

    fn compacted(&self, revision: i64) {
        self.events.compacted(revision);
    }

    fn lease_changed(&self, change: LeaseChange) {
        self.leases.observe(change, Instant::now());
        self.events.lease_changed(change);
    }

    fn replaced(&self, revision: i64) {
        self.events.replaced(revision);
    }
}
