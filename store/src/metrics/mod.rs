//! Every metric of the store, in Prometheus' text form. Names that etcd has are etcd's; what is
//! not measured is left out rather than invented.

mod process;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use text::{CONTENT_TYPE, Exposition, Kind};

use crate::api::CallCounters;
use crate::consensus::log::LogObserver;

/// Upper bounds of the duration histograms, in seconds, as etcd's disk histograms: from 1 ms,
/// doubling.
const DISK_BOUNDS: [f64; 14] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192,
];

/// Upper bounds for work over the whole data, in seconds: from 10 ms, doubling.
const SCAN_BOUNDS: [f64; 15] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84,
];

/// A count that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Durations by upper bound.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    buckets: Vec<Counter>,
    count: Counter,
    nanos: Counter,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Histogram {
        Histogram {
            bounds,
            buckets: bounds.iter().map(|_| Counter::default()).collect(),
            count: Counter::default(),
            nanos: Counter::default(),
        }
    }

    pub(crate) fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = self
            .bounds
            .iter()
            .zip(&self.buckets)
            .find(|(bound, _)| seconds <= **bound);
        if let Some((_, bucket)) = bucket {
            bucket.add(1);
        }
        self.nanos
            .add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        self.count.add(1);
    }
}

/// What the server itself counts; the rest is asked of its parts when it is wanted.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) calls: CallCounters,
    pub(crate) leases_renewed: Counter,
    pub(crate) health_success: Counter,
    pub(crate) health_failures: Counter,
    pub(crate) wal_fsync_seconds: Histogram,
    pub(crate) snapshot_seconds: Histogram,
    pub(crate) defrag_seconds: Histogram,
    pub(crate) hash_rev_seconds: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        Metrics {
            calls: CallCounters::default(),
            leases_renewed: Counter::default(),
            health_success: Counter::default(),
            health_failures: Counter::default(),
            wal_fsync_seconds: Histogram::new(&DISK_BOUNDS),
            snapshot_seconds: Histogram::new(&SCAN_BOUNDS),
            defrag_seconds: Histogram::new(&SCAN_BOUNDS),
            hash_rev_seconds: Histogram::new(&SCAN_BOUNDS),
        }
    }

    /// Writes what the server counts and what the system says of the process.
    pub(crate) fn write(&self, out: &mut Exposition) {
        out.counter(
            "etcd_debugging_lease_renewed_total",
            "The number of renewed leases seen by the leader.",
            self.leases_renewed.get(),
        );
        out.counter(
            "etcd_server_health_success",
            "The total number of successful health checks",
            self.health_success.get(),
        );
        out.counter(
            "etcd_server_health_failures",
            "The total number of failed health checks",
            self.health_failures.get(),
        );
        out.histogram(
            "etcd_disk_wal_fsync_duration_seconds",
            "The latency distributions of fsync called by WAL.",
            &self.wal_fsync_seconds,
        );
        out.histogram(
            "etcd_disk_backend_snapshot_duration_seconds",
            "The latency distribution of backend snapshots.",
            &self.snapshot_seconds,
        );
        out.histogram(
            "etcd_disk_backend_defrag_duration_seconds",
            "The latency distribution of backend defragmentation.",
            &self.defrag_seconds,
        );
        out.histogram(
            "etcd_mvcc_hash_rev_duration_seconds",
            "The latency distribution of storage hash by revision operation.",
            &self.hash_rev_seconds,
        );
        self.calls.write(out);
        process::write(out);
    }
}

impl LogObserver for Metrics {
    fn synced(&self, elapsed: Duration, _bytes: usize) {
        self.wal_fsync_seconds.observe(elapsed);
    }
}
