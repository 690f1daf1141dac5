//! The metrics of the appliance, in one list. Gauges about backups come from the vault, counters
//! from this process.

mod delta;

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64};

use holdfast_policies::Standing;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::alarms::AlarmName;
use crate::health::SourceStatus;
use crate::jobs::board::{JobName, JobState};
use crate::jobs::capture::Tally;
use crate::jobs::turn::Turn;
use crate::vaults::copies::{CopyState, CopyStatus};
use delta::DeltaMetrics;

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
struct ByCopy {
    source: String,
    vault: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByAlarm {
    source: String,
    alarm: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByJob {
    job: &'static str,
    source: String,
    succeeded: &'static str,
}

type Seconds = Gauge<f64, AtomicU64>;
type Whole = Gauge<i64, AtomicI64>;

/// A metric as its page describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Described {
    /// The family's name; a counter's samples end in `_total` besides.
    pub(crate) name: &'static str,
    /// `gauge` or `counter`.
    pub(crate) kind: &'static str,
    /// What a value counts.
    pub(crate) unit: &'static str,
    /// Names of its labels.
    pub(crate) labels: &'static str,
    /// What it means.
    pub(crate) help: &'static str,
}

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Described {
    Described {
        name,
        kind: "gauge",
        unit,
        labels: "source",
        help,
    }
}

const LAST_BACKUP: Described = gauge(
    "holdfast_appliance_backup_timestamp_seconds",
    "seconds since 1970",
    "When the newest usable backup was read from its source, as the vault says",
);

const RPO: Described = gauge(
    "holdfast_appliance_rpo_seconds",
    "seconds",
    "What would be lost: the age of that backup, or of the newest change captured after it, when it was last judged, once a minute",
);

const RTO: Described = gauge(
    "holdfast_appliance_rto_seconds",
    "seconds",
    "Time to be back, as the newest passed drill measured it",
);

const LAST_DRILL: Described = gauge(
    "holdfast_appliance_drill_timestamp_seconds",
    "seconds since 1970",
    "When the newest passed drill ended, as its report in the vault says",
);

const LAST_PROVEN: Described = gauge(
    "holdfast_appliance_backup_proven_timestamp_seconds",
    "seconds since 1970",
    "When the newest backup proven by a drill (L3 or more) was read from its source",
);

const MISSED: Described = Described {
    labels: "source, objective",
    ..gauge(
        "holdfast_appliance_objective_missed",
        "0 or 1",
        "1 when the objective (rpo, rto or drill) is missed by the evidence, 0 when met or not set",
    )
};

const WANTED: Described = Described {
    labels: "source, objective",
    ..gauge(
        "holdfast_appliance_objective_seconds",
        "seconds",
        "What is promised: the most that the objective (rpo, rto or drill) allows",
    )
};

const EVIDENCE: Described = gauge(
    "holdfast_appliance_evidence_timestamp_seconds",
    "seconds since 1970",
    "When the vault was last read for these figures; one that stands still (or `NaN`: never read) means that it cannot be read; the figures are then those of the last reading, judged anew",
);

const BACKUPS: Described = gauge(
    "holdfast_appliance_backups",
    "backups",
    "Backups in the vault",
);

const REVISION: Described = gauge(
    "holdfast_appliance_backup_revision",
    "revision",
    "Revision of the newest usable backup",
);

const PROBLEMS: Described = gauge(
    "holdfast_appliance_vault_problems",
    "problems",
    "Things in the vault that need a person's eye; `holdfast status` names them",
);

const ALARM: Described = Described {
    labels: "source, alarm",
    ..gauge(
        "holdfast_appliance_alarm",
        "0 or 1",
        "1 while the alarm is on: `prune_failed` (backups that should go could not be removed), `retention_no_effect` (they are let go and the vault does not shrink), `clock_disagreement` (retention refuses, since clocks or times of backups disagree), `capture_gap` (changes between two backups were not captured), `capture_stalled` (none has come to the vault for too long); `holdfast status` says more",
    )
};

const TRASH: Described = gauge(
    "holdfast_appliance_trash_backups",
    "backups",
    "Backups in the trash: let go, whole, and not removed yet",
);

const RUNS: Described = Described {
    kind: "counter",
    labels: "job, source, succeeded",
    ..gauge(
        "holdfast_appliance_job_runs",
        "runs",
        "Runs of a job (backup, drill, copy, whose source is `SOURCE/VAULT`, or check of a vault whose files changed) in this process",
    )
};

const ACTIVE: Described = Described {
    labels: "",
    ..gauge(
        "holdfast_appliance_active",
        "0 or 1",
        "1 when this daemon runs the jobs, 0 when it stands by for another one of its cluster; summed over the cluster it is 1, and 0 only around a change of the store's leader",
    )
};

const COPY_BEHIND: Described = Described {
    labels: "source, vault",
    ..gauge(
        "holdfast_appliance_copy_behind",
        "backups and deltas",
        "What a copy (`restore.copies`) lacks of the first vault; `NaN` while it cannot be read",
    )
};

const COPY_FAILING: Described = Described {
    labels: "source, vault",
    ..gauge(
        "holdfast_appliance_copy_failing",
        "0 or 1",
        "1 while a copy cannot be read, or refuses what is to come",
    )
};

const COPY_SINCE: Described = Described {
    labels: "source, vault",
    ..gauge(
        "holdfast_appliance_copy_late_timestamp_seconds",
        "seconds since 1970",
        "Since when a copy lacks something or fails; `NaN` where it does not. Alarm on `time()` minus this",
    )
};

const COPY_NEWEST: Described = Described {
    labels: "source, vault",
    ..gauge(
        "holdfast_appliance_copy_backup_timestamp_seconds",
        "seconds since 1970",
        "When the newest backup that a copy holds was read from its source",
    )
};

const WAITING: Described = gauge(
    "holdfast_appliance_waiting_backups",
    "backups",
    "Backups that wait on this host because the vault cannot be reached",
);

const WAITING_BYTES: Described = gauge(
    "holdfast_appliance_waiting_bytes",
    "bytes",
    "Their bytes; `restore.waiting_limit` says how many there may be",
);

/// Every metric of the appliance.
pub(crate) const METRICS: [Described; 21] = [
    LAST_BACKUP,
    RPO,
    RTO,
    LAST_DRILL,
    LAST_PROVEN,
    MISSED,
    WANTED,
    EVIDENCE,
    BACKUPS,
    REVISION,
    PROBLEMS,
    ALARM,
    TRASH,
    RUNS,
    ACTIVE,
    COPY_BEHIND,
    COPY_FAILING,
    COPY_SINCE,
    COPY_NEWEST,
    WAITING,
    WAITING_BYTES,
];

/// The part of the reference page that is about them.
pub(crate) fn reference() -> String {
    let head = "\n## The appliance\n\nOn `/metrics` of `appliance.admin.listen`. Figures about backups \
                and drills come from the vault, not from what the process believes; a figure that has \
                no evidence is `NaN`, and its objective counts as missed. Ages are left to the scraper, \
                so that they grow while nothing answers.\n\n\
                | question | figure | is it kept |\n|---|---|---|\n\
                | how much would be lost now | `time() - holdfast_appliance_backup_timestamp_seconds` | \
                `holdfast_appliance_objective_missed{objective=\"rpo\"}` |\n\
                | how long would coming back take | `holdfast_appliance_rto_seconds` | \
                `holdfast_appliance_objective_missed{objective=\"rto\"}` |\n\
                | when was that last proven | `time() - holdfast_appliance_drill_timestamp_seconds` | \
                `holdfast_appliance_objective_missed{objective=\"drill\"}` |\n\n\
                | name | type | unit | labels | meaning |\n|---|---|---|---|---|\n";
    let row = |metric: &Described| {
        let suffix = if metric.kind == "counter" {
            "_total"
        } else {
            ""
        };
        format!(
            "| `{}{suffix}` | {} | {} | {} | {} |\n",
            metric.name, metric.kind, metric.unit, metric.labels, metric.help
        )
    };
    all()
        .map(|one| row(&one))
        .fold(head.to_owned(), |page, row| page + &row)
}

/// Those above and those of continuous capture.
fn all() -> impl Iterator<Item = Described> {
    METRICS.into_iter().chain(delta::METRICS)
}

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
    alarms: Family<ByAlarm, Whole>,
    trash: Family<BySource, Whole>,
    evidence: Family<BySource, Seconds>,
    missed: Family<ByObjective, Whole>,
    wanted: Family<ByObjective, Seconds>,
    runs: Family<ByJob, Counter>,
    active: Whole,
    waiting: Family<BySource, Whole>,
    waiting_bytes: Family<BySource, Whole>,
    copies: Copies,
    delta: DeltaMetrics,
}

/// How each copy stands.
#[derive(Debug, Default)]
struct Copies {
    behind: Family<ByCopy, Seconds>,
    failing: Family<ByCopy, Whole>,
    since: Family<ByCopy, Seconds>,
    newest: Family<ByCopy, Seconds>,
}

impl Copies {
    fn register(&self, to: &mut Registry) {
        to.register(COPY_BEHIND.name, COPY_BEHIND.help, self.behind.clone());
        to.register(COPY_FAILING.name, COPY_FAILING.help, self.failing.clone());
        to.register(COPY_SINCE.name, COPY_SINCE.help, self.since.clone());
        to.register(COPY_NEWEST.name, COPY_NEWEST.help, self.newest.clone());
    }

    fn set(&self, source: &str, copy: &CopyStatus) {
        let label = || ByCopy {
            source: source.to_owned(),
            vault: copy.vault.clone(),
        };
        let standing = copy.standing.as_ref();
        let lacking = standing.map(|one| one.behind.saturating_add(one.deltas_behind));
        let lacking = lacking.map(|count| f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
        let time = |at: Option<chrono::DateTime<chrono::Utc>>| at.map_or(f64::NAN, seconds_of);
        let is_failing = i64::from(copy.state == CopyState::Failing);
        self.behind
            .get_or_create(&label())
            .set(lacking.unwrap_or(f64::NAN));
        self.failing.get_or_create(&label()).set(is_failing);
        self.since.get_or_create(&label()).set(time(copy.since));
        let newest = standing.and_then(|one| one.newest);
        self.newest.get_or_create(&label()).set(time(newest));
    }
}

impl Metrics {
    fn register(&self, to: &mut Registry) {
        to.register(LAST_BACKUP.name, LAST_BACKUP.help, self.last_backup.clone());
        to.register(RPO.name, RPO.help, self.rpo.clone());
        to.register(RTO.name, RTO.help, self.rto.clone());
        to.register(LAST_DRILL.name, LAST_DRILL.help, self.last_drill.clone());
        to.register(LAST_PROVEN.name, LAST_PROVEN.help, self.last_proven.clone());
        to.register(MISSED.name, MISSED.help, self.missed.clone());
        to.register(WANTED.name, WANTED.help, self.wanted.clone());
        to.register(EVIDENCE.name, EVIDENCE.help, self.evidence.clone());
        to.register(BACKUPS.name, BACKUPS.help, self.backups.clone());
        to.register(REVISION.name, REVISION.help, self.revision.clone());
        to.register(PROBLEMS.name, PROBLEMS.help, self.problems.clone());
        to.register(ALARM.name, ALARM.help, self.alarms.clone());
        to.register(TRASH.name, TRASH.help, self.trash.clone());
        to.register(RUNS.name, RUNS.help, self.runs.clone());
        to.register(ACTIVE.name, ACTIVE.help, self.active.clone());
        to.register(WAITING.name, WAITING.help, self.waiting.clone());
        let bytes = self.waiting_bytes.clone();
        to.register(WAITING_BYTES.name, WAITING_BYTES.help, bytes);
        self.copies.register(to);
        self.delta.register(to);
    }

    fn set_source(&self, status: &SourceStatus) {
        self.delta.set_source(status);
        let label = || BySource {
            source: status.source.clone(),
        };
        self.set_waiting(status);
        for copy in &status.copies {
            self.copies.set(&status.source, copy);
        }
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
            (&self.evidence, status.read),
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
        self.trash.get_or_create(&label()).set(count(status.trash));
        self.set_alarms(status);
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
            self.wanted
                .get_or_create(&label)
                .set(span(judgement.objective));
        }
    }

    fn set_alarms(&self, status: &SourceStatus) {
        for name in AlarmName::ALL {
            let label = ByAlarm {
                source: status.source.clone(),
                alarm: name.text(),
            };
            let is_on = status.alarms.iter().any(|one| one.name == name);
            self.alarms.get_or_create(&label).set(i64::from(is_on));
        }
    }

    fn set_waiting(&self, status: &SourceStatus) {
        let label = BySource {
            source: status.source.clone(),
        };
        let waiting = status.waiting.clone().unwrap_or_default();
        let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let backups = u64::try_from(waiting.backups).unwrap_or(u64::MAX);
        self.waiting.get_or_create(&label).set(whole(backups));
        let bytes = whole(waiting.bytes);
        self.waiting_bytes.get_or_create(&label).set(bytes);
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
    tallies: &[(String, Tally)],
    turn: &Turn,
) -> Result<String, fmt::Error> {
    let metrics = Metrics::default();
    metrics.active.set(i64::from(turn.is_active()));
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    for status in evidence {
        metrics.set_source(status);
    }
    for (name, state) in jobs {
        metrics.set_job(name, state);
    }
    for (source, tally) in tallies {
        metrics.delta.set_tally(source, tally);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_registered_is_what_is_described() {
        let metrics = Metrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let source = || BySource {
            source: "s".to_owned(),
        };
        let objective = ByObjective {
            source: "s".to_owned(),
            objective: "rpo",
        };
        let job = ByJob {
            job: "drill",
            source: "s".to_owned(),
            succeeded: "true",
        };
        let seconds = [&metrics.rpo, &metrics.rto, &metrics.last_backup];
        let more = [&metrics.last_proven, &metrics.last_drill, &metrics.evidence];
        for family in seconds.into_iter().chain(more) {
            family.get_or_create(&source()).set(1.5);
        }
        let alarm = ByAlarm {
            source: "s".to_owned(),
            alarm: "prune_failed",
        };
        metrics.alarms.get_or_create(&alarm).set(1);
        let waiting = [&metrics.waiting, &metrics.waiting_bytes, &metrics.trash];
        let whole = [&metrics.backups, &metrics.revision, &metrics.problems];
        for family in whole.into_iter().chain(waiting) {
            family.get_or_create(&source()).set(1);
        }
        metrics.copies.set("s", &CopyStatus::unknown("offsite"));
        metrics.missed.get_or_create(&objective).set(1);
        metrics.wanted.get_or_create(&objective).set(1.5);
        metrics.runs.get_or_create(&job).inc();
        metrics.delta.touch();
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        let told: BTreeSet<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .collect();
        let described: Vec<String> = all()
            .map(|one| format!("{} {}", one.name, one.kind))
            .collect();
        assert_eq!(told, described.iter().map(String::as_str).collect());
        for metric in all() {
            assert!(reference().contains(metric.name), "{}", metric.name);
        }
    }
}
