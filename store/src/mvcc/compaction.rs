//! Compaction in bounded steps, and hashes by revision.

use std::ops::Bound;

use parking_lot::RwLock;

use crate::backend::{Rows, Table, View};
use crate::error::Error;
use crate::failpoint::{self, Point};

use super::hash::{Keep, KvHasher};
use super::index::Index;
use super::revision::{Revision, RowKey};

/// Keys of the index compacted in one step, under one hold of its lock.
const KEYS_PER_STEP: usize = 2_000;
/// Rows looked at in one step.
const ROWS_PER_STEP: usize = 1_000;

/// A compaction under way.
#[derive(Debug)]
pub(crate) struct Compaction {
    /// Where it compacts.
    pub(crate) revision: i64,
    /// The compaction before it; -1: none.
    previous: i64,
    /// Whether the hash it finds covers all rows since the one before.
    is_whole: bool,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Index {
        after: Option<Box<[u8]>>,
        keep: Vec<Revision>,
    },
    Rows {
        hasher: KvHasher<Keep>,
        after: Option<Vec<u8>>,
    },
}

/// What a step did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is more to do.
    Working,
    /// All rows are gone; the hash at the compaction, if it covers everything.
    Finished(Option<u32>),
}

impl Compaction {
    /// Compacts at `revision` after a compaction at `previous`; `is_whole` unless a compaction
    /// was interrupted.
    pub(crate) fn new(revision: i64, previous: i64, is_whole: bool) -> Self {
        let phase = Phase::Index {
            after: None,
            keep: Vec::new(),
        };
        Self {
            revision,
            previous,
            is_whole,
            phase,
        }
    }

    /// The compaction before it; -1: none.
    pub(crate) fn previous(&self) -> i64 {
        self.previous
    }

    /// Compacts the next keys of the index. Whether rows come next.
    pub(crate) fn step_index(&mut self, index: &RwLock<Index>) -> bool {
        let Phase::Index { after, keep } = &mut self.phase else {
            return true;
        };
        let next = index
            .write()
            .compact(self.revision, after.as_deref(), KEYS_PER_STEP, keep);
        if next.is_some() {
            *after = next;
            return false;
        }
        let keep = Keep::new(std::mem::take(keep));
        let hasher = KvHasher::new(self.previous, self.revision, keep);
        self.phase = Phase::Rows {
            hasher,
            after: None,
        };
        true
    }

    /// Removes the next rows that are not kept; the index must be done. The number of rows
    /// removed.
    pub(crate) fn step_rows(&mut self, rows: &mut Rows<'_>) -> Result<(Step, u64), Error> {
        let Phase::Rows { hasher, after } = &mut self.phase else {
            return Ok((Step::Working, 0));
        };
        let end = Revision::new(self.revision.saturating_add(1), 0).encode();
        let start = after.take();
        let bounds = (
            start.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            Bound::Excluded(end.as_slice()),
        );
        let mut doomed = Vec::new();
        let mut seen = 0;
        rows.scan(Table::Key, bounds, |key, value| {
            let row = RowKey::decode(key).ok_or_else(|| Error::Record {
                table: Table::Key.name(),
                key: hex::encode(key),
                reason: "not a revision",
            })?;
            hasher.write(row, key, value);
            let is_kept = hasher.keep().contains(row.revision)
                && !(row.is_tombstone && failpoint::is_on(Point::BugCompactTombstone));
            if !is_kept {
                doomed.push(key.to_vec());
            }
            seen += 1;
            if seen == ROWS_PER_STEP {
                *after = Some(key.to_vec());
            }
            Ok(seen < ROWS_PER_STEP)
        })?;
        for key in &doomed {
            rows.remove(Table::Key, key)?;
        }
        let removed = u64::try_from(doomed.len()).unwrap_or(u64::MAX);
        let step = match after {
            Some(_) => Step::Working,
            None => Step::Finished(self.is_whole.then(|| hasher.sum())),
        };
        Ok((step, removed))
    }
}

/// The hash at `revision` of a store compacted at `compacted` (-1: never). `Compacted` when a
/// compaction overtakes it.
pub(crate) fn hash_at(
    index: &RwLock<Index>,
    view: &View,
    compacted: i64,
    revision: i64,
    epoch: u64,
) -> Result<u32, Error> {
    let keep = if compacted > 0 {
        kept(index, compacted, revision, epoch)?
    } else {
        Keep::default()
    };
    let mut hasher = KvHasher::new(compacted, revision, &keep);
    view.scan(
        Table::Key,
        (Bound::Unbounded, Bound::Unbounded),
        |key, value, _sum| {
            if let Some(row) = RowKey::decode(key) {
                hasher.write(row, key, value);
            }
            Ok(true)
        },
    )?;
    Ok(hasher.finish())
}

/// Which rows at or before the compaction count.
fn kept(index: &RwLock<Index>, compacted: i64, revision: i64, epoch: u64) -> Result<Keep, Error> {
    let mut old = Vec::new();
    let mut newer = None;
    each_kept(index, revision, epoch, |kept| {
        if kept.main <= compacted {
            old.push(kept);
        } else {
            newer = Some(kept);
        }
    })?;
    // A row newer than the compaction always counts; one of them says that not nothing is kept.
    if old.is_empty() {
        old.extend(newer);
    }
    if old.is_empty() {
        // etcd counts all rows that are there when no key is alive, so that its hash changes while
        // a compaction removes some, and members that are not equally far differ. These are the
        // rows that are there once it is done.
        each_kept(index, compacted, epoch, |kept| old.push(kept))?;
    }
    if old.is_empty() {
        return Ok(Keep::of_nothing());
    }
    Ok(Keep::new(old))
}

/// Calls `visit` with the newest row at `at` of each key that exists then.
fn each_kept(
    index: &RwLock<Index>,
    at: i64,
    epoch: u64,
    mut visit: impl FnMut(Revision),
) -> Result<(), Error> {
    let mut after: Option<Box<[u8]>> = None;
    loop {
        let index = index.read();
        if index.compacted() > at || index.epoch() != epoch {
            return Err(Error::Compacted);
        }
        after = index.kept_for_hash(at, after.as_deref(), KEYS_PER_STEP, &mut visit);
        if after.is_none() {
            return Ok(());
        }
    }
}
