//! Compaction without being asked, in etcd's two modes.

use std::collections::VecDeque;
use std::time::Duration;

use holdfast_proto::etcd::rpc;
use tokio::time::{Instant, sleep};

use super::AutoCompaction;
use super::handle::Member;
use crate::command::Request;
use crate::error::Error;

/// Revision mode looks this often.
const REVISION_INTERVAL: Duration = Duration::from_mins(5);
/// Periodic mode looks ten times in a period, or in an hour when the period is longer.
const LOOKS: u32 = 10;
const PERIOD_STEP_MAX: Duration = Duration::from_hours(1);

pub(super) async fn run(member: Member) {
    match member.inner.options.auto_compaction {
        AutoCompaction::Off => {}
        AutoCompaction::Periodic(period) if period.is_zero() => {}
        AutoCompaction::Periodic(period) => {
            let mut periodic = Periodic::new(period, Instant::now());
            loop {
                periodic.observe(member.inner.state.revision());
                sleep(periodic.interval()).await;
                if let Some(revision) = periodic.due(Instant::now())
                    && compact(&member, revision).await
                {
                    periodic.compacted(revision, Instant::now());
                }
            }
        }
        AutoCompaction::Revision(keep) => {
            let mut last = 0;
            loop {
                sleep(REVISION_INTERVAL).await;
                let revision = member.inner.state.revision().saturating_sub(keep);
                if revision > 0 && revision != last && compact(&member, revision).await {
                    last = revision;
                }
            }
        }
    }
}

/// Proposes the compaction when this member leads; whether it is done.
async fn compact(member: &Member, revision: i64) -> bool {
    if !member.is_leader() {
        return false;
    }
    let request = rpc::CompactionRequest {
        revision,
        physical: false,
    };
    match member.propose(Request::Compact(request)).await {
        Ok(_) | Err(Error::Compacted) => {
            tracing::info!(revision, "completed auto compaction");
            true
        }
        Err(error) => {
            tracing::warn!(%error, revision, "failed auto compaction");
            false
        }
    }
}

/// Remembers which revision was current when, and says which one is old enough.
#[derive(Debug)]
struct Periodic {
    period: Duration,
    /// Revisions of the last period, oldest first, one a look.
    seen: VecDeque<i64>,
    last_revision: i64,
    last_success: Instant,
    /// The first compaction waits for the whole period, later ones for an hour at most.
    is_first: bool,
}

impl Periodic {
    fn new(period: Duration, now: Instant) -> Self {
        Self {
            period,
            seen: VecDeque::new(),
            last_revision: 0,
            last_success: now,
            is_first: true,
        }
    }

    /// The time between two looks.
    fn interval(&self) -> Duration {
        (self.period.min(PERIOD_STEP_MAX) / LOOKS).max(Duration::from_millis(1))
    }

    fn observe(&mut self, revision: i64) {
        let looks = self.period.as_nanos() / self.interval().as_nanos();
        let looks_max = usize::try_from(looks)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        self.seen.push_back(revision);
        while self.seen.len() > looks_max {
            self.seen.pop_front();
        }
    }

    fn due(&mut self, now: Instant) -> Option<i64> {
        let revision = *self.seen.front()?;
        let wait = if self.is_first {
            self.period
        } else {
            self.period.min(PERIOD_STEP_MAX)
        };
        if now.duration_since(self.last_success) < wait || revision == self.last_revision {
            return None;
        }
        self.is_first = false;
        Some(revision)
    }

    fn compacted(&mut self, revision: i64, now: Instant) {
        self.last_revision = revision;
        self.last_success = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `looks` looks, one revision apart, and returns (look, revision) of each compaction.
    fn compactions(period: Duration, looks: u32) -> Vec<(u32, i64)> {
        let start = Instant::now();
        let mut periodic = Periodic::new(period, start);
        let mut done = Vec::new();
        for look in 1..=looks {
            periodic.observe(i64::from(look));
            let now = start + periodic.interval() * look;
            if let Some(revision) = periodic.due(now) {
                periodic.compacted(revision, now);
                done.push((look, revision));
            }
        }
        done
    }

    #[test]
    fn a_short_period_compacts_once_a_period_at_the_revision_of_one_period_ago() {
        let found = compactions(Duration::from_mins(10), 40);
        assert_eq!(found, [(10, 1), (20, 10), (30, 20), (40, 30)]);
    }

    #[test]
    fn a_long_period_waits_once_and_then_compacts_every_hour() {
        let found = compactions(Duration::from_hours(3), 60);
        assert_eq!(found, [(30, 1), (40, 10), (50, 20), (60, 30)]);
    }

    #[test]
    fn an_idle_store_is_not_compacted_again() {
        let start = Instant::now();
        let mut periodic = Periodic::new(Duration::from_secs(10), start);
        let mut count = 0;
        for look in 1..=100 {
            periodic.observe(7);
            let now = start + periodic.interval() * look;
            if let Some(revision) = periodic.due(now) {
                periodic.compacted(revision, now);
                count += 1;
            }
        }
        assert_eq!(count, 1);
    }
}
