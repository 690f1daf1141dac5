//! Whether a scheduled job runs now.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::{Rule, Schedule};

/// What becomes of runs that fell due while nothing could run them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissedRun {
    /// They are forgotten; the next regular run is the next run.
    Skip,
    /// One run makes up for all of them, as soon as possible.
    #[default]
    Once,
}

/// A run that begins up to this much after its time is on time, not made up for.
pub const LATE_MAX: TimeDelta = TimeDelta::seconds(60);

/// Missed runs are counted up to here.
pub const MISSED_COUNT_MAX: u32 = 1000;

/// What the scheduler remembers of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunState {
    /// When the schedule came into force; nothing was due before.
    pub since: DateTime<Utc>,
    /// When the last run began, if one ever did.
    pub last_start: Option<DateTime<Utc>>,
    /// When the run in progress began.
    pub running_since: Option<DateTime<Utc>>,
}

/// A run that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The time it was planned for.
    pub at: DateTime<Utc>,
    /// Earlier runs that never happened, counted up to [`MISSED_COUNT_MAX`].
    pub missed: u32,
}

/// The scheduler's next step for one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunDecision {
    /// Begin a run now.
    Run(Due),
    /// Nothing is due before `until`; `None` when nothing ever is.
    Wait {
        /// The next run.
        until: Option<DateTime<Utc>>,
        /// Runs that were missed and are not made up for.
        skipped: u32,
    },
    /// A run is in progress: a job never overlaps itself.
    Busy {
        /// When that run began.
        since: DateTime<Utc>,
    },
}

impl Schedule {
    /// Decides for a job at `now`.
    pub fn decide(&self, policy: MissedRun, state: &RunState, now: DateTime<Utc>) -> RunDecision {
        if let Some(since) = state.running_since {
            return RunDecision::Busy { since };
        }
        // A clock set back must not silence the job until it has caught up.
        let base = state.last_start.unwrap_or(state.since).min(now);
        let Some(due) = self.latest_due(base, now) else {
            return RunDecision::Wait {
                until: self.next_after(base),
                skipped: 0,
            };
        };
        let is_on_time = now - due.at <= LATE_MAX;
        match policy {
            _ if is_on_time => RunDecision::Run(due),
            MissedRun::Once => RunDecision::Run(due),
            MissedRun::Skip => {
                let skipped = due.missed.saturating_add(1).min(MISSED_COUNT_MAX);
                RunDecision::Wait {
                    until: self.next_from_grid(due.at, now),
                    skipped,
                }
            }
        }
    }

    /// The latest run after `base` and not after `now`, with the number of those before it.
    fn latest_due(&self, base: DateTime<Utc>, now: DateTime<Utc>) -> Option<Due> {
        let first = self.next_after(base).filter(|first| *first <= now)?;
        if let Rule::Every(period) = &self.rule {
            let periods = (now - first).num_milliseconds() / period.num_milliseconds().max(1);
            let elapsed = i32::try_from(periods)
                .ok()
                .and_then(|n| period.checked_mul(n));
            let at = elapsed
                .and_then(|elapsed| first.checked_add_signed(elapsed))
                .unwrap_or(now);
            let missed = u32::try_from(periods).unwrap_or(MISSED_COUNT_MAX);
            return Some(Due {
                at,
                missed: missed.min(MISSED_COUNT_MAX),
            });
        }
        let mut missed = 0;
        let mut at = first;
        while missed < MISSED_COUNT_MAX {
            match self.next_after(at).filter(|next| *next <= now) {
                None => return Some(Due { at, missed }),
                Some(next) => at = next,
            }
            missed += 1;
        }
        let at = self.last_before(at, now).unwrap_or(at);
        Some(Due { at, missed })
    }

    /// The last run in `(floor, now]`, found by looking back in growing steps.
    fn last_before(&self, floor: DateTime<Utc>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut window = TimeDelta::minutes(2);
        loop {
            let start = now.checked_sub_signed(window)?.max(floor);
            let mut last = None;
            let mut next = self.next_after(start).filter(|run| *run <= now);
            while let Some(run) = next {
                last = Some(run);
                next = self.next_after(run).filter(|run| *run <= now);
            }
            if last.is_some() || start == floor {
                return last;
            }
            window = window.checked_mul(2)?;
        }
    }

    /// The next run after `now`, where `@every` keeps the rhythm of `due`.
    fn next_from_grid(&self, due: DateTime<Utc>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match &self.rule {
            Rule::Every(period) => due.checked_add_signed(*period),
            Rule::Line(_) => self.next_after(now),
        }
    }
}
