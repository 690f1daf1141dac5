//! Every metric of the store, in Prometheus' text form. Names that etcd has are etcd's; what is
//! not measured is left out rather than invented.

mod applies;
mod catalog;
mod clients;
mod process;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use catalog::{Kind, METRICS, Metric};
pub(crate) use clients::ClientRequests;
pub(crate) use text::{CONTENT_TYPE, Exposition};

use applies::Applies;

use crate::api::CallCounters;
use crate::apply::Operation;
use crate::consensus::log::LogObserver;
use crate::options::MetricsDetail;

/// Upper bounds of the duration histograms, in seconds, as etcd's disk histograms: from 1 ms,
/// doubling.
const DISK_BOUNDS: [f64; 14] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192,
];

/// Upper bounds of round trips between members, in seconds: from 0.1 ms, doubling.
const ROUND_TRIP_BOUNDS: [f64; 16] = [
    0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048,
    0.4096, 0.8192, 1.6384, 3.2768,
];

/// Upper bounds of the transfer of snapshots, in seconds: from 0.1 s, doubling.
const TRANSFER_BOUNDS: [f64; 10] = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2];

/// Upper bounds of the handling of calls, in seconds: those of Prometheus' Go library.
const HANDLING_BOUNDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Upper bounds for work over the whole data, in seconds: from 10 ms, doubling.
const SCAN_BOUNDS: [f64; 15] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84,
];

/// Upper bounds of reads from the state, in seconds: from 0.1 ms, doubling.
const READ_BOUNDS: [f64; 20] = [
    0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048,
    0.4096, 0.8192, 1.6384, 3.2768, 6.5536, 13.1072, 26.2144, 52.4288,
];

/// Upper bounds of times to live, in seconds: one second to three months, doubling.
const TTL_BOUNDS: [f64; 24] = [
    1.0,
    2.0,
    4.0,
    8.0,
    16.0,
    32.0,
    64.0,
    128.0,
    256.0,
    512.0,
    1024.0,
    2048.0,
    4096.0,
    8192.0,
    16384.0,
    32768.0,
    65536.0,
    131_072.0,
    262_144.0,
    524_288.0,
    1_048_576.0,
    2_097_152.0,
    4_194_304.0,
    8_388_608.0,
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

    /// Of the handling of calls.
    pub(crate) fn of_handling() -> Histogram {
        Histogram::new(&HANDLING_BOUNDS)
    }

    /// Of calls between members.
    pub(crate) fn of_round_trips() -> Histogram {
        Histogram::new(&ROUND_TRIP_BOUNDS)
    }

    /// Of snapshots between members.
    pub(crate) fn of_transfers() -> Histogram {
        Histogram::new(&TRANSFER_BOUNDS)
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

/// Durations of work that may fail.
#[derive(Debug)]
pub(crate) struct Outcomes {
    failed: Histogram,
    succeeded: Histogram,
}

impl Outcomes {
    fn new(bounds: &'static [f64]) -> Outcomes {
        Outcomes {
            failed: Histogram::new(bounds),
            succeeded: Histogram::new(bounds),
        }
    }

    /// Durations of requests.
    pub(crate) fn of_requests() -> Outcomes {
        Outcomes::new(&DISK_BOUNDS)
    }

    pub(crate) fn observe(&self, is_success: bool, duration: Duration) {
        if is_success {
            self.succeeded.observe(duration);
        } else {
            self.failed.observe(duration);
        }
    }

    /// Writes the outcomes that happened, under `labels` and `success`.
    pub(crate) fn write(&self, out: &mut Exposition, name: &str, labels: &[(&str, &str)]) {
        for (text, histogram) in [("false", &self.failed), ("true", &self.succeeded)] {
            if histogram.count.get() > 0 {
                let labels: Vec<_> = [&[("success", text)], labels].concat();
                out.observations(name, &labels, histogram);
            }
        }
    }
}

/// What the server itself counts; the rest is asked of its parts when it is wanted.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) calls: CallCounters,
    pub(crate) clients: ClientRequests,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) leases_renewed: Counter,
    pub(crate) health_success: Counter,
    pub(crate) health_failures: Counter,
    pub(crate) lease_ttl_seconds: Histogram,
    pub(crate) range_seconds: Outcomes,
    pub(crate) wal_fsync_seconds: Histogram,
    wal_write_seconds: Histogram,
    wal_bytes: Counter,
    applies: Applies,
    commit_seconds: Histogram,
    pub(crate) snapshot_seconds: Histogram,
    pub(crate) defrag_seconds: Histogram,
    pub(crate) hash_seconds: Histogram,
    pub(crate) hash_rev_seconds: Histogram,
}

impl Metrics {
    pub(crate) fn new(detail: MetricsDetail) -> Metrics {
        Metrics {
            calls: CallCounters::new(detail),
            clients: ClientRequests::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            leases_renewed: Counter::default(),
            health_success: Counter::default(),
            health_failures: Counter::default(),
            lease_ttl_seconds: Histogram::new(&TTL_BOUNDS),
            range_seconds: Outcomes::new(&READ_BOUNDS),
            wal_fsync_seconds: Histogram::new(&DISK_BOUNDS),
            wal_write_seconds: Histogram::new(&DISK_BOUNDS),
            wal_bytes: Counter::default(),
            applies: Applies::new(),
            commit_seconds: Histogram::new(&DISK_BOUNDS),
            snapshot_seconds: Histogram::new(&SCAN_BOUNDS),
            defrag_seconds: Histogram::new(&SCAN_BOUNDS),
            hash_seconds: Histogram::new(&SCAN_BOUNDS),
            hash_rev_seconds: Histogram::new(&SCAN_BOUNDS),
        }
    }

    /// Writes what the server counts and what the system says of the process.
    pub(crate) fn write(&self, out: &mut Exposition) {
        for (name, counter) in [
            ("etcd_debugging_lease_renewed_total", &self.leases_renewed),
            ("etcd_server_health_success", &self.health_success),
            ("etcd_server_health_failures", &self.health_failures),
            (
                "etcd_network_client_grpc_received_bytes_total",
                &self.received_bytes,
            ),
            (
                "etcd_network_client_grpc_sent_bytes_total",
                &self.sent_bytes,
            ),
        ] {
            out.counter(name, counter.get());
        }
        out.gauge("etcd_disk_wal_write_bytes_total", self.wal_bytes.get());
        for (name, histogram) in [
            ("etcd_debugging_lease_ttl_total", &self.lease_ttl_seconds),
            (
                "etcd_disk_wal_fsync_duration_seconds",
                &self.wal_fsync_seconds,
            ),
            (
                "etcd_disk_wal_write_duration_seconds",
                &self.wal_write_seconds,
            ),
            (
                "etcd_disk_backend_commit_duration_seconds",
                &self.commit_seconds,
            ),
            (
                "etcd_disk_backend_snapshot_duration_seconds",
                &self.snapshot_seconds,
            ),
            (
                "etcd_disk_backend_defrag_duration_seconds",
                &self.defrag_seconds,
            ),
            ("etcd_mvcc_hash_duration_seconds", &self.hash_seconds),
            (
                "etcd_mvcc_hash_rev_duration_seconds",
                &self.hash_rev_seconds,
            ),
        ] {
            out.histogram(name, histogram);
        }
        out.family("etcd_server_range_duration_seconds");
        self.range_seconds
            .write(out, "etcd_server_range_duration_seconds", &[]);
        self.applies.write(out);
        self.clients.write(out);
        self.calls.write(out);
        process::write(out);
    }
}

impl LogObserver for Metrics {
    fn synced(&self, elapsed: Duration, bytes: usize) {
        self.wal_fsync_seconds.observe(elapsed);
        self.wal_bytes.add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    fn written(&self, elapsed: Duration) {
        self.wal_write_seconds.observe(elapsed);
    }

    fn applied(&self, operation: Operation, is_success: bool, elapsed: Duration) {
        self.applies.observe(operation, is_success, elapsed);
    }

    fn checkpointed(&self, elapsed: Duration) {
        self.commit_seconds.observe(elapsed);
    }
}
