//! The leader's clock over the leases: when each expires. Never read by `apply`.
//!
//! A leader that no quorum answered for a while may go on in the same term: `promote` is called
//! again. A revocation that it decided before stays decided, for it may be in the log.
//!
//! Time is an argument (`tokio::time::Instant`), so tests need no waiting. A member that does not
//! lead keeps no expiry: `promote` starts all leases anew, each with its time left at the last
//! checkpoint plus the extension (an election timeout); `demote` forgets them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::Error;
use crate::failpoint::{self, Point};

use super::{LeaseChange, LeaseId, LeaseInfo};

/// Longest time a clock counts: adding more to an instant could overflow.
const COUNTED_MAX: Duration = Duration::from_hours(100 * 365 * 24);

/// How the clock works; etcd's values by default.
#[derive(Debug, Clone)]
pub struct LeaseClockOptions {
    /// Smallest time to live that is granted: three half election timeouts, in whole seconds.
    pub ttl_min_s: i64,
    /// How often the time left of a long lease is recorded.
    pub checkpoint_interval: Duration,
    /// How long a due lease waits before it is reported again, should its revocation get lost.
    pub retry_interval: Duration,
}

impl Default for LeaseClockOptions {
    fn default() -> Self {
        Self {
            ttl_min_s: 2,
            checkpoint_interval: Duration::from_mins(5),
            retry_interval: Duration::from_secs(3),
        }
    }
}

/// Expiry times of all leases, on the leader.
#[derive(Debug)]
pub struct LeaseClock {
    options: LeaseClockOptions,
    primary: Mutex<Option<Primary>>,
    /// Locked after `primary`.
    decided: Mutex<Decided>,
}

/// The revocations that this member decided in its last term as the leader, and that may be in the
/// log without being applied.
#[derive(Debug, Default)]
struct Decided {
    term: u64,
    leases: BTreeSet<LeaseId>,
}

#[derive(Debug, Clone, Copy)]
struct Timing {
    granted: Duration,
    granted_s: i64,
    has_checkpoint: bool,
    expiry: Instant,
    /// When it is looked at next; after the expiry once it was reported.
    look: Instant,
    checkpoint: Option<Instant>,
}

#[derive(Debug, Default)]
struct Primary {
    /// The term that this member leads in.
    term: u64,
    timings: BTreeMap<LeaseId, Timing>,
    by_look: BTreeSet<(Instant, LeaseId)>,
    by_checkpoint: BTreeSet<(Instant, LeaseId)>,
}

impl Primary {
    fn set(&mut self, id: LeaseId, timing: Timing) {
        self.forget(id);
        self.by_look.insert((timing.look, id));
        if let Some(checkpoint) = timing.checkpoint {
            self.by_checkpoint.insert((checkpoint, id));
        }
        self.timings.insert(id, timing);
    }

    fn forget(&mut self, id: LeaseId) -> Option<Timing> {
        let timing = self.timings.remove(&id)?;
        self.by_look.remove(&(timing.look, id));
        if let Some(checkpoint) = timing.checkpoint {
            self.by_checkpoint.remove(&(checkpoint, id));
        }
        Some(timing)
    }
}

impl LeaseClock {
    /// A clock of a member that does not lead yet.
    pub fn new(options: LeaseClockOptions) -> Self {
        Self {
            options,
            primary: Mutex::new(None),
            decided: Mutex::default(),
        }
    }

    /// The time to live that is granted for a wish of `ttl_s`; the proposer puts it into the
    /// command.
    pub fn granted_ttl_s(&self, ttl_s: i64) -> i64 {
        ttl_s.max(self.options.ttl_min_s)
    }

    /// This member leads now, in `term`: every lease gets its time left plus `extend`, but for those
    /// whose revocation it decided in this same term.
    ///
    /// `leases` are asked for while no change can be observed, so that none falls in between.
    pub fn promote(
        &self,
        term: u64,
        now: Instant,
        extend: Duration,
        leases: impl FnOnce() -> Vec<LeaseInfo>,
    ) {
        let mut guard = self.primary.lock();
        let mut primary = Primary {
            term,
            ..Primary::default()
        };
        let mut decided = self.decided.lock();
        if decided.term != term {
            *decided = Decided {
                term,
                leases: BTreeSet::new(),
            };
        }
        for lease in leases() {
            let is_forgotten = failpoint::is_on(Point::BugLeaseCheckpointLost);
            let left_s = if lease.checkpoint_ttl_s > 0 && !is_forgotten {
                lease.checkpoint_ttl_s
            } else {
                lease.granted_ttl_s
            };
            let mut timing = self.timing(lease.granted_ttl_s, seconds(left_s), extend, now);
            timing.has_checkpoint = lease.checkpoint_ttl_s > 0;
            if decided.leases.contains(&lease.id) {
                (timing.expiry, timing.look, timing.checkpoint) = (now, now, None);
            }
            primary.set(lease.id, timing);
        }
        *guard = Some(primary);
    }

    fn timing(&self, granted_s: i64, left: Duration, extend: Duration, now: Instant) -> Timing {
        let expiry = now + left.saturating_add(extend).min(COUNTED_MAX);
        let interval = self.options.checkpoint_interval;
        Timing {
            granted: seconds(granted_s),
            granted_s,
            has_checkpoint: false,
            expiry,
            look: expiry,
            checkpoint: (left > interval).then(|| now + interval),
        }
    }

    /// This member does not lead any more.
    pub fn demote(&self) {
        *self.primary.lock() = None;
    }

    /// The term whose leases are timed here. In a later one somebody else may have renewed them:
    /// what this clock says holds for this term only.
    pub fn term(&self) -> Option<u64> {
        self.primary.lock().as_ref().map(|primary| primary.term)
    }

    /// Follows a change of the replicated state; wire it to `EventSink::lease_changed`.
    pub fn observe(&self, change: LeaseChange, now: Instant) {
        let mut guard = self.primary.lock();
        if let LeaseChange::Revoked { id } = change {
            self.decided.lock().leases.remove(&id);
        }
        let Some(primary) = guard.as_mut() else {
            return;
        };
        match change {
            LeaseChange::Granted { id, ttl_s } => {
                primary.set(id, self.timing(ttl_s, seconds(ttl_s), Duration::ZERO, now));
            }
            LeaseChange::Revoked { id } => {
                primary.forget(id);
            }
            LeaseChange::Checkpointed { id, remaining_s } => {
                if let Some(mut timing) = primary.forget(id) {
                    timing.has_checkpoint = remaining_s > 0;
                    let left = timing.expiry.saturating_duration_since(now);
                    let interval = self.options.checkpoint_interval;
                    timing.checkpoint = (left > interval).then(|| now + interval);
                    primary.set(id, timing);
                }
            }
            LeaseChange::Replaced => *guard = None,
        }
    }

    /// Starts the lease's time anew and answers its granted time to live, in seconds.
    ///
    /// `NotLeader` on a member that does not lead, `LeaseNotFound` for a lease that is unknown or
    /// due. Whether its recorded checkpoint must be cleared first: [`LeaseClock::has_checkpoint`].
    pub fn renew(&self, id: LeaseId, now: Instant) -> Result<i64, Error> {
        let mut guard = self.primary.lock();
        let primary = guard.as_mut().ok_or(Error::NotLeader)?;
        let timing = primary
            .timings
            .get(&id)
            .copied()
            .ok_or(Error::LeaseNotFound)?;
        if timing.expiry <= now && !failpoint::is_on(Point::BugLeaseRenewedAfterExpiry) {
            return Err(Error::LeaseNotFound);
        }
        let mut renewed = self.timing(timing.granted_s, timing.granted, Duration::ZERO, now);
        renewed.has_checkpoint = timing.has_checkpoint;
        primary.set(id, renewed);
        Ok(timing.granted_s)
    }

    /// Whether a renewal of this lease has to clear its recorded time left (propose a checkpoint
    /// of 0) before [`LeaseClock::renew`].
    pub fn has_checkpoint(&self, id: LeaseId) -> bool {
        let guard = self.primary.lock();
        guard
            .as_ref()
            .and_then(|primary| primary.timings.get(&id))
            .is_some_and(|timing| timing.has_checkpoint)
    }

    /// Time left; zero when due; `None` for an unknown lease or on a member that does not lead.
    pub fn remaining(&self, id: LeaseId, now: Instant) -> Option<Duration> {
        let guard = self.primary.lock();
        let timing = guard.as_ref()?.timings.get(&id)?;
        Some(timing.expiry.saturating_duration_since(now))
    }

    /// Leases whose time is over, at most `limit`; each is reported again after the retry interval
    /// as long as it is not revoked.
    pub fn due(&self, now: Instant, limit: usize) -> Vec<LeaseId> {
        let mut guard = self.primary.lock();
        let Some(primary) = guard.as_mut() else {
            return Vec::new();
        };
        let due: Vec<LeaseId> = primary
            .by_look
            .iter()
            .take_while(|(look, _)| *look <= now)
            .take(limit)
            .map(|&(_, id)| id)
            .collect();
        for &id in &due {
            if let Some(mut timing) = primary.forget(id) {
                timing.look = now + self.options.retry_interval;
                primary.set(id, timing);
            }
        }
        due
    }

    /// Those of `leases` that are to be revoked now, as this leader of `term` has decided: their time
    /// is over, also when it was started anew in the same term since they were reported. Nothing
    /// gives them more time in this term.
    pub fn decide(&self, term: u64, leases: &[LeaseId], now: Instant) -> Vec<LeaseId> {
        let guard = self.primary.lock();
        let Some(primary) = guard.as_ref().filter(|primary| primary.term == term) else {
            return Vec::new();
        };
        let is_over = |id: &&LeaseId| {
            let timing = primary.timings.get(id);
            timing.is_some_and(|timing| timing.expiry <= now)
        };
        let over: Vec<LeaseId> = leases.iter().filter(is_over).copied().collect();
        let mut decided = self.decided.lock();
        decided.leases.extend(&over);
        over
    }

    /// Leases whose time left is to be recorded now, with that time in seconds, at most `limit`.
    pub fn checkpoints_due(&self, now: Instant, limit: usize) -> Vec<(LeaseId, i64)> {
        let mut guard = self.primary.lock();
        let Some(primary) = guard.as_mut() else {
            return Vec::new();
        };
        let due: Vec<LeaseId> = primary
            .by_checkpoint
            .iter()
            .take_while(|(checkpoint, _)| *checkpoint <= now)
            .take(limit)
            .map(|&(_, id)| id)
            .collect();
        let mut checkpoints = Vec::with_capacity(due.len());
        for id in due {
            let Some(mut timing) = primary.forget(id) else {
                continue;
            };
            timing.checkpoint = None;
            primary.set(id, timing);
            let left = timing.expiry.saturating_duration_since(now);
            let whole = left.as_secs() + u64::from(left.subsec_nanos() > 0);
            let left_s = i64::try_from(whole).unwrap_or(i64::MAX);
            if left_s > 0 && left_s < timing.granted_s {
                checkpoints.push((id, left_s));
            }
        }
        checkpoints
    }
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(COUNTED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(id: i64, granted_ttl_s: i64, checkpoint_ttl_s: i64) -> LeaseInfo {
        LeaseInfo {
            id: LeaseId(id),
            granted_ttl_s,
            checkpoint_ttl_s,
            keys: Vec::new(),
        }
    }

    fn after(now: Instant, seconds: u64) -> Instant {
        now + Duration::from_secs(seconds)
    }

    fn leader(now: Instant, leases: &[LeaseInfo]) -> LeaseClock {
        let clock = LeaseClock::new(LeaseClockOptions::default());
        clock.promote(1, now, Duration::ZERO, || leases.to_vec());
        clock
    }

    #[test]
    fn a_lease_is_due_when_its_time_is_over_and_again_until_it_is_revoked() {
        let now = Instant::now();
        let clock = leader(now, &[info(1, 10, 0), info(2, 20, 0)]);
        assert!(clock.due(after(now, 9), 10).is_empty());
        assert_eq!(clock.due(after(now, 10), 10), [LeaseId(1)]);
        assert!(clock.due(after(now, 12), 10).is_empty());
        assert_eq!(clock.due(after(now, 13), 10), [LeaseId(1)]);
        clock.observe(LeaseChange::Revoked { id: LeaseId(1) }, after(now, 13));
        assert!(clock.due(after(now, 19), 10).is_empty());
        assert_eq!(clock.due(after(now, 99), 10), [LeaseId(2)]);
    }

    #[test]
    fn a_renewal_starts_the_time_anew_but_a_due_lease_is_gone() {
        let now = Instant::now();
        let clock = leader(now, &[info(1, 10, 0)]);
        assert_eq!(clock.renew(LeaseId(1), after(now, 9)).unwrap(), 10);
        assert!(clock.due(after(now, 18), 10).is_empty());
        assert_eq!(
            clock.remaining(LeaseId(1), after(now, 18)),
            Some(Duration::from_secs(1))
        );
        assert!(matches!(
            clock.renew(LeaseId(1), after(now, 19)),
            Err(Error::LeaseNotFound)
        ));
        assert!(matches!(
            clock.renew(LeaseId(2), now),
            Err(Error::LeaseNotFound)
        ));
        clock.demote();
        assert!(matches!(
            clock.renew(LeaseId(1), now),
            Err(Error::NotLeader)
        ));
        assert_eq!(clock.remaining(LeaseId(1), now), None);
    }

    #[test]
    fn a_new_leader_goes_on_from_the_checkpoint() {
        let now = Instant::now();
        let clock = LeaseClock::new(LeaseClockOptions::default());
        assert_eq!(clock.term(), None);
        clock.promote(7, now, Duration::from_secs(1), || {
            vec![info(1, 1000, 400), info(2, 1000, 0)]
        });
        assert_eq!(clock.term(), Some(7));
        assert_eq!(
            clock.remaining(LeaseId(1), now),
            Some(Duration::from_secs(401))
        );
        assert_eq!(
            clock.remaining(LeaseId(2), now),
            Some(Duration::from_secs(1001))
        );
        assert!(clock.has_checkpoint(LeaseId(1)) && !clock.has_checkpoint(LeaseId(2)));
    }

    #[test]
    fn the_time_left_of_a_long_lease_is_recorded_at_each_interval() {
        let now = Instant::now();
        let clock = leader(now, &[info(1, 1000, 0), info(2, 100, 0)]);
        assert!(clock.checkpoints_due(after(now, 299), 10).is_empty());
        assert_eq!(
            clock.checkpoints_due(after(now, 300), 10),
            [(LeaseId(1), 700)]
        );
        assert!(clock.checkpoints_due(after(now, 700), 10).is_empty());
        let change = LeaseChange::Checkpointed {
            id: LeaseId(1),
            remaining_s: 700,
        };
        clock.observe(change, after(now, 300));
        assert!(clock.has_checkpoint(LeaseId(1)));
        assert_eq!(
            clock.checkpoints_due(after(now, 600), 10),
            [(LeaseId(1), 400)]
        );
    }

    #[test]
    fn a_leader_that_goes_on_in_its_term_gives_no_time_to_a_lease_it_decided_to_revoke() {
        let now = Instant::now();
        let leases = [info(1, 10, 0), info(2, 10, 0)];
        let clock = leader(now, &leases);
        let later = after(now, 10);
        assert_eq!(clock.due(later, 10), [LeaseId(1), LeaseId(2)]);
        assert_eq!(clock.decide(1, &[LeaseId(1)], later), [LeaseId(1)]);
        clock.demote();
        clock.promote(1, after(now, 12), Duration::ZERO, || leases.to_vec());
        let renewed = clock.renew(LeaseId(1), after(now, 13));
        assert!(matches!(renewed, Err(Error::LeaseNotFound)));
        assert_eq!(clock.due(after(now, 13), 10), [LeaseId(1)]);
        // The other was reported, but nothing was decided: it has its whole time again.
        assert_eq!(clock.renew(LeaseId(2), after(now, 13)).unwrap(), 10);
        assert!(clock.decide(1, &[LeaseId(2)], after(now, 14)).is_empty());

        clock.demote();
        clock.observe(LeaseChange::Revoked { id: LeaseId(1) }, after(now, 14));
        clock.promote(1, after(now, 15), Duration::ZERO, || leases.to_vec());
        assert_eq!(
            clock.renew(LeaseId(1), after(now, 16)).unwrap(),
            10,
            "granted anew"
        );
    }

    #[test]
    fn what_was_decided_in_another_term_binds_no_new_leader() {
        let now = Instant::now();
        let leases = [info(1, 10, 0)];
        let clock = leader(now, &leases);
        let later = after(now, 10);
        assert!(clock.decide(2, &[LeaseId(1)], later).is_empty());
        assert_eq!(clock.decide(1, &[LeaseId(1)], later), [LeaseId(1)]);
        clock.demote();
        assert!(clock.decide(1, &[LeaseId(1)], later).is_empty());
        clock.promote(2, after(now, 12), Duration::ZERO, || leases.to_vec());
        assert_eq!(clock.renew(LeaseId(1), after(now, 13)).unwrap(), 10);
    }

    #[test]
    fn the_longest_lease_does_not_overflow() {
        let now = Instant::now();
        let clock = leader(now, &[info(1, super::super::TTL_MAX_S, 0), info(2, -5, 0)]);
        assert_eq!(clock.due(now, 10), [LeaseId(2)]);
        assert!(clock.remaining(LeaseId(1), now).unwrap() > Duration::from_hours(24 * 365));
    }
}
