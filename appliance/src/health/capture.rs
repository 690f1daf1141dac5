//! How capture stands, from what is in the vault.

use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use holdfast_policies::objective::CapturedPoint;
use holdfast_policies::{Level, PolicyOptions, Span};
use holdfast_restore::Catalog;
use holdfast_restore::delta::gap::DeltaGap;
use holdfast_restore::delta::run::Runs;
use serde::Serialize;

use super::moment;
use crate::alarms::{Alarm, AlarmName};

/// How long a gap is alarmed after it was found; it stays in the vault, and in the count.
const GAP_ALARM: TimeDelta = TimeDelta::hours(24);

/// How the capture of a source stands.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CaptureStatus {
    /// The interval that is configured; `None`: capture is off, and what is here is older.
    pub(crate) every: Option<Span>,
    /// Until when every change is in the vault; `None` when none is captured.
    pub(crate) until: Option<DateTime<Utc>>,
    /// The newest revision captured.
    pub(crate) revision: Option<i64>,
    /// How long ago that was.
    pub(crate) lag: Option<Span>,
    /// Deltas in the vault.
    pub(crate) deltas: usize,
    /// Gaps recorded in the vault.
    pub(crate) gaps: usize,
    /// The newest of them.
    pub(crate) last_gap: Option<DeltaGap>,
}

/// How far the changes after any backup at `level` go: the one that goes furthest. Pure.
pub(super) fn point(catalog: &Catalog, runs: &Runs, level: Level) -> Option<CapturedPoint> {
    let usable = catalog.backups.iter();
    let usable = usable.filter(|one| one.fact(one.observed).holds_at(level));
    let followed = usable.filter_map(|backup| runs.following(backup));
    let points = followed.map(|following| CapturedPoint {
        time: following.until,
        revision: following.to,
    });
    points.max_by_key(|point| point.time)
}

impl CaptureStatus {
    /// `None` where nothing is or was to be captured.
    pub(super) fn of(
        policies: &PolicyOptions,
        runs: &Runs,
        point: Option<CapturedPoint>,
        now: DateTime<Utc>,
    ) -> Option<Self> {
        let every = policies.capture.every();
        let deltas: usize = runs.runs.iter().map(|run| run.deltas.len()).sum();
        if every.is_none() && deltas == 0 {
            return None;
        }
        let until = point.map(|point| point.time);
        Some(Self {
            every,
            until,
            revision: point.map(|point| point.revision),
            lag: until.map(|until| since(until, now)),
            deltas,
            gaps: runs.gaps.len(),
            last_gap: runs.gaps.last().cloned(),
        })
    }

    /// The same at `now`, when the vault could not be read since.
    pub(super) fn age(&mut self, now: DateTime<Utc>) {
        self.lag = self.until.map(|until| since(until, now));
    }

    /// What is wrong with it at `now`.
    pub(super) fn alarms(
        &self,
        source: &str,
        policies: &PolicyOptions,
        now: DateTime<Utc>,
    ) -> Vec<Alarm> {
        let mut alarms = Vec::new();
        let recent = self.last_gap.iter().filter(|gap| now - gap.at < GAP_ALARM);
        alarms.extend(recent.map(|gap| Alarm {
            name: AlarmName::CaptureGap,
            text: format!(
                "changes of `{source}` between revision {} ({}) and the backup at revision {} ({}) \
                 were not captured: {}; found {}",
                gap.from,
                moment(gap.since),
                gap.to,
                moment(gap.until),
                gap.reason,
                moment(gap.at)
            ),
        }));
        let limit = policies.capture.stalled_after(policies.objective.rpo);
        if self.every.is_some() && self.lag.is_none_or(|lag| lag > limit) {
            let since = match self.until {
                Some(until) => format!("nothing of `{source}` is captured since {}", moment(until)),
                None => format!("nothing of `{source}` is captured yet"),
            };
            alarms.push(Alarm {
                name: AlarmName::CaptureStalled,
                text: format!("{since}; the daemon's log says why"),
            });
        }
        alarms
    }
}

fn since(then: DateTime<Utc>, now: DateTime<Utc>) -> Span {
    Span::from((now - then).to_std().unwrap_or_default())
}

impl fmt::Display for CaptureStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.until, self.revision, self.lag) {
            (Some(until), Some(revision), Some(lag)) => {
                let lag = Span::from_secs(lag.as_duration().as_secs());
                let until = moment(until);
                write!(f, "captured until {until} (revision {revision}), {lag} ago")?;
            }
            _ => f.write_str("nothing is captured")?,
        }
        write!(f, "; {} deltas", self.deltas)?;
        match self.every {
            Some(every) => write!(f, ", every {every}")?,
            None => f.write_str(", capture is off")?,
        }
        match self.gaps {
            0 => Ok(()),
            gaps => write!(f, ", {gaps} gaps"),
        }
    }
}
