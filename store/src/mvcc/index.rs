//! The index of keys, in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::key_index::{Found, KeyIndex};
use super::revision::Revision;

/// Which keys a request means, in etcd's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span<'keys> {
    /// One key.
    One(&'keys [u8]),
    /// From a key on, before another.
    Range(&'keys [u8], &'keys [u8]),
    /// From a key on.
    From(&'keys [u8]),
}

impl<'keys> Span<'keys> {
    /// Reads `key` and `range_end`: no end is one key, a zero byte is no upper bound.
    pub(crate) fn new(key: &'keys [u8], range_end: &'keys [u8]) -> Self {
        match range_end {
            [] => Self::One(key),
            [0] => Self::From(key),
            _ => Self::Range(key, range_end),
        }
    }

    pub(crate) fn contains(self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => key == one,
            Self::Range(from, end) => from <= key && key < end,
            Self::From(from) => from <= key,
        }
    }
}

/// The index of keys.
#[derive(Debug, Default)]
pub(crate) struct Index {
    keys: BTreeMap<Box<[u8]>, KeyIndex>,
    live: u64,
    /// Nothing before this revision can be read from the index any more.
    compacted: i64,
    /// Changes when the whole index is replaced.
    epoch: u64,
}

impl Index {
    /// Takes keys in ascending order.
    pub(crate) fn from_sorted(keys: Vec<(Box<[u8]>, KeyIndex)>, epoch: u64) -> Self {
        let live = keys.iter().filter(|(_, key)| key.is_live()).count();
        Self {
            keys: keys.into_iter().collect(),
            live: u64::try_from(live).unwrap_or(u64::MAX),
            compacted: 0,
            epoch,
        }
    }

    /// Live keys.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Nothing before this revision can be read from the index any more.
    pub(crate) fn compacted(&self) -> i64 {
        self.compacted
    }

    pub(crate) fn get(&self, key: &[u8], at: i64) -> Option<Found> {
        self.keys.get(key)?.get(at)
    }

    /// Adds a put; what the key is now.
    pub(crate) fn put(&mut self, key: &[u8], revision: Revision) -> Found {
        if let Some(versions) = self.keys.get_mut(key) {
            if !versions.is_live() {
                self.live += 1;
            }
            return versions.put(revision);
        }
        self.live += 1;
        self.keys.insert(key.into(), KeyIndex::new(revision));
        Found {
            modified: revision,
            created: revision.main,
            version: 1,
        }
    }

    /// Adds a delete; whether there was anything to delete.
    pub(crate) fn tombstone(&mut self, key: &[u8], revision: Revision) -> bool {
        let is_deleted = self
            .keys
            .get_mut(key)
            .is_some_and(|versions| versions.tombstone(revision));
        if is_deleted {
            self.live -= 1;
        }
        is_deleted
    }

    /// Calls `visit` with each key of the span and what it was at `at`, in order, for at most
    /// `steps` keys of the index or until it answers `false`. Answers where to go on, if at all.
    pub(crate) fn visit(
        &self,
        span: Span<'_>,
        after: Option<&[u8]>,
        at: i64,
        steps: usize,
        mut visit: impl FnMut(&[u8], Found) -> bool,
    ) -> Option<Box<[u8]>> {
        let (from, end) = match span {
            Span::One(key) => {
                if let Some(found) = self.get(key, at) {
                    visit(key, found);
                }
                return None;
            }
            Span::Range(from, end) if from >= end => return None,
            Span::Range(from, end) => (from, Bound::Excluded(end)),
            Span::From(from) => (from, Bound::Unbounded),
        };
        let start = after.map_or(Bound::Included(from), Bound::Excluded);
        if let (Bound::Excluded(start), Bound::Excluded(end)) = (start, end)
            && start >= end
        {
            return None;
        }
        let mut left = steps;
        for (key, versions) in self.keys.range::<[u8], _>((start, end)) {
            if let Some(found) = versions.get(at)
                && !visit(key, found)
            {
                return None;
            }
            left -= 1;
            if left == 0 {
                return Some(key.clone());
            }
        }
        None
    }

    /// Says that a compaction at `at` has begun: readers of older revisions are refused from now.
    pub(crate) fn begin_compaction(&mut self, at: i64) {
        self.compacted = self.compacted.max(at);
    }

    /// Compacts at most `steps` keys after `after`; `keep` takes the revisions at or before `at`
    /// whose rows stay. Answers where to go on.
    pub(crate) fn compact(
        &mut self,
        at: i64,
        after: Option<&[u8]>,
        steps: usize,
        keep: &mut Vec<Revision>,
    ) -> Option<Box<[u8]>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut gone = Vec::new();
        let mut next = None;
        let mut left = steps;
        for (key, versions) in self.keys.range_mut::<[u8], _>((start, Bound::Unbounded)) {
            let (kept, is_left) = versions.compact(at);
            keep.extend(kept);
            if !is_left {
                gone.push(key.clone());
            }
            left -= 1;
            if left == 0 {
                next = Some(key.clone());
                break;
            }
        }
        for key in gone {
            self.keys.remove(&key);
        }
        next
    }

    /// Of at most `steps` keys after `after`, the revisions that a hash at `at` takes as kept.
    pub(crate) fn kept_for_hash(
        &self,
        at: i64,
        after: Option<&[u8]>,
        steps: usize,
        mut keep: impl FnMut(Revision),
    ) -> Option<Box<[u8]>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut left = steps;
        for (key, versions) in self.keys.range::<[u8], _>((start, Bound::Unbounded)) {
            if let Some(revision) = versions.kept_for_hash(at) {
                keep(revision);
            }
            left -= 1;
            if left == 0 {
                return Some(key.clone());
            }
        }
        None
    }
}
