//! The metrics of the appliance, in one list. Gauges about backups come from the vault, counters
//! from this process.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64};

use holdfast_policies::Standing;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::health::SourceStatus;
use crate::jobs::board::{JobName, JobState};

/// The form `render` writes.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BySource {
    source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByObjective {
    source: String,
    objective: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByJob {
    job: &'static str,
    source: String,
    succeeded: &'static str,
}

type Seconds = Gauge<f64, AtomicU64>;
type Whole = Gauge<i64, AtomicI64>;

/// Every metric of the appliance.
#[derive(Debug, Default)]
struct Metrics {
    rpo: Family<BySource, Seconds>,
    rto: Family<BySource, Seconds>,
    last_backup: Family<BySource, Seconds>,
    last_proven: Family<BySource, Seconds>,
    last_drill: Family<BySource, Seconds>,
    backups: Family<BySource, Whole>,
    revision: Family<BySource, Whole>,
    problems: Family<BySource, Whole>,
    evidence: Family<BySource, Seconds>,
    missed: Family<ByObjective, Whole>,
    runs: Family<ByJob, Counter>,
}

impl Metrics {
    fn register(&self, to: &mut Registry) {
        let mut gauge = |name: &str, help: &str, family: &Family<BySource, Seconds>| {
            to.register(name, help, family.clone());
        };
        gauge(
            "holdfast_appliance_rpo_seconds",
            "What would be lost now, as time",
            &self.rpo,
        );
        gauge(
            "holdfast_appliance_rto_seconds",
            "Measured time to be back",
            &self.rto,
        );
        gauge(
            "holdfast_appliance_backup_timestamp_seconds",
            "When the newest usable backup was read, from the vault",
            &self.last_backup,
        );
        gauge(
            "holdfast_appliance_backup_proven_timestamp_seconds",
            "When the newest backup at L3 or more was read, from the vault",
            &self.last_proven,
        );
        gauge(
            "holdfast_appliance_drill_timestamp_seconds",
            "When the newest passed drill ended, from the vault",
            &self.last_drill,
        );
        gauge(
            "holdfast_appliance_evidence_timestamp_seconds",
            "When the vault was last read for these figures",
            &self.evidence,
        );
        let mut whole = |name: &str, help: &str, family: &Family<BySource, Whole>| {
            to.register(name, help, family.clone());
        };
        whole(
            "holdfast_appliance_backups",
            "Backups in the vault",
            &self.backups,
        );
        whole(
            "holdfast_appliance_backup_revision",
            "Revision of the newest usable backup",
            &self.revision,
        );
        whole(
            "holdfast_appliance_vault_problems",
            "Things in the vault that need a person's eye",
            &self.problems,
        );
        to.register(
            "holdfast_appliance_objective_missed",
            "1 when the objective is missed, 0 when met or not set",
            self.missed.clone(),
        );
        to.register(
            "holdfast_appliance_job_runs",
            "Runs of a job in this process",
            self.runs.clone(),
        );
    }

    fn set_source(&self, status: &SourceStatus) {
        let label = || BySource {
            source: status.source.clone(),
        };
        let objectives = &status.objectives;
        let nan = f64::NAN;
        let span = |span: Option<holdfast_policies::Span>| {
            span.map_or(nan, |span| span.as_duration().as_secs_f64())
        };
        self.rpo
            .get_or_create(&label())
            .set(span(objectives.rpo.measured));
        self.rto
            .get_or_create(&label())
            .set(span(objectives.rto.measured));
        let times = [
            (
                &self.last_backup,
                status.newest.as_ref().map(|one| one.time),
            ),
            (
                &self.last_proven,
                status.newest_proven.as_ref().map(|one| one.time),
            ),
            (
                &self.last_drill,
                status.last_passed_drill.as_ref().map(|one| one.ended),
            ),
            (&self.evidence, Some(objectives.at)),
        ];
        for (family, time) in times {
            family
                .get_or_create(&label())
                .set(time.map_or(nan, seconds_of));
        }
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.backups
            .get_or_create(&label())
            .set(count(status.backups));
        self.problems
            .get_or_create(&label())
            .set(count(status.problems.len()));
        let revision = status.newest.as_ref().map_or(0, |newest| newest.revision);
        self.revision.get_or_create(&label()).set(revision);
        for (objective, judgement) in [
            ("rpo", &objectives.rpo),
            ("rto", &objectives.rto),
            ("drill", &objectives.drill),
        ] {
            let label = ByObjective {
                source: status.source.clone(),
                objective,
            };
            let is_missed = judgement.standing == Standing::Missed;
            self.missed.get_or_create(&label).set(i64::from(is_missed));
        }
    }

    fn set_job(&self, name: &JobName, state: &JobState) {
        for (succeeded, count) in [("true", state.good_runs), ("false", state.failed_runs)] {
            let label = ByJob {
                job: name.kind,
                source: name.source.clone(),
                succeeded,
            };
            self.runs.get_or_create(&label).inc_by(count);
        }
    }
}

/// The page, made anew at each call from what is known.
pub(super) fn render(
    evidence: &[SourceStatus],
    jobs: &[(JobName, JobState)],
) -> Result<String, fmt::Error> {
    let metrics = Metrics::default();
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    for status in evidence {
        metrics.set_source(status);
    }
    for (name, state) in jobs {
        metrics.set_job(name, state);
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn seconds_of(time: chrono::DateTime<chrono::Utc>) -> f64 {
    // Exact until the year 287396: milliseconds fit a double's 53 bits.
    let millis = time.timestamp_millis();
    let whole = u32::try_from(millis / 1000).unwrap_or(u32::MAX);
    let rest = u16::try_from(millis % 1000).unwrap_or(0);
    f64::from(whole) + f64::from(rest) / 1000.0
}
