//! Changing who the members are.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Member;
use crate::apply::LogPosition;
use crate::consensus::{Change, Known, Reconfigured, Rules};
use crate::error::Error;

/// How often the leader looks for members that wait for their vote.
const VOTES_INTERVAL: Duration = Duration::from_millis(200);

impl Member {
    /// Changes the membership by etcd's rules. Returns once the change can be read from this
    /// member's state.
    ///
    /// After `Timeout` the change may still be done later, as in etcd.
    pub async fn reconfigure(&self, change: Change) -> Result<(), Error> {
        let done = timeout(self.request_timeout(), self.reconfigure_here(&change)).await;
        match done {
            Ok(done) => done.map(drop),
            Err(_) => Err(Error::Timeout),
        }
        .map_err(|error| self.explain(error))
    }

    /// As [`Member::reconfigure`], on the leader and without a limit of time: where the change
    /// stands in the log.
    ///
    /// # Errors
    /// [`Error::NotLeader`] when nothing was done because this member does not lead.
    pub(crate) async fn reconfigure_here(&self, change: &Change) -> Result<LogPosition, Error> {
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
            Reconfigured::HandOverTo(_) => Err(Error::NotLeader),
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
