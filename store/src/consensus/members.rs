//! Changing the membership on the leader.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver as _;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::raft::Precondition;
use openraft::{ChangeMembers, Instant as _, RaftState};
use tokio::time::Instant;

use super::group::{Group, fatal};
use super::machine::to_position;
use super::reconfigure::{Change, Facts, Rules, Step, decide, next_vote};
use super::types::{Payload, StoredMembership, TypeConfig};
use crate::apply::LogPosition;
use crate::error::Error;

/// Rest before a change that another one was in the way of is decided anew.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Rest before a leader looks again at who is up.
const HEARD_AFTER: Duration = Duration::from_millis(50);

/// What the state knows of members, as of the membership in force.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Members that have published themselves.
    pub(crate) started: BTreeSet<u64>,
    /// Ids that are gone for good.
    pub(crate) removed: BTreeSet<u64>,
}

/// What came of a request to change the membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reconfigured {
    /// It stands in the log here, committed and applied.
    Done(LogPosition),
    /// Nothing is done: the leader is to be removed and must hand over to this member first.
    HandOverTo(u64),
}

/// Why a step was not taken.
enum Refusal {
    /// Nothing was written; decide again.
    Overtaken,
    Failed(Error),
}

impl Group {
    /// Does `change` by `rules`. Returns when it is applied here; the caller bounds the time.
    ///
    /// # Errors
    /// What the rules say; [`Error::NotLeader`] when this member does not lead, with nothing
    /// written.
    pub(crate) async fn reconfigure(
        &self,
        change: &Change,
        rules: Rules,
        known: impl Fn() -> Known,
    ) -> Result<Reconfigured, Error> {
        let mut unhealthy_since = None;
        loop {
            let (stored, facts) = self.facts(&known).await?;
            let step = match decide(change, &facts, rules) {
                Err(Error::Unhealthy) => {
                    // A leader that has just begun may not have heard of everyone yet.
                    let since = *unhealthy_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.silence_max / 4 {
                        return Err(Error::Unhealthy);
                    }
                    tokio::time::sleep(HEARD_AFTER).await;
                    continue;
                }
                decided => decided?,
            };
            if step == Step::HandOver {
                return successor(&facts).map(Reconfigured::HandOverTo);
            }
            match self.take(step, &stored).await {
                Ok(position) => return Ok(Reconfigured::Done(position)),
                Err(Refusal::Overtaken) => tokio::time::sleep(AGAIN_AFTER).await,
                Err(Refusal::Failed(error)) => return Err(error),
            }
        }
    }

    /// Gives the next member that is to vote and has caught up its vote; its id.
    pub(crate) async fn give_vote(&self, known: impl Fn() -> Known) -> Result<Option<u64>, Error> {
        if !self.owes_a_vote() {
            return Ok(None);
        }
        let (stored, facts) = self.facts(&known).await?;
        let Some((id, membership)) = next_vote(&facts) else {
            return Ok(None);
        };
        match self.take(Step::Append(membership), &stored).await {
            Ok(_) => Ok(Some(id)),
            Err(Refusal::Overtaken) => Ok(None),
            Err(Refusal::Failed(error)) => Err(error),
        }
    }

    /// Whether this member leads and a member waits for its vote.
    fn owes_a_vote(&self) -> bool {
        let watched = self.raft.metrics();
        let metrics = watched.borrow_watched();
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        metrics.current_leader == Some(self.id)
            && membership
                .nodes()
                .any(|(id, node)| node.is_wanted_voter() && !voters.contains(id))
    }

    /// What a decision needs, once the membership in force is applied here.
    async fn facts(&self, known: &impl Fn() -> Known) -> Result<(StoredMembership, Facts), Error> {
        let effective = |state: &RaftState<TypeConfig>| {
            StoredMembership::clone(state.membership_state.effective())
        };
        let stored = self
            .raft
            .with_raft_state(effective)
            .await
            .map_err(|error| fatal(&error))?;
        let decided = *stored.log_id();
        self.raft
            .wait(None)
            .metrics(
                |metrics| metrics.last_applied >= decided || metrics.replication.is_none(),
                "the membership is applied",
            )
            .await
            .or(Err(Error::Stopped))?;
        let known = known();
        let watched = self.raft.metrics();
        let metrics = watched.borrow_watched();
        let (Some(replication), Some(heartbeat)) = (&metrics.replication, &metrics.heartbeat)
        else {
            return Err(Error::NotLeader);
        };
        let matched: BTreeMap<u64, u64> = replication
            .iter()
            .filter(|(id, _)| **id != self.id)
            .filter_map(|(id, matched)| matched.as_ref().map(|matched| (*id, matched.index)))
            .collect();
        let mut connected: BTreeSet<u64> = heartbeat
            .iter()
            .filter(|(_, heard)| heard.is_some_and(|heard| heard.elapsed() < self.silence_max))
            .map(|(id, _)| *id)
            .collect();
        connected.insert(self.id);
        let facts = Facts {
            membership: stored.membership().clone(),
            started: known.started,
            removed: known.removed,
            connected,
            matched,
            last_index: metrics.last_log_index.unwrap_or(0),
            leader: self.id,
        };
        Ok((stored, facts))
    }

    async fn take(
        &self,
        step: Step,
        decided_on: &StoredMembership,
    ) -> Result<LogPosition, Refusal> {
        let condition = Precondition::LastMembershipLogId {
            last_membership_log_id: *decided_on.log_id(),
        };
        let moved = match &step {
            Step::Describe(id, node) => Some((*id, node.peer_urls.clone())),
            Step::Append(_) | Step::HandOver => None,
        };
        let written: Result<_, RaftError<TypeConfig, ClientWriteError<TypeConfig>>> = match step {
            Step::Append(membership) => {
                let payload = Payload::Blank;
                self.raft
                    .append_membership(membership, payload, [condition])
                    .await
            }
            Step::Describe(id, node) => {
                let changes = ChangeMembers::SetNodes([(id, node)].into());
                self.raft
                    .change_membership_if(changes, false, [condition])
                    .await
            }
            Step::HandOver => return Err(Refusal::Overtaken),
        };
        match written {
            Ok(written) => {
                // Raft keeps the connections it has; they go to the new address when they break.
                if let Some((id, urls)) = moved {
                    drop(self.peers.leader(id, &urls));
                }
                Ok(to_position(&written.log_id))
            }
            Err(RaftError::APIError(error)) => Err(refusal(error)),
            Err(RaftError::Fatal(_)) => Err(Refusal::Failed(Error::Stopped)),
        }
    }
}

fn refusal(error: ClientWriteError<TypeConfig>) -> Refusal {
    match error {
        ClientWriteError::ForwardToLeader(_) => Refusal::Failed(Error::NotLeader),
        // It may be done, by the next leader.
        ClientWriteError::LogEntryDiscarded(_) => Refusal::Failed(Error::TimeoutDueToLeaderFail),
        ClientWriteError::PreconditionFailed(_)
        | ClientWriteError::ChangeMembershipError(
            ChangeMembershipError::InProgress(_) | ChangeMembershipError::UncommittedLeaderLog(_),
        ) => Refusal::Overtaken,
        error @ ClientWriteError::ChangeMembershipError(_) => Refusal::Failed(Error::Io {
            doing: "change the membership",
            source: io::Error::other(error),
        }),
    }
}

/// The voter that is best placed to lead instead of this one.
fn successor(facts: &Facts) -> Result<u64, Error> {
    facts
        .membership
        .voter_ids()
        .filter(|id| *id != facts.leader && facts.connected.contains(id))
        .max_by_key(|id| facts.matched.get(id).copied().unwrap_or(0))
        .ok_or(Error::Unhealthy)
}
