//! What a proposal that has no outcome in time is told, as etcd tells it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::error::Error;

const NOWHERE: u8 = 0;
const TAKEN: u8 = 1;
const CUT: u8 = 2;

/// How far a proposal has come.
#[derive(Debug, Default)]
pub(super) struct Way(AtomicU8);

impl Way {
    /// It is handed to a leader.
    pub(super) fn take(&self) {
        self.0.store(TAKEN, Ordering::Relaxed);
    }

    /// It is surely in no log.
    pub(super) fn give_back(&self) {
        self.0.store(NOWHERE, Ordering::Relaxed);
    }

    /// The leader may have it, and the connection to it was lost.
    pub(super) fn cut(&self) {
        self.0.store(CUT, Ordering::Relaxed);
    }

    pub(super) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NOWHERE
    }

    pub(super) fn is_cut(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CUT
    }
}

/// What is known when the time is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Late {
    pub(super) since_start: Duration,
    /// Since this member last saw a new leader.
    pub(super) since_election: Option<Duration>,
    pub(super) has_leader: bool,
    /// Whether a leader may have it.
    pub(super) is_taken: bool,
    /// Whether the connection to that leader was lost.
    pub(super) is_cut: bool,
}

impl Late {
    pub(super) fn error(self, election_timeout: Duration) -> Error {
        // The leader before was lost up to two election timeouts before the new one was there.
        let is_of_election = self.since_election.is_some_and(|since| {
            since < self.since_start && self.since_start < since + 2 * election_timeout
        });
        match self {
            Self {
                is_taken: false,
                has_leader: false,
                ..
            } => Error::DeadlineExceeded,
            _ if is_of_election => Error::TimeoutDueToLeaderFail,
            Self {
                has_leader: true,
                is_taken,
                is_cut,
                ..
            } if is_cut || !is_taken => Error::TimeoutDueToConnectionLost,
            _ => Error::Timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELECTION: Duration = Duration::from_secs(1);

    fn late(since_election: Option<u64>, has_leader: bool, is_taken: bool, is_cut: bool) -> Error {
        let late = Late {
            since_start: Duration::from_secs(7),
            since_election: since_election.map(Duration::from_secs),
            has_leader,
            is_taken,
            is_cut,
        };
        late.error(ELECTION)
    }

    #[test]
    fn a_proposal_without_an_outcome_is_told_why_as_in_etcd() {
        let nothing = late(None, false, false, false);
        assert!(
            matches!(nothing, Error::DeadlineExceeded),
            "no leader took it"
        );
        let lost = late(Some(20), false, true, false);
        assert!(
            matches!(lost, Error::Timeout),
            "the leader that took it is gone"
        );
        let silent = late(Some(20), true, true, false);
        assert!(matches!(silent, Error::Timeout), "it may still be done");
        for is_taken in [false, true] {
            let cut = late(Some(20), true, is_taken, is_taken);
            assert!(matches!(cut, Error::TimeoutDueToConnectionLost), "{cut:?}");
        }
        let elected = late(Some(6), true, true, true);
        assert!(
            matches!(elected, Error::TimeoutDueToLeaderFail),
            "{elected:?}"
        );
        let long_after = late(Some(4), true, true, false);
        assert!(matches!(long_after, Error::Timeout), "{long_after:?}");
    }
}
