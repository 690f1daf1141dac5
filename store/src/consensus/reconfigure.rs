//! What a change of the membership may do: etcd's rules, in etcd's order, without doing anything.
//!
//! The leader decides, on its own view of who is up and how far a learner is. Each request becomes
//! one new membership that differs by one voter at most, so that it is one entry of the log: done
//! or not done, never half-way.

use std::collections::{BTreeMap, BTreeSet};

use super::types::{Membership, PeerNode, Wanted};
use crate::datadir::bootstrap::MEMBERS_MAX;
use crate::error::Error;

/// How much of the leader's log a learner must have to be promoted, in percent.
const READY_PERCENT: u64 = 90;
/// Entries a member that is to vote may be behind when it is given its vote.
const CAUGHT_UP_ENTRIES: u64 = 1000;

/// A request to change the membership, complete: whoever decides adds nothing to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A new member.
    Add {
        /// Its id, from [`crate::datadir::identity::added_member_id`].
        id: u64,
        /// Where its peers will reach it.
        peer_urls: Vec<String>,
        /// Whether it only learns until it is promoted.
        is_learner: bool,
    },
    /// A learner becomes a voter.
    Promote {
        /// The learner.
        id: u64,
    },
    /// A member leaves for good.
    Remove {
        /// The member.
        id: u64,
    },
    /// A member is reached elsewhere.
    Update {
        /// The member.
        id: u64,
        /// Where its peers reach it from now on.
        peer_urls: Vec<String>,
    },
}

/// What the leader knows when it decides.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// The membership in force.
    pub(crate) membership: Membership,
    /// Members that have published themselves.
    pub(crate) started: BTreeSet<u64>,
    /// Ids that are gone for good.
    pub(crate) removed: BTreeSet<u64>,
    /// Members that answered lately, the leader among them.
    pub(crate) connected: BTreeSet<u64>,
    /// How far each other member's log agrees with the leader's.
    pub(crate) matched: BTreeMap<u64, u64>,
    /// The end of the leader's log.
    pub(crate) last_index: u64,
    /// The leader.
    pub(crate) leader: u64,
}

/// The operator's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Refuse what would leave too few members that work (`--strict-reconfig-check`).
    pub(crate) is_strict: bool,
    /// Most learners (`--max-learners`).
    pub(crate) learners_max: usize,
}

/// What to put into the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// A membership whose nodes stay as they are described.
    Append(Membership),
    /// Other facts about one node; who votes stays.
    Describe(u64, PeerNode),
    /// The leader must lead no more before this can be done: it is to be removed.
    HandOver,
}

/// The step that does `change`, or etcd's error.
pub(crate) fn decide(change: &Change, facts: &Facts, rules: Rules) -> Result<Step, Error> {
    match change {
        Change::Add {
            id,
            peer_urls,
            is_learner,
        } => add(*id, peer_urls, *is_learner, facts, rules),
        Change::Promote { id } => promote(*id, facts, rules),
        Change::Remove { id } => remove(*id, facts, rules),
        Change::Update { id, peer_urls } => update(*id, peer_urls, facts),
    }
}

/// The next member that is to vote, has no vote yet and has caught up: the membership that gives
/// it its vote.
pub(crate) fn next_vote(facts: &Facts) -> Option<(u64, Membership)> {
    let voters: BTreeSet<u64> = facts.membership.voter_ids().collect();
    let has_caught_up = |id: &u64| {
        let matched = facts.matched.get(id).copied().unwrap_or(0);
        matched.saturating_add(CAUGHT_UP_ENTRIES) >= facts.last_index
    };
    let (id, _) = facts.membership.nodes().find(|(id, node)| {
        node.is_wanted_voter()
            && !voters.contains(id)
            && facts.connected.contains(id)
            && facts.matched.contains_key(id)
            && has_caught_up(id)
    })?;
    let mut voters = voters;
    voters.insert(*id);
    let membership = Membership::new(vec![voters], nodes(&facts.membership)).ok()?;
    Some((*id, membership))
}

fn add(
    id: u64,
    peer_urls: &[String],
    is_learner: bool,
    facts: &Facts,
    rules: Rules,
) -> Result<Step, Error> {
    let voters = facts.wanted_voters();
    if rules.is_strict {
        if !is_learner && !facts.may_add_voter(&voters) {
            return Err(Error::NotEnoughStartedMembers);
        }
        // The new member counts as one that is down. A cluster of one must be able to grow.
        if voters.len() > 1 && facts.count_connected(&voters) < quorum(voters.len() + 1) {
            return Err(Error::Unhealthy);
        }
    }
    if facts.removed.contains(&id) {
        return Err(Error::MemberNotFound);
    }
    let mut nodes = nodes(&facts.membership);
    if nodes.contains_key(&id) {
        return Err(Error::MemberExists);
    }
    refuse_known_urls(peer_urls, nodes.values())?;
    if is_learner {
        if facts.count_learners() + 1 > rules.learners_max {
            return Err(Error::TooManyLearners);
        }
    } else if voters.len() >= MEMBERS_MAX {
        return Err(Error::TooManyMembers);
    }
    let node = PeerNode {
        peer_urls: peer_urls.to_vec(),
        wanted: if is_learner {
            Wanted::Learner
        } else {
            Wanted::Voter
        },
    };
    nodes.insert(id, node);
    append(facts.membership.get_joint_config().clone(), nodes)
}

fn promote(id: u64, facts: &Facts, rules: Rules) -> Result<Step, Error> {
    let Some(node) = facts.membership.get_node(&id) else {
        return Err(Error::MemberNotFound);
    };
    // As in etcd, whoever is behind is told so, also a voter.
    let matched = match facts.matched.get(&id) {
        Some(matched) => *matched,
        None if id == facts.leader => facts.last_index,
        None => 0,
    };
    if matched.saturating_mul(100) < facts.last_index.saturating_mul(READY_PERCENT) {
        return Err(Error::LearnerNotReady);
    }
    let voters = facts.wanted_voters();
    if rules.is_strict {
        // The learner counts, and as one that has started.
        let started = facts.count_started(&voters) + 1;
        if started < quorum(voters.len() + 1) {
            return Err(Error::NotEnoughStartedMembers);
        }
    }
    if node.is_wanted_voter() {
        return Err(Error::MemberNotLearner);
    }
    if voters.len() >= MEMBERS_MAX {
        return Err(Error::TooManyMembers);
    }
    let node = PeerNode {
        wanted: Wanted::Voter,
        ..node.clone()
    };
    Ok(Step::Describe(id, node))
}

fn remove(id: u64, facts: &Facts, rules: Rules) -> Result<Step, Error> {
    let node = facts.membership.get_node(&id);
    let is_learner = node.is_some_and(|node| !node.is_wanted_voter());
    if rules.is_strict && !is_learner {
        refuse_unsafe_removal(id, facts)?;
    }
    if node.is_none() {
        return Err(Error::MemberNotFound);
    }
    let mut voters: BTreeSet<u64> = facts.membership.voter_ids().collect();
    voters.remove(&id);
    if voters.is_empty() {
        // Without a voter there would be no cluster, whatever the settings say.
        return Err(Error::NotEnoughStartedMembers);
    }
    if id == facts.leader {
        return Ok(Step::HandOver);
    }
    let mut nodes = nodes(&facts.membership);
    nodes.remove(&id);
    append(vec![voters], nodes)
}

fn refuse_unsafe_removal(id: u64, facts: &Facts) -> Result<(), Error> {
    let voters = facts.wanted_voters();
    let others: BTreeSet<u64> = voters
        .iter()
        .copied()
        .filter(|other| *other != id)
        .collect();
    if facts.count_started(&others) < quorum(others.len()) {
        return Err(Error::NotEnoughStartedMembers);
    }
    // One that is down is no part of the quorum that works.
    if id != facts.leader && !facts.connected.contains(&id) {
        return Ok(());
    }
    let left = facts.count_connected(&voters).saturating_sub(1);
    if left < 1 + voters.len().saturating_sub(1) / 2 {
        return Err(Error::Unhealthy);
    }
    Ok(())
}

fn update(id: u64, peer_urls: &[String], facts: &Facts) -> Result<Step, Error> {
    let Some(node) = facts.membership.get_node(&id) else {
        return Err(Error::MemberNotFound);
    };
    let others = facts.membership.nodes().filter(|(other, _)| **other != id);
    refuse_known_urls(peer_urls, others.map(|(_, node)| node))?;
    let node = PeerNode {
        peer_urls: peer_urls.to_vec(),
        ..node.clone()
    };
    Ok(Step::Describe(id, node))
}

fn refuse_known_urls<'node>(
    peer_urls: &[String],
    mut others: impl Iterator<Item = &'node PeerNode>,
) -> Result<(), Error> {
    let is_known = others.any(|node| node.peer_urls.iter().any(|url| peer_urls.contains(url)));
    if is_known {
        return Err(Error::PeerUrlsExist);
    }
    Ok(())
}

fn append(voters: Vec<BTreeSet<u64>>, nodes: BTreeMap<u64, PeerNode>) -> Result<Step, Error> {
    let membership = Membership::new(voters, nodes).map_err(|error| Error::Io {
        doing: "change the membership",
        source: std::io::Error::other(error),
    })?;
    Ok(Step::Append(membership))
}

fn nodes(membership: &Membership) -> BTreeMap<u64, PeerNode> {
    membership
        .nodes()
        .map(|(id, node)| (*id, node.clone()))
        .collect()
}

fn quorum(members: usize) -> usize {
    members / 2 + 1
}

impl Facts {
    /// Those that vote or are to vote.
    fn wanted_voters(&self) -> BTreeSet<u64> {
        let nodes = self.membership.nodes();
        nodes
            .filter(|(_, node)| node.is_wanted_voter())
            .map(|(id, _)| *id)
            .collect()
    }

    fn count_learners(&self) -> usize {
        let nodes = self.membership.nodes();
        nodes.filter(|(_, node)| !node.is_wanted_voter()).count()
    }

    fn count_started(&self, members: &BTreeSet<u64>) -> usize {
        members.intersection(&self.started).count()
    }

    fn count_connected(&self, members: &BTreeSet<u64>) -> usize {
        members.intersection(&self.connected).count()
    }

    fn may_add_voter(&self, voters: &BTreeSet<u64>) -> bool {
        let started = self.count_started(voters);
        // A cluster of one must be able to grow.
        (started == 1 && voters.len() == 1) || started >= quorum(voters.len() + 1)
    }
}

#[cfg(test)]
mod tests;
