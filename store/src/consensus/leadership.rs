//! Who leads, as far as this member can vouch for it.
//!
//! Raft remembers the last leader for as long as there is no other. Clients want to know whether
//! there is one now: a leader must have been acknowledged by a quorum, and a follower must have
//! heard of its leader, within the lease.

use std::time::Duration;

use holdfast_proto::peer::v1 as proto;
use openraft::async_runtime::WatchReceiver as _;
use openraft::metrics::{RaftDataMetrics, RaftServerMetrics};
use openraft::type_config::TypeConfigExt as _;
use openraft::type_config::alias::WatchReceiverOf;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::types::TypeConfig;

/// When a leader was last heard.
#[derive(Debug)]
pub(super) struct Contact {
    lease: Duration,
    last: Mutex<Option<(u64, Instant)>>,
    /// The leader heard last; changes when it is another one, or one that was silent.
    heard: watch::Sender<u64>,
}

impl Contact {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            lease,
            last: Mutex::default(),
            heard: watch::Sender::new(0),
        }
    }

    /// Notes a call of the leader `from` that was answered with `answer`.
    pub(super) fn note(&self, from: u64, answer: &proto::AppendResponse, now: Instant) {
        use proto::append_response::Result as Answer;
        if matches!(answer.result, Some(Answer::HigherVote(_))) {
            return;
        }
        let is_known = self.is_recent(from, now);
        *self.last.lock() = Some((from, now));
        if !is_known {
            self.heard.send_replace(from);
        }
    }

    fn is_recent(&self, leader: u64, now: Instant) -> bool {
        let last = *self.last.lock();
        last.is_some_and(|(from, at)| from == leader && now.duration_since(at) < self.lease)
    }
}

/// Follows who leads; cheap to ask, cheap to clone.
#[derive(Clone)]
pub(crate) struct Leadership {
    id: u64,
    lease: Duration,
    contact: Arc<Contact>,
    heard: watch::Receiver<u64>,
    watched: WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>,
    data: WatchReceiverOf<TypeConfig, RaftDataMetrics<TypeConfig>>,
}

impl Leadership {
    pub(super) fn new(
        id: u64,
        lease: Duration,
        contact: Arc<Contact>,
        watched: WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>,
        data: WatchReceiverOf<TypeConfig, RaftDataMetrics<TypeConfig>>,
    ) -> Self {
        Self {
            id,
            lease,
            heard: contact.heard.subscribe(),
            contact,
            watched,
            data,
        }
    }

    /// The current term.
    pub(crate) fn term(&self) -> u64 {
        self.watched.borrow_watched().vote.leader_id.term
    }

    /// The leader of the current term, when there is one now.
    pub(crate) fn leader(&self) -> Option<u64> {
        let leader = self.watched.borrow_watched().current_leader?;
        let is_vouched_for = if leader == self.id {
            // Asked for each write: the voters are only listed when nobody answered lately.
            self.has_quorum() || self.is_alone()
        } else {
            self.contact.is_recent(leader, Instant::now())
        };
        is_vouched_for.then_some(leader)
    }

    /// Whether nobody else has a vote.
    fn is_alone(&self) -> bool {
        let metrics = self.watched.borrow_watched();
        let mut voters = metrics.membership_config.membership().voter_ids();
        voters.next() == Some(self.id) && voters.next().is_none()
    }

    /// Whether a quorum acknowledged this leader within the lease.
    fn has_quorum(&self) -> bool {
        let acknowledged = self.data.borrow_watched().last_quorum_acked;
        acknowledged.is_some_and(|at| TypeConfig::now() < at.into_inner() + self.lease)
    }

    /// Whether `follower` answered this leader within the lease.
    pub(super) fn hears(&self, follower: u64) -> bool {
        let data = self.data.borrow_watched();
        let heard = data.heartbeat.as_ref();
        let heard = heard.and_then(|heard| heard.get(&follower).copied().flatten());
        heard.is_some_and(|at| TypeConfig::now() < at.into_inner() + self.lease)
    }

    /// Whether this member only learns: one that waits for its vote is a voter to all others.
    pub(crate) fn is_learner(&self) -> bool {
        let metrics = self.watched.borrow_watched();
        let membership = metrics.membership_config.membership();
        let node = membership.get_node(&self.id);
        node.is_some_and(|node| !node.is_wanted_voter())
            && !membership.voter_ids().any(|id| id == self.id)
    }

    /// Whether this member leads.
    pub(crate) fn is_leader(&self) -> bool {
        self.leader() == Some(self.id)
    }

    /// Where another member is reached, by the membership in force.
    pub(super) fn urls_of(&self, id: u64) -> Option<Vec<String>> {
        let metrics = self.watched.borrow_watched();
        let node = metrics.membership_config.membership().get_node(&id)?;
        Some(node.peer_urls.clone())
    }

    /// Returns when any of it may have changed; `false` once the group has stopped.
    ///
    /// A leader that falls silent changes nothing in raft: that is looked at every quarter lease.
    pub(crate) async fn changed(&mut self) -> bool {
        tokio::select! {
            changed = self.watched.changed() => changed.is_ok(),
            _ = self.heard.changed() => true,
            () = sleep(self.lease / 4) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(2);

    fn answer(result: proto::append_response::Result) -> proto::AppendResponse {
        proto::AppendResponse {
            result: Some(result),
        }
    }

    #[test]
    fn a_leader_that_fell_silent_is_none() {
        use proto::append_response::Result as Answer;
        let (contact, now) = (Contact::new(LEASE), Instant::now());
        assert!(!contact.is_recent(1, now));
        let refused = answer(Answer::HigherVote(proto::Vote::default()));
        contact.note(1, &refused, now);
        assert!(!contact.is_recent(1, now), "its time is over");
        let mut heard = contact.heard.subscribe();
        contact.note(
            1,
            &answer(Answer::Matching(proto::Matching::default())),
            now,
        );
        assert!(heard.has_changed().unwrap(), "who waits is told");
        heard.mark_unchanged();
        assert!(contact.is_recent(1, now + LEASE / 2));
        assert!(!contact.is_recent(2, now), "another one was heard");
        assert!(!contact.is_recent(1, now + LEASE));
    }
}
