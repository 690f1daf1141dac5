//! The index of keys, in memory.

use std::ops::Bound;

use super::blocks::{Blocks, Builder, Held, Last};
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

/// The index of keys. One revision of a key is held in a few bytes, longer histories apart.
#[derive(Debug, Default)]
pub(crate) struct Index {
    keys: Blocks,
    histories: Histories,
    live: u64,
    /// Nothing before this revision can be read from the index any more.
    compacted: i64,
    /// Changes when the whole index is replaced.
    epoch: u64,
}

/// Histories of more than one revision, by place.
#[derive(Debug, Default)]
struct Histories {
    places: Vec<Option<KeyIndex>>,
    free: Vec<usize>,
}

impl Histories {
    fn add(&mut self, versions: KeyIndex) -> Held {
        if let Some(found) = versions.as_one() {
            return Held::One(found);
        }
        if let Some(place) = self.free.pop()
            && let Some(slot) = self.places.get_mut(place)
        {
            *slot = Some(versions);
            return Held::Many(place);
        }
        self.places.push(Some(versions));
        Held::Many(self.places.len() - 1)
    }

    fn get(&self, place: usize) -> Option<&KeyIndex> {
        self.places.get(place)?.as_ref()
    }

    /// The versions behind `held`, to be changed and added again; only a copy when it is one.
    fn take(&mut self, held: Held) -> Option<KeyIndex> {
        match held {
            Held::One(found) => Some(KeyIndex::restored(found)),
            Held::Many(place) => {
                let versions = self.places.get_mut(place)?.take()?;
                self.free.push(place);
                Some(versions)
            }
        }
    }
}

/// Builds an index of keys that come in ascending order.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    keys: Builder,
    histories: Histories,
    live: u64,
}

impl IndexBuilder {
    pub(crate) fn push(&mut self, key: &[u8], versions: KeyIndex) {
        self.live += u64::from(versions.is_live());
        self.keys.push(key, self.histories.add(versions));
    }

    pub(crate) fn finish(self, epoch: u64) -> Index {
        Index {
            keys: self.keys.finish(),
            histories: self.histories,
            live: self.live,
            compacted: 0,
            epoch,
        }
    }
}

impl Index {
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
        self.found(self.keys.get(key)?, at)
    }

    fn found(&self, held: Held, at: i64) -> Option<Found> {
        match held {
            Held::One(found) => (found.modified.main <= at).then_some(found),
            Held::Many(place) => self.histories.get(place)?.get(at),
        }
    }

    /// Changes the versions of a key that is known.
    fn change<T>(
        &mut self,
        key: &[u8],
        held: Held,
        change: impl FnOnce(&mut KeyIndex) -> T,
    ) -> Option<T> {
        let mut versions = self.histories.take(held)?;
        let answer = change(&mut versions);
        let now = self.histories.add(versions);
        if now == held {
            self.keys.changed(key);
        } else {
            self.keys.set(key, now);
        }
        Some(answer)
    }

    /// Adds a put; what the key is now.
    pub(crate) fn put(&mut self, key: &[u8], revision: Revision) -> Found {
        let known = self.keys.get(key);
        let changed = known.and_then(|held| {
            self.change(key, held, |versions| {
                (versions.is_live(), versions.put(revision))
            })
        });
        let (was_live, found) = changed.unwrap_or_else(|| {
            let found = Found::created_at(revision);
            self.keys.set(key, Held::One(found));
            (false, found)
        });
        self.live += u64::from(!was_live);
        found
    }

    /// Adds a delete; whether there was anything to delete.
    pub(crate) fn tombstone(&mut self, key: &[u8], revision: Revision) -> bool {
        let known = self.keys.get(key);
        let changed =
            known.and_then(|held| self.change(key, held, |versions| versions.tombstone(revision)));
        let is_deleted = changed.unwrap_or(false);
        self.live -= u64::from(is_deleted);
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
            Span::Range(from, end) => (from, Some(end)),
            Span::From(from) => (from, None),
        };
        let start = after.map_or(Bound::Included(from), Bound::Excluded);
        let mut left = steps;
        let mut next = None;
        self.keys.visit(start, |key, held| {
            if end.is_some_and(|end| key >= end) {
                return false;
            }
            if let Some(found) = self.found(held, at)
                && !visit(key, found)
            {
                return false;
            }
            left = left.saturating_sub(1);
            if left == 0 {
                next = Some(key.into());
            }
            left > 0
        });
        next
    }

    /// Counts the keys of the span that existed at `at`, those at or after `from` if given. Looks
    /// at about `steps` keys, or blocks of them where that is enough; answers the count and from
    /// which key to go on, if at all.
    pub(crate) fn count(
        &self,
        span: Span<'_>,
        from: Bound<&[u8]>,
        at: i64,
        steps: usize,
    ) -> (usize, Option<Box<[u8]>>) {
        let (first, end) = match span {
            Span::One(key) => return (usize::from(self.get(key, at).is_some()), None),
            Span::Range(first, end) => (first, Some(end)),
            Span::From(first) => (first, None),
        };
        let start = match from {
            Bound::Unbounded => Bound::Included(first),
            from => from,
        };
        let last = |held| match held {
            Held::One(found) => Some(Last {
                main: found.modified.main,
                is_live: true,
            }),
            Held::Many(place) => self.histories.get(place).map(|versions| Last {
                main: versions.last(),
                is_live: versions.is_live(),
            }),
        };
        let is_there = |held| self.found(held, at).is_some();
        self.keys.count((start, end), at, steps, last, is_there)
    }

    /// Says that a compaction at `at` has begun: readers of older revisions are refused from now.
    pub(crate) fn begin_compaction(&mut self, at: i64) {
        self.compacted = self.compacted.max(at);
    }

    /// Compacts about `steps` keys after `after`; `keep` takes the revisions at or before `at`
    /// whose rows stay, each with whether the key exists at `at`. Answers where to go on.
    pub(crate) fn compact(
        &mut self,
        at: i64,
        after: Option<&[u8]>,
        steps: usize,
        mut keep: impl FnMut(Revision, bool),
    ) -> Option<Box<[u8]>> {
        let histories = &mut self.histories;
        self.keys.rewrite(after, steps, |held| {
            if let Held::One(found) = held {
                if found.modified.main <= at {
                    keep(found.modified, true);
                }
                return Some(held);
            }
            let mut versions = histories.take(held)?;
            let (kept, is_left) = versions.compact(at);
            if let Some(kept) = kept {
                keep(kept, versions.kept_for_hash(at).is_some());
            }
            is_left.then(|| histories.add(versions))
        })
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
        let mut next = None;
        self.keys.visit(start, |key, held| {
            let kept = match held {
                Held::One(found) => (found.modified.main <= at).then_some(found.modified),
                Held::Many(place) => {
                    let versions = self.histories.get(place);
                    versions.and_then(|versions| versions.kept_for_hash(at))
                }
            };
            if let Some(kept) = kept {
                keep(kept);
            }
            left = left.saturating_sub(1);
            if left == 0 {
                next = Some(key.into());
            }
            left > 0
        });
        next
    }
}

#[cfg(test)]
mod tests;
