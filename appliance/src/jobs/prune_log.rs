//! How the last prunes of this host went: a small file in its data directory, from which `status`,
//! the page and the metrics know of alarms also after a restart.
//!
//! It is no evidence of backups, only of what was tried.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, PruneRun, has_no_effect};
use holdfast_restore::prune::Pruned;
use holdfast_store::datadir::durable;
use serde::{Deserialize, Serialize};

use crate::alarms::{Alarm, AlarmName};
use crate::config::Settings;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::keys;

/// Runs that are remembered.
const RUNS_MAX: usize = 10;

/// Failures of one run that are remembered.
const FAILURES_MAX: usize = 10;

/// Largest file read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The last prunes of one source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PruneLog {
    /// When the last one was.
    at: Option<DateTime<Utc>>,
    /// What it could not do.
    failures: Vec<String>,
    /// Why it was refused, where clocks were the reason.
    clocks: Option<String>,
    /// What the last ones were to remove and did, oldest first.
    runs: Vec<PruneRun>,
}

impl PruneLog {
    /// What is remembered; nothing where the file is not there or not readable.
    pub(crate) fn read(settings: &Settings, cluster: &ClusterName) -> Self {
        let path = path(settings, cluster);
        let is_small = std::fs::metadata(&path).is_ok_and(|found| found.len() <= FILE_BYTES_MAX);
        let bytes = is_small.then(|| std::fs::read(&path).ok()).flatten();
        bytes
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    /// Remembers a run that was carried out: how many backups were due, and how many of them are
    /// gone.
    pub(crate) fn note(&mut self, at: DateTime<Utc>, pruned: &Pruned, (due, gone): (usize, usize)) {
        self.at = Some(at);
        self.clocks = None;
        let refused = pruned
            .refused
            .iter()
            .map(|(id, why)| format!("{id}: {why}"));
        let left = pruned.left.iter().cloned();
        self.failures = refused.chain(left).take(FAILURES_MAX).collect();
        self.runs.push(PruneRun { at, due, gone });
        let surplus = self.runs.len().saturating_sub(RUNS_MAX);
        self.runs.drain(..surplus);
    }

    /// Remembers one that was not.
    pub(crate) fn note_failure(&mut self, at: DateTime<Utc>, failure: &Failure) {
        self.at = Some(at);
        (self.failures, self.clocks) = match failure.name() {
            ErrorName::ClocksDisagree => (Vec::new(), Some(failure.line())),
            _ => (vec![failure.line()], None),
        };
    }

    /// Keeps it on this host.
    pub(crate) fn write(&self, settings: &Settings, cluster: &ClusterName) -> Result<(), Failure> {
        let path = path(settings, cluster);
        let what = || format!("{} was not written", path.display());
        if let Some(dir) = path.parent() {
            keys::make_private_dir(dir)?;
        }
        let bytes =
            serde_json::to_vec_pretty(self).map_err(|error| Failure::unexpected(what(), &error))?;
        durable::write_file(&path, &bytes).or_fail(what())
    }

    /// What somebody should be told.
    pub(crate) fn alarms(&self) -> Vec<Alarm> {
        let mut alarms = Vec::new();
        if let Some(reason) = &self.clocks {
            alarms.push(Alarm::new(AlarmName::ClockDisagreement, reason.clone()));
        }
        if let Some(first) = self.failures.first() {
            let more = match self.failures.len() {
                1 => String::new(),
                count => format!(" (and {} more)", count - 1),
            };
            let text = format!("{first}{more}; the next prune tries again");
            alarms.push(Alarm::new(AlarmName::PruneFailed, text));
        }
        if has_no_effect(&self.runs) {
            let text = "the rules let backups go and none of them has left the vault in the last \
                        prunes: see what `holdfast backup prune` says, the permission to delete, \
                        object locks and versions of the bucket"
                .to_owned();
            alarms.push(Alarm::new(AlarmName::RetentionNoEffect, text));
        }
        alarms
    }
}

fn path(settings: &Settings, cluster: &ClusterName) -> PathBuf {
    settings
        .data_dir()
        .join("retention")
        .join(format!("{cluster}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(log: &PruneLog) -> Vec<AlarmName> {
        log.alarms().iter().map(|alarm| alarm.name).collect()
    }

    fn refused() -> Pruned {
        let id = "01980f3e-0000-7000-8000-000000000000".parse().unwrap();
        Pruned {
            refused: vec![(
                id,
                "cannot remove clusters/a/manifests/1.json: 403".to_owned(),
            )],
            ..Pruned::default()
        }
    }

    #[test]
    fn a_denied_removal_is_an_alarm_that_names_its_object_until_a_run_goes_well() {
        let (at, mut log) = (DateTime::UNIX_EPOCH, PruneLog::default());
        assert_eq!(names(&log), []);
        for _ in 0..2 {
            log.note(at, &refused(), (1, 0));
            assert_eq!(names(&log), [AlarmName::PruneFailed]);
        }
        assert!(log.alarms()[0].text.contains("manifests/1.json: 403"));
        log.note(at, &refused(), (1, 0));
        assert_eq!(
            names(&log),
            [AlarmName::PruneFailed, AlarmName::RetentionNoEffect]
        );
        log.note(at, &Pruned::default(), (1, 1));
        assert_eq!(names(&log), []);
    }

    #[test]
    fn a_refusal_about_clocks_is_an_alarm_of_its_own() {
        let mut log = PruneLog::default();
        let failure = Failure::new(ErrorName::ClocksDisagree, "clocks disagree");
        log.note_failure(DateTime::UNIX_EPOCH, &failure);
        assert_eq!(names(&log), [AlarmName::ClockDisagreement]);
        let other = Failure::new(ErrorName::Unavailable, "no answer");
        log.note_failure(DateTime::UNIX_EPOCH, &other);
        assert_eq!(names(&log), [AlarmName::PruneFailed]);
    }

    #[test]
    fn the_log_is_bounded() {
        let mut log = PruneLog::default();
        for _ in 0..50 {
            log.note(DateTime::UNIX_EPOCH, &Pruned::default(), (0, 0));
        }
        assert_eq!(log.runs.len(), RUNS_MAX);
    }
}
