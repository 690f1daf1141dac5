//! What only the leader knows, asked of it where it is.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use super::handle::Member;
use crate::apply::LogPosition;
use crate::command::{LeaseCheckpoint, LeaseCheckpoints, Request};
use crate::datadir::identity::MemberId;
use crate::deadline;
use crate::error::Error;
use crate::failpoint::{self, Point};
use crate::lease::LeaseId;

/// How long to wait before the leader is asked again, as etcd does.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The time of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseTime {
    /// Seconds left.
    pub ttl_s: i64,
    /// Seconds granted.
    pub granted_ttl_s: i64,
    /// Its keys, when asked for.
    pub keys: Vec<Bytes>,
}

impl Member {
    /// Starts the lease's time anew, on the leader: its granted time to live in seconds.
    ///
    /// # Errors
    /// `LeaseNotFound`; `NoLeader` when there is none, `Timeout` when it did not answer.
    pub async fn renew_lease(&self, id: LeaseId) -> Result<i64, Error> {
        self.with_leader(
            || self.renew_lease_here(id),
            |leader, patience| async move { leader.renew_lease(id.0, patience).await },
        )
        .await
    }

    /// The same, when this member leads.
    ///
    /// # Errors
    /// `LeaseNotFound`; `NotLeader`.
    pub(crate) async fn renew_lease_here(&self, id: LeaseId) -> Result<i64, Error> {
        self.check_alive()?;
        let leases = self.leases();
        let term = self.confirm_clock().await?;
        if leases.has_checkpoint(id) {
            failpoint::pause(Point::BeforeCheckpointInLeaseRenew).await;
            let checkpoint = LeaseCheckpoint {
                id: id.0,
                remaining_ttl: 0,
            };
            let checkpoints = LeaseCheckpoints {
                checkpoints: vec![checkpoint],
            };
            let request = Request::LeaseCheckpoint(checkpoints);
            self.propose_in_term(request, term).await?;
        }
        leases.renew(id, Instant::now())
    }

    /// The time left of a lease, from the leader's clock; `None` when there is no such lease.
    ///
    /// # Errors
    /// `NoLeader` when there is none, `Timeout` when it did not answer.
    pub async fn lease_time(&self, id: LeaseId, keys: bool) -> Result<Option<LeaseTime>, Error> {
        self.with_leader(
            || self.lease_time_here(id, keys),
            |leader, patience| async move {
                let time = leader.lease_time(id.0, keys, patience).await?;
                Ok((time.ttl >= 0).then_some(LeaseTime {
                    ttl_s: time.ttl,
                    granted_ttl_s: time.granted_ttl,
                    keys: time.keys,
                }))
            },
        )
        .await
    }

    /// The same, when this member leads.
    ///
    /// # Errors
    /// `NotLeader`.
    pub(crate) async fn lease_time_here(
        &self,
        id: LeaseId,
        keys: bool,
    ) -> Result<Option<LeaseTime>, Error> {
        self.check_alive()?;
        self.confirm_clock().await?;
        failpoint::pause(Point::BeforeLookupWhenLeaseTimeToLive).await;
        let Some(lease) = self.state().lease(id) else {
            return Ok(None);
        };
        // The lease is there and this member does not keep its time (any more).
        let left = self.leases().remaining(id, Instant::now());
        let left = left.ok_or(Error::NotLeader)?;
        Ok(Some(LeaseTime {
            ttl_s: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            granted_ttl_s: lease.granted_ttl_s,
            keys: if keys { lease.keys } else { Vec::new() },
        }))
    }

    /// Confirms that the clock of the leases here is the one that counts, and that everything
    /// acknowledged is applied: not that of a term that is over. The term it runs for.
    async fn confirm_clock(&self) -> Result<u64, Error> {
        let term = self.leases().term().ok_or(Error::NotLeader)?;
        self.confirm_lead(term).await?;
        Ok(term)
    }

    /// Confirms with a quorum that this member leads in `term`, now and not only some time ago.
    ///
    /// # Errors
    /// `NotLeader` when it does not; `Timeout` when no quorum answers.
    pub async fn confirm_lead(&self, term: u64) -> Result<(), Error> {
        let is_led_here = || self.is_leader() && self.term() == term;
        if !is_led_here() {
            return Err(Error::NotLeader);
        }
        self.linearizable().await?;
        // A term has one leader and never comes again: what holds before and after held between.
        if is_led_here() {
            Ok(())
        } else {
            Err(Error::NotLeader)
        }
    }

    /// Hands this leader's place to another member.
    ///
    /// # Errors
    /// `NotLeader` when this member does not lead; `BadLeaderTransferee` for a member that is
    /// unknown or has no vote; `TimeoutLeaderTransfer`.
    pub async fn move_leader(&self, to: MemberId) -> Result<(), Error> {
        self.check_alive()?;
        if !self.is_leader() {
            return Err(Error::NotLeader);
        }
        let members = self.state().members();
        let is_voter = members
            .iter()
            .any(|known| known.id == to.0 && !known.is_learner);
        if !is_voter {
            return Err(Error::BadLeaderTransferee);
        }
        if to == self.id() {
            return Ok(());
        }
        self.inner
            .group
            .transfer(to.0, self.hand_over_patience())
            .await
    }

    /// Hands the lead over before a stop, when there is somebody to take it. The others need no
    /// election then.
    pub async fn hand_over(&self) {
        if !self.is_leader() || self.check_alive().is_err() {
            return;
        }
        let Some(successor) = self.inner.group.successor() else {
            return;
        };
        let patience = self.hand_over_patience();
        if let Err(error) = self.inner.group.transfer(successor, patience).await {
            tracing::warn!(%error, "the lead is not handed over before the stop");
        }
    }

    /// The target waits as long for the end of its log, and then asks the others once.
    pub(super) fn hand_over_patience(&self) -> Duration {
        self.inner.options.election_timeout * 2
    }

    /// Up to where a reader elsewhere must have applied the log.
    pub(crate) async fn confirmed_index(&self) -> Result<LogPosition, Error> {
        self.check_alive()?;
        self.inner.group.confirmed_index().await
    }

    /// Does the work here or with the leader elsewhere, again while none is found.
    async fn with_leader<T, Here, There>(
        &self,
        here: impl Fn() -> Here,
        there: impl Fn(crate::consensus::peer::LeaderCalls, Duration) -> There,
    ) -> Result<T, Error>
    where
        Here: Future<Output = Result<T, Error>>,
        There: Future<Output = Result<T, Error>>,
    {
        let patience = self.request_timeout();
        let attempts = async {
            loop {
                self.check_alive()?;
                let result = if self.is_leader() {
                    here().await
                } else {
                    match self.inner.group.leader_calls() {
                        Ok(leader) => {
                            let most = self.inner.options.election_timeout;
                            there(leader, deadline::shorten(most)).await
                        }
                        Err(error) => Err(error),
                    }
                };
                match result {
                    Err(
                        Error::NotLeader
                        | Error::NoLeader
                        | Error::LeaderChanged
                        | Error::Timeout
                        | Error::TimeoutDueToConnectionLost
                        | Error::TimeoutDueToLeaderFail,
                    ) => sleep(RETRY_PAUSE).await,
                    result => return result,
                }
            }
        };
        match timeout(patience, attempts).await {
            Ok(result) => result,
            Err(_elapsed) if self.leader().is_none() => Err(self.explain(Error::NoLeader)),
            Err(_elapsed) => Err(self.explain(Error::Timeout)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_proto::etcd::rpc;

    use super::*;
    use crate::apply::NoEvents;
    use crate::member::MemberOptions;

    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_leader_decides_is_taken_in_its_own_term_only() {
        let dir = tempfile::TempDir::new().unwrap();
        let options = MemberOptions {
            log_segment_bytes: 1 << 20,
            reserve_bytes: 0,
            ..MemberOptions::new("m0", dir.path().join("m0"))
        };
        let member = Member::start(options, Arc::new(NoEvents)).await.unwrap();
        let grant = rpc::LeaseGrantRequest { ttl: 60, id: 7 };
        member.propose(Request::LeaseGrant(grant)).await.unwrap();
        let term = member.term();
        assert_eq!(member.leases().term(), Some(term));
        let revoke = || Request::LeaseRevoke(rpc::LeaseRevokeRequest { id: 7 });
        for other in [term - 1, term + 1] {
            let refused = member.propose_in_term(revoke(), other).await;
            let is_refused = matches!(refused, Err(Error::NotLeader | Error::NoLeader));
            assert!(is_refused, "in term {other}: {refused:?}");
            assert!(member.confirm_lead(other).await.is_err());
        }
        assert!(member.state().lease(LeaseId(7)).is_some());
        member.propose_in_term(revoke(), term).await.unwrap();
        assert!(member.state().lease(LeaseId(7)).is_none());
        member.stop().await.unwrap();
    }
}
