//! What the log holds, in memory: where each entry stands, and the newest entries themselves.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use super::super::types::{LogId, Vote, log_id};
use super::record::{EntryRecord, Head, Place};

/// Bytes of entries kept in memory once they are written: enough for what is about to be applied
/// or replicated. What is older is read from the file.
const CACHE_BYTES_MAX: usize = 4 << 20;

/// Where one entry stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) term: u64,
    /// `None` until it is written; until then the entry is in the cache.
    pub(super) place: Option<Place>,
    /// Bytes of its record.
    pub(super) bytes: usize,
}

/// The log's entries and metadata.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) head: Head,
    /// Index of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    /// The newest entries: a suffix of `slots`. As they are written: what they were made from may
    /// hold on to much more memory.
    cache: VecDeque<EntryRecord>,
    cache_bytes: usize,
    /// Entries of the cache that are not written yet.
    unwritten: usize,
    expected_purge: Option<LogId>,
    /// Open segments, by number.
    pub(super) files: BTreeMap<u64, Arc<File>>,
}

/// How to get one entry.
pub(super) enum Lookup {
    Cached(EntryRecord),
    Stored {
        index: u64,
        term: u64,
        place: Place,
        bytes: usize,
        file: Arc<File>,
    },
}

impl Index {
    /// The index after the last entry.
    pub(super) fn next(&self) -> u64 {
        self.first + u64::try_from(self.slots.len()).unwrap_or(u64::MAX)
    }

    /// The indexes held.
    pub(super) fn range(&self) -> Range<u64> {
        self.first..self.next()
    }

    /// Whether an entry at `index` may follow: no hole, no overlap; an empty log that was never
    /// written may begin anywhere.
    pub(super) fn accepts(&self, index: u64) -> bool {
        if self.slots.is_empty() {
            let before = self.expected_purge.max(self.head.purged);
            before.is_none_or(|before| index == before.index + 1)
        } else {
            index == self.next()
        }
    }

    /// Adds an entry that is written (at recovery) or about to be (with its `entry`).
    pub(super) fn push(&mut self, index: u64, slot: Slot, entry: Option<EntryRecord>) {
        if self.slots.is_empty() {
            self.first = index;
        }
        self.head.last = Some(log_id(slot.term, index));
        self.slots.push_back(slot);
        if let Some(entry) = entry {
            self.cache_bytes += slot.bytes;
            self.unwritten += 1;
            self.cache.push_back(entry);
        }
    }

    /// Notes that the oldest unwritten entry was written at `place`.
    pub(super) fn written(&mut self, index: u64, place: Place) {
        if let Some(slot) = self.slot_mut(index) {
            slot.place = Some(place);
        }
        self.unwritten = self.unwritten.saturating_sub(1);
        while self.cache_bytes > CACHE_BYTES_MAX && self.cache.len() > self.unwritten {
            self.evict_oldest();
        }
    }

    fn evict_oldest(&mut self) {
        if let Some(entry) = self.cache.pop_front() {
            let bytes = self.slot(entry.index).map_or(0, |slot| slot.bytes);
            self.cache_bytes = self.cache_bytes.saturating_sub(bytes);
        }
    }

    /// Drops entries after `last`; the writer has nothing left to write of them.
    pub(super) fn truncate_after(&mut self, last: Option<&LogId>) {
        let next = last.map_or(0, |id| id.index + 1);
        while self.next() > next && !self.slots.is_empty() {
            let index = self.next() - 1;
            if self.cache.back().is_some_and(|entry| entry.index == index) {
                let bytes = self.slot(index).map_or(0, |slot| slot.bytes);
                self.cache_bytes = self.cache_bytes.saturating_sub(bytes);
                self.cache.pop_back();
            }
            self.slots.pop_back();
        }
        self.head.truncate_after(last.copied());
        self.expected_purge = self.expected_purge.min(self.head.last);
    }

    /// The entries up to `last` are not in any segment any more: a purge must follow.
    pub(super) fn expect_purge(&mut self, last: LogId) {
        self.expected_purge = Some(last);
    }

    /// The last entry that deleted segments held.
    pub(super) fn expected_purge(&self) -> Option<LogId> {
        self.expected_purge
    }

    /// Drops entries up to `upto`.
    pub(super) fn purge(&mut self, upto: &LogId) {
        if self.head.purged.is_some_and(|purged| purged >= *upto) {
            return;
        }
        while !self.slots.is_empty() && self.first <= upto.index {
            if self
                .cache
                .front()
                .is_some_and(|entry| entry.index == self.first)
            {
                self.evict_oldest();
            }
            self.slots.pop_front();
            self.first += 1;
        }
        self.head.purge(*upto);
        if self.slots.is_empty() {
            self.first = upto.index + 1;
        }
    }

    fn slot(&self, index: u64) -> Option<&Slot> {
        self.slots
            .get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    fn slot_mut(&mut self, index: u64) -> Option<&mut Slot> {
        self.slots
            .get_mut(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    /// Finds entries of `range`, from its start, while they add up to at most `bytes_max`; at
    /// least one when there is one.
    pub(super) fn lookup(&self, range: Range<u64>, bytes_max: usize) -> Vec<Lookup> {
        let mut found = Vec::new();
        let mut bytes = 0;
        let cache_first = self.cache.front().map(|entry| entry.index);
        let (start, end) = (range.start.max(self.first), range.end.min(self.next()));
        for index in start..end {
            let Some(slot) = self.slot(index) else { break };
            bytes += slot.bytes;
            if bytes > bytes_max && !found.is_empty() {
                break;
            }
            let cached = cache_first
                .and_then(|first| usize::try_from(index.checked_sub(first)?).ok())
                .and_then(|at| self.cache.get(at));
            if let Some(entry) = cached {
                found.push(Lookup::Cached(entry.clone()));
                continue;
            }
            let Some(place) = slot.place else { break };
            let Some(file) = self.files.get(&place.segment) else {
                break;
            };
            let file = Arc::clone(file);
            found.push(Lookup::Stored {
                index,
                term: slot.term,
                place,
                bytes: slot.bytes,
                file,
            });
        }
        found
    }

    pub(super) fn vote(&self) -> Option<Vote> {
        self.head.vote
    }

    /// Bytes of the records of all entries held.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.slots
            .iter()
            .map(|slot| u64::try_from(slot.bytes).unwrap_or(0))
            .sum()
    }
}
