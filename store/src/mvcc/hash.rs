//! HashKV: one number over the rows of the `key` table, equal on every member and in every backup
//! of one history, whichever of its superseded rows have been removed already.

use std::borrow::Borrow;
use std::slice::Iter;

use super::RowKey;
use super::revision::Revision;

/// The name of the hashed table, which goes into the hash first.
const TABLE: &[u8] = b"key";

/// The rows that are alive at the hashed revision: for each key that exists there, its newest row.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Keep {
    sorted: Vec<Revision>,
}

impl Keep {
    /// Takes the revisions in any order.
    pub fn new(mut revisions: Vec<Revision>) -> Self {
        revisions.sort_unstable();
        Self { sorted: revisions }
    }

    /// Nothing at or before the compaction counts: every row there is to go.
    pub fn of_nothing() -> Self {
        // Where no row stands: the first has revision 1.
        Self {
            sorted: vec![Revision::new(0, 0)],
        }
    }

    /// Whether no key is alive.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Whether the row at `revision` is among them.
    pub fn contains(&self, revision: Revision) -> bool {
        self.sorted.binary_search(&revision).is_ok()
    }

    /// How many keys are alive.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The revisions, ascending.
    pub fn iter(&self) -> Iter<'_, Revision> {
        self.sorted.iter()
    }
}

impl<'a> IntoIterator for &'a Keep {
    type Item = &'a Revision;
    type IntoIter = Iter<'a, Revision>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Hashes rows by etcd's rules, in one pass. Rows must come in ascending order.
#[derive(Debug)]
pub struct KvHasher<K> {
    sum: u32,
    compact_revision: i64,
    revision: i64,
    keep: K,
    /// The first revision of `keep` that a later row may have.
    position: usize,
}

impl<K: Borrow<Keep>> KvHasher<K> {
    /// For a store compacted at `compact_revision` (-1: never), hashed at `revision`.
    ///
    /// `keep` matters for rows at or before the compaction only: rows that a compaction has
    /// scheduled for removal must not count, gone or not. Without a compaction it may be empty;
    /// with one, an empty one lets all rows count that are there.
    pub fn new(compact_revision: i64, revision: i64, keep: K) -> Self {
        let sum = crc32c::crc32c(TABLE);
        Self {
            sum,
            compact_revision,
            revision,
            keep,
            position: 0,
        }
    }

    /// The revisions given at the start.
    pub fn keep(&self) -> &Keep {
        self.keep.borrow()
    }

    /// Counts one row: its decoded key, and the bytes of key and value.
    pub fn write(&mut self, row: RowKey, key: &[u8], value: &[u8]) {
        let main = row.revision.main;
        if main > self.revision {
            return;
        }
        if main <= self.compact_revision {
            if !self.keep().is_empty() && !self.is_kept(row.revision) {
                return;
            }
            // Releases before 3.5.16 remove a tombstone at the compacted revision, later ones
            // do not; etcd leaves it out so that both agree.
            if main == self.compact_revision && row.is_tombstone {
                return;
            }
        }
        self.sum = crc32c::crc32c_append(self.sum, key);
        self.sum = crc32c::crc32c_append(self.sum, value);
    }

    fn is_kept(&mut self, revision: Revision) -> bool {
        let keep = self.keep.borrow();
        let mut position = self.position;
        while keep
            .sorted
            .get(position)
            .is_some_and(|kept| *kept < revision)
        {
            position += 1;
        }
        let is_kept = keep.sorted.get(position) == Some(&revision);
        self.position = position;
        is_kept
    }

    /// The hash over what was written so far.
    pub fn sum(&self) -> u32 {
        self.sum
    }

    /// The hash over everything written.
    pub fn finish(self) -> u32 {
        self.sum
    }
}
