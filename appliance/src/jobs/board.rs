//! What each job of this process did last and does next, for the status page and the metrics.
//!
//! It is not evidence: whether backups exist is read from the vault, never from here.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use serde::Serialize;

/// The last run and the next one of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct JobState {
    /// When the run in progress began.
    pub(crate) running_since: Option<DateTime<Utc>>,
    /// When the last run ended.
    pub(crate) last_end: Option<DateTime<Utc>>,
    /// What the last run came to.
    pub(crate) last_outcome: Option<String>,
    /// Whether the last run did what it should; `None` before the first.
    pub(crate) is_last_good: Option<bool>,
    /// Since when every run failed; `None` where the last one did not.
    pub(crate) failing_since: Option<DateTime<Utc>>,
    /// When the next run is planned.
    pub(crate) next: Option<DateTime<Utc>>,
    /// Runs that did what they should since the start of this process.
    pub(crate) good_runs: u64,
    /// Runs that did not.
    pub(crate) failed_runs: u64,
}

/// A job's name: what it does, for which source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobName {
    /// `backup`, `drill`, `copy` or `check`.
    pub(crate) kind: &'static str,
    /// The source; for a copy `SOURCE/VAULT`, for a check the vault.
    pub(crate) source: String,
}

/// Jobs whose last run failed, by their label: since when, and what the last one came to.
pub(crate) type Failing = BTreeMap<String, (DateTime<Utc>, String)>;

/// A job in one word.
pub(crate) fn label(kind: &str, source: &str) -> String {
    format!("{kind}/{source}")
}

/// All jobs of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board(Arc<Mutex<BTreeMap<JobName, JobState>>>);

impl Board {
    /// The place of one job, made at its first mention.
    pub(crate) fn entry(&self, kind: &'static str, source: &str) -> Entry {
        let name = JobName {
            kind,
            source: source.to_owned(),
        };
        self.0.lock().entry(name.clone()).or_default();
        Entry {
            board: self.clone(),
            label: label(kind, source),
            name,
        }
    }

    /// Jobs whose last run failed.
    pub(crate) fn failing(&self) -> Failing {
        let jobs = self.0.lock();
        let failing = jobs.iter().filter_map(|(name, state)| {
            let label = label(name.kind, &name.source);
            Some((label, (state.failing_since?, state.last_outcome.clone()?)))
        });
        failing.collect()
    }

    /// Every job as it stands.
    pub(crate) fn snapshot(&self) -> Vec<(JobName, JobState)> {
        self.0
            .lock()
            .iter()
            .map(|(name, state)| (name.clone(), state.clone()))
            .collect()
    }
}

/// The place of one job on the board.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    board: Board,
    name: JobName,
    label: String,
}

impl Entry {
    /// The job in one word for log lines.
    pub(crate) fn name(&self) -> &str {
        &self.label
    }

    /// The next run is planned for `next`.
    pub(crate) fn plan(&self, next: Option<DateTime<Utc>>) {
        self.change(|state| state.next = next);
    }

    /// The job is another daemon's now: a run in progress was dropped, none is planned.
    pub(crate) fn stand_by(&self) {
        self.change(|state| {
            state.running_since = None;
            state.next = None;
        });
    }

    /// A run began.
    pub(crate) fn begin(&self, at: DateTime<Utc>) {
        self.change(|state| state.running_since = Some(at));
    }

    /// The run in progress ended.
    pub(crate) fn end(&self, at: DateTime<Utc>, summary: Result<String, String>) {
        self.change(|state| {
            state.running_since = None;
            state.last_end = Some(at);
            state.is_last_good = Some(summary.is_ok());
            state.failing_since = match summary {
                Ok(_) => None,
                Err(_) => state.failing_since.or(Some(at)),
            };
            let count = if summary.is_ok() {
                &mut state.good_runs
            } else {
                &mut state.failed_runs
            };
            *count = count.saturating_add(1);
            state.last_outcome = Some(summary.unwrap_or_else(|failed| failed));
        });
    }

    fn change(&self, change: impl FnOnce(&mut JobState)) {
        if let Some(state) = self.board.0.lock().get_mut(&self.name) {
            change(state);
        }
    }
}
