//! Who the members are, as the furthest state of the cluster says.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_store::state::State;

use crate::invariants::Place;

/// A member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// The host that has its address.
    pub place: Place,
    /// Whether it only learns.
    pub is_learner: bool,
}

/// The members at the furthest position of the log that was applied anywhere: what is applied is
/// decided, so that it never becomes untrue.
#[derive(Debug, Default)]
pub struct Roster {
    at: u64,
    listed: BTreeMap<u64, Listed>,
    removed: BTreeSet<u64>,
    /// Members that somebody asked to remove: it may be done at any time since.
    pub unwanted: BTreeSet<u64>,
}

impl Roster {
    /// Takes over what `state` says, if it says the latest; `place_of` finds a host by its URL.
    pub fn update(&mut self, state: &State, place_of: impl Fn(&str) -> Option<Place>) {
        let Some(applied) = state.applied().filter(|applied| applied.index >= self.at) else {
            return;
        };
        self.at = applied.index;
        self.removed = state.removed_members();
        let members = state.members().into_iter();
        self.listed = members
            .filter_map(|member| {
                let place = member.peer_urls.first().and_then(|url| place_of(url))?;
                let is_learner = member.is_learner;
                Some((member.id, Listed { place, is_learner }))
            })
            .collect();
    }

    /// The members, by id.
    pub fn listed(&self) -> impl Iterator<Item = (u64, Listed)> {
        self.listed.iter().map(|(id, listed)| (*id, *listed))
    }

    /// Whether the member is one now.
    pub fn is_listed(&self, id: u64) -> bool {
        self.listed.contains_key(&id)
    }

    /// Whether the member was removed.
    pub fn is_removed(&self, id: u64) -> bool {
        self.removed.contains(&id)
    }

    /// The hosts with a member.
    pub fn places(&self) -> BTreeSet<Place> {
        self.listed.values().map(|listed| listed.place).collect()
    }

    /// Members that vote, or are to vote.
    pub fn voters(&self) -> usize {
        let listed = self.listed.values();
        listed.filter(|listed| !listed.is_learner).count()
    }
}
