//! The metrics of continuous capture: how far it is, by the vault; what it did, by this process.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{BySource, Described, Seconds, Whole, gauge, seconds_of};
use crate::health::SourceStatus;
use crate::jobs::capture::Tally;

const CAPTURED: Described = gauge(
    "holdfast_delta_captured_timestamp_seconds",
    "seconds since 1970",
    "Until when every change of the source is in the vault, as the vault says; `NaN`: none is",
);

const LAG: Described = gauge(
    "holdfast_delta_lag_seconds",
    "seconds",
    "How long before the last look at the vault that was",
);

const REVISION: Described = gauge(
    "holdfast_delta_last_revision",
    "revision",
    "The newest revision captured, as the vault says",
);

const IN_VAULT: Described = gauge("holdfast_delta_objects", "deltas", "Deltas in the vault");

const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Described {
    Described {
        kind: "counter",
        ..gauge(name, unit, help)
    }
}

const COMMITTED: Described = counter(
    "holdfast_delta_committed",
    "deltas",
    "Deltas stored by this process",
);

const EVENTS: Described = counter(
    "holdfast_delta_events",
    "changes",
    "Changes in the deltas stored by this process",
);

const BYTES: Described = counter(
    "holdfast_delta_stored_bytes",
    "bytes",
    "Bytes of the deltas stored by this process",
);

const GAPS: Described = counter(
    "holdfast_delta_gaps",
    "gaps",
    "Gaps that this process found and recorded",
);

const FAILURES: Described = counter(
    "holdfast_delta_failures",
    "failures",
    "Times that following the source or storing what it brought did not work; most lose nothing",
);

/// All of them.
pub(super) const METRICS: [Described; 9] = [
    CAPTURED, LAG, REVISION, IN_VAULT, COMMITTED, EVENTS, BYTES, GAPS, FAILURES,
];

#[derive(Debug, Default)]
pub(super) struct DeltaMetrics {
    captured: Family<BySource, Seconds>,
    lag: Family<BySource, Seconds>,
    revision: Family<BySource, Whole>,
    in_vault: Family<BySource, Whole>,
    committed: Family<BySource, Counter>,
    events: Family<BySource, Counter>,
    bytes: Family<BySource, Counter>,
    gaps: Family<BySource, Counter>,
    failures: Family<BySource, Counter>,
}

impl DeltaMetrics {
    pub(super) fn register(&self, to: &mut Registry) {
        to.register(CAPTURED.name, CAPTURED.help, self.captured.clone());
        to.register(LAG.name, LAG.help, self.lag.clone());
        to.register(REVISION.name, REVISION.help, self.revision.clone());
        to.register(IN_VAULT.name, IN_VAULT.help, self.in_vault.clone());
        to.register(COMMITTED.name, COMMITTED.help, self.committed.clone());
        to.register(EVENTS.name, EVENTS.help, self.events.clone());
        to.register(BYTES.name, BYTES.help, self.bytes.clone());
        to.register(GAPS.name, GAPS.help, self.gaps.clone());
        to.register(FAILURES.name, FAILURES.help, self.failures.clone());
    }

    /// What the vault says, where changes are or were captured.
    pub(super) fn set_source(&self, status: &SourceStatus) {
        let Some(capture) = &status.capture else {
            return;
        };
        let label = BySource {
            source: status.source.clone(),
        };
        let until = capture.until.map_or(f64::NAN, seconds_of);
        self.captured.get_or_create(&label).set(until);
        let lag = capture.lag.map(|lag| lag.as_duration().as_secs_f64());
        self.lag.get_or_create(&label).set(lag.unwrap_or(f64::NAN));
        let revision = capture.revision.unwrap_or(0);
        self.revision.get_or_create(&label).set(revision);
        let deltas = i64::try_from(capture.deltas).unwrap_or(i64::MAX);
        self.in_vault.get_or_create(&label).set(deltas);
    }

    /// What this process did.
    pub(super) fn set_tally(&self, source: &str, tally: &Tally) {
        let label = BySource {
            source: source.to_owned(),
        };
        for (family, count) in [
            (&self.committed, tally.stored),
            (&self.events, tally.events),
            (&self.bytes, tally.bytes),
            (&self.gaps, tally.gaps),
            (&self.failures, tally.failures),
        ] {
            family.get_or_create(&label).inc_by(count);
        }
    }

    #[cfg(test)]
    pub(super) fn touch(&self) {
        self.set_tally("s", &Tally::default());
        let label = BySource {
            source: "s".to_owned(),
        };
        for family in [&self.captured, &self.lag] {
            family.get_or_create(&label).set(1.5);
        }
        for family in [&self.revision, &self.in_vault] {
            family.get_or_create(&label).set(1);
        }
    }
}
