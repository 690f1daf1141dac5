//! Changing who the members are.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Member;
use crate::apply::LogPosition;
use crate::consensus::peer::Forwarded;
use crate::consensus::{Change, Known, Reconfigured, Rules};
use crate::error::Error;

/// How long to wait for another leader before looking again.
const LEADER_PAUSE: Duration = Duration::from_millis(20);
/// How often the leader looks for members that wait for their vote.
const VOTES_INTERVAL: Duration = Duration::from_millis(200);

impl Member {
    /// Changes the membership by etcd's rules. Returns once the change can be read from this
    /// member's state.
    ///
    /// After `Timeout` the change may still be done later, as in etcd.
    pub async fn reconfigure(&self, change: Change) -> Result<(), Error> {
        let patience = self.request_timeout();
        let attempts = async {
            let mut leadership = self.inner.leadership.clone();
            loop {
                self.check_alive()?;
                match self.reconfigure_once(&change, patience).await {
                    // Nothing was done; there may be a leader in a moment.
                    Err(Error::NotLeader | Error::NoLeader | Error::LeaderChanged) => {}
                    Err(error) => return Err(error),
                    Ok(position) => {
                        return self.inner.group.applied(position.index, patience).await;
                    }
                }
                let changed = timeout(LEADER_PAUSE, leadership.changed()).await;
                if changed == Ok(false) {
                    return Err(Error::Stopped);
                }
            }
        };
        let done = timeout(patience, attempts).await;
        done.unwrap_or_else(|_elapsed| Err(self.late_change(&change)))
            .map_err(|error| self.explain(error))
    }

    /// Why a change is not done in time. What etcd's members check before they look for a leader
    /// fails without one.
    fn late_change(&self, change: &Change) -> Error {
        if self.leader().is_some() {
            return Error::Timeout;
        }
        match change {
            Change::Add { .. } if self.inner.options.is_reconfig_strict => Error::Unhealthy,
            Change::Promote { .. } => Error::NoLeader,
            _ => Error::DeadlineExceeded,
        }
    }

    async fn reconfigure_once(
        &self,
        change: &Change,
        patience: Duration,
    ) -> Result<LogPosition, Error> {
        if self.is_leader() {
            return self.reconfigure_here(change).await;
        }
        let leader = self.inner.group.leader_calls()?;
        match leader.reconfigure(change, patience).await {
            Forwarded::Answered(answer) => answer,
            Forwarded::NotTaken(_) => Err(Error::NoLeader),
            Forwarded::Unknown => Err(Error::TimeoutDueToConnectionLost),
        }
    }

    /// Changes the membership for another member, when this one leads.
    pub(crate) async fn reconfigure_for_peer(&self, change: &Change) -> Result<LogPosition, Error> {
        let done = timeout(self.request_timeout(), self.reconfigure_here(change)).await;
        done.unwrap_or(Err(Error::Timeout))
    }

    /// On the leader, without a limit of time: where the change stands in the log.
    ///
    /// # Errors
    /// [`Error::NotLeader`] when nothing was done because this member does not lead.
    async fn reconfigure_here(&self, change: &Change) -> Result<LogPosition, Error> {
        self.check_alive()?;
        let inner = &*self.inner;
        let _one_at_a_time = inner.reconfiguring.lock().await;
        let rules = Rules {
            is_strict: inner.options.is_reconfig_strict,
            learners_max: inner.options.learners_max,
        };
        let done = inner
            .group
            .reconfigure(change, rules, || self.known_members())
            .await?;
        match done {
            Reconfigured::Done(position) => {
                tracing::info!(?change, "the membership is changed");
                Ok(position)
            }
            Reconfigured::HandOverTo(id) => {
                tracing::info!(
                    to = format!("{id:x}"),
                    "the leader is to be removed: hand over"
                );
                inner.group.transfer(id, self.hand_over_patience()).await?;
                Err(Error::NotLeader)
            }
        }
    }

    fn known_members(&self) -> Known {
        let state = &self.inner.state;
        let started: BTreeSet<u64> = state
            .members()
            .into_iter()
            .filter(|member| !member.name.is_empty())
            .map(|member| member.id)
            .collect();
        Known {
            started,
            removed: state.removed_members(),
        }
    }
}

/// Gives members that were added as voters their vote once they have caught up.
pub(super) async fn give_votes(member: Member) {
    let mut ticks = interval(VOTES_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let given = member
            .inner
            .group
            .give_vote(|| member.known_members())
            .await;
        match given {
            Ok(Some(id)) => {
                let voter = format!("{id:x}");
                tracing::info!(voter, "a member has caught up and votes from now on");
            }
            Ok(None) | Err(Error::NotLeader | Error::Stopped) => {}
            Err(error) => tracing::warn!(%error, "cannot give a member its vote; tried again"),
        }
    }
}
