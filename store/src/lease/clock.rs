//! The leader's clock over the leases: when each expires. Never read by `apply`.
//!
//! Time is an argument (`tokio::time::Instant`), so tests need no waiting. A member that does not
//! lead keeps no expiry: `promote` starts all leases anew, each with its time left at the last
//! checkpoint plus the extension (an election timeout); `demote` forgets them.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;

use super::{LeaseChange, LeaseId, LeaseInfo};

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
            checkpoint_interval: Duration::from_secs(300),
            retry_interval: Duration::from_secs(3),
        }
    }
}

/// Expiry times of all leases, on the leader.
#[derive(Debug)]
pub struct LeaseClock {
    options: LeaseClockOptions,
}

#[expect(
    clippy::todo,
    clippy::unused_self,
    reason = "signatures first; bodies follow in hours"
)]
impl LeaseClock {
    /// A clock of a member that does not lead yet.
    pub fn new(options: LeaseClockOptions) -> Self {
        Self { options }
    }

    /// The time to live that is granted for a wish of `ttl_s`; the proposer puts it into the command.
    pub fn granted_ttl_s(&self, ttl_s: i64) -> i64 {
        ttl_s.max(self.options.ttl_min_s)
    }

    /// This member leads now: every lease gets its time left plus `extend`.
    pub fn promote(&self, _now: Instant, _extend: Duration, _leases: &[LeaseInfo]) {
        todo!()
    }

    /// This member does not lead any more.
    pub fn demote(&self) {
        todo!()
    }

    /// Whether this member leads, as far as leases are concerned.
    pub fn is_primary(&self) -> bool {
        todo!()
    }

    /// Follows a change of the replicated state; wire it to `EventSink::lease_changed`.
    pub fn observe(&self, _change: LeaseChange, _now: Instant) {
        todo!()
    }

    /// Starts the lease's time anew and answers its granted time to live, in seconds.
    ///
    /// `NotLeader` on a member that does not lead, `LeaseNotFound` for a lease that is unknown or
    /// due. Whether its recorded checkpoint must be cleared first: [`LeaseClock::has_checkpoint`].
    pub fn renew(&self, _id: LeaseId, _now: Instant) -> Result<i64, Error> {
        todo!()
    }

    /// Whether a renewal of this lease has to clear its recorded time left (propose a checkpoint
    /// of 0) before [`LeaseClock::renew`].
    pub fn has_checkpoint(&self, _id: LeaseId) -> bool {
        todo!()
    }

    /// Time left; zero when due; `None` for an unknown lease or on a member that does not lead.
    pub fn remaining(&self, _id: LeaseId, _now: Instant) -> Option<Duration> {
        todo!()
    }

    /// Leases whose time is over, at most `limit`; each is reported again after the retry interval
    /// as long as it is not revoked.
    pub fn due(&self, _now: Instant, _limit: usize) -> Vec<LeaseId> {
        todo!()
    }

    /// Leases whose time left is to be recorded now, with that time in seconds, at most `limit`.
    pub fn checkpoints_due(&self, _now: Instant, _limit: usize) -> Vec<(LeaseId, i64)> {
        todo!()
    }
}
