//! Building the index from the rows, on all cores.
//!
//! Each thread reads pieces of the table and leaves a run of short records in order of their keys;
//! the runs are merged into the index.

use std::ops::Bound;
use std::sync::Mutex;

use crate::backend::{Table, View};
use crate::error::Error;
use crate::etcd_file::Pair;

use super::blocks::{put_number, take_number};
use super::index::{Index, IndexBuilder};
use super::key_index::{Found, KeyIndex};
use super::revision::{Revision, RowKey};

/// Pieces of the table per thread, so that none waits long for the others.
const PIECES_PER_THREAD: i64 = 4;

/// What the rows say.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) index: Index,
    /// Keys that carry a lease, with it, in order.
    pub(crate) leased: Leased,
    /// The newest main revision; 0: no rows.
    pub(crate) newest: i64,
    /// Wrapping sum of the rows' checksums.
    pub(crate) sum: u64,
    pub(crate) rows: u64,
}

/// Keys with the leases they carry.
type Leased = Vec<(Box<[u8]>, i64)>;

/// What the index needs of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row<'run> {
    key: &'run [u8],
    at: RowKey,
    created: i64,
    version: i64,
    lease: i64,
}

/// Rows in order of key and revision, encoded.
#[derive(Debug, Default)]
struct Run {
    bytes: Vec<u8>,
    rows: u64,
    newest: i64,
    sum: u64,
}

/// Reads and verifies every row of the `key` table.
pub(crate) fn load(view: &View, threads: usize, epoch: u64) -> Result<Loaded, Error> {
    let runs = read_runs(view, threads.max(1))?;
    let (index, leased) = merge(&runs);
    Ok(Loaded {
        index: index.finish(epoch),
        leased,
        newest: runs.iter().map(|run| run.newest).max().unwrap_or(0),
        sum: runs
            .iter()
            .fold(0, |sum: u64, run| sum.wrapping_add(run.sum)),
        rows: runs.iter().map(|run| run.rows).sum(),
    })
}

/// One run for each thread.
fn read_runs(view: &View, threads: usize) -> Result<Vec<Run>, Error> {
    let Some((first, last)) = view.key_ends()? else {
        return Ok(Vec::new());
    };
    let (first, last) = (decode(&first)?.revision.main, decode(&last)?.revision.main);
    let pieces = i64::try_from(threads)
        .unwrap_or(1)
        .saturating_mul(PIECES_PER_THREAD);
    let width = (last - first) / pieces + 1;
    let next = Mutex::new(0..pieces);
    let work = || -> Result<Run, Error> {
        let mut reader = Reader::default();
        loop {
            let piece = next
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .next();
            let Some(piece) = piece else {
                return Ok(reader.finish());
            };
            let from = first.saturating_add(piece.saturating_mul(width));
            reader.read(view, from, from.saturating_add(width))?;
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut runs = vec![work()?];
        for worker in workers {
            let run = worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            runs.push(run?);
        }
        Ok(runs)
    })
}

/// Gathers the rows that one thread reads, in order of their revisions.
#[derive(Debug, Default)]
struct Reader {
    run: Run,
    order: Vec<Place>,
}

/// Where a row stands in the reader's bytes, and the first bytes of its key, which nearly always
/// tell its place in the order.
#[derive(Debug, Clone, Copy)]
struct Place {
    prefix: u64,
    start: usize,
}

impl Reader {
    fn read(&mut self, view: &View, from: i64, to: i64) -> Result<(), Error> {
        let (from, to) = (
            Revision::new(from, 0).encode(),
            Revision::new(to, 0).encode(),
        );
        let bounds = (
            Bound::Included(from.as_slice()),
            Bound::Excluded(to.as_slice()),
        );
        view.scan(Table::Key, bounds, |key, value, sum| {
            let at = decode(key)?;
            let pair = Pair::decode(value).ok_or_else(|| wrong(key, "not a key-value"))?;
            let run = &mut self.run;
            run.sum = run.sum.wrapping_add(u64::from(sum));
            run.rows += 1;
            run.newest = run.newest.max(at.revision.main);
            self.order.push(Place {
                prefix: prefix(pair.key),
                start: run.bytes.len(),
            });
            let row = Row {
                key: pair.key,
                at,
                created: pair.create_revision,
                version: pair.version,
                lease: if at.is_tombstone { 0 } else { pair.lease },
            };
            row.put(&mut run.bytes);
            Ok(true)
        })
    }

    fn finish(mut self) -> Run {
        let bytes = std::mem::take(&mut self.run.bytes);
        let rest = |start| bytes.get(start..).unwrap_or_default();
        // Stable: the rows of one key stay in the order of their revisions.
        self.order.sort_by(|left, right| {
            let by_key = || take_key(&mut rest(left.start)).cmp(take_key(&mut rest(right.start)));
            left.prefix.cmp(&right.prefix).then_with(by_key)
        });
        self.run.bytes.reserve_exact(bytes.len());
        for place in &self.order {
            let mut left = rest(place.start);
            let before = left.len();
            let _row = Row::take(&mut left);
            let row = rest(place.start).get(..before - left.len());
            self.run.bytes.extend_from_slice(row.unwrap_or_default());
        }
        self.run
    }
}

/// The first eight bytes, so that their order is that of the keys where they differ.
fn prefix(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    for (to, from) in first.iter_mut().zip(key) {
        *to = *from;
    }
    u64::from_be_bytes(first)
}

impl<'run> Row<'run> {
    fn put(&self, bytes: &mut Vec<u8>) {
        put_number(bytes, u64::try_from(self.key.len()).unwrap_or(u64::MAX));
        bytes.extend_from_slice(self.key);
        bytes.push(u8::from(self.at.is_tombstone));
        let Revision { main, sub } = self.at.revision;
        for number in [main, sub, self.created, self.version, self.lease] {
            put_number(bytes, number.cast_unsigned());
        }
    }

    /// Takes a row that [`Row::put`] wrote off the front; `None` at the end.
    fn take(bytes: &mut &'run [u8]) -> Option<Self> {
        if bytes.is_empty() {
            return None;
        }
        let key = take_key(bytes);
        let (&is_tombstone, rest) = bytes.split_first()?;
        *bytes = rest;
        let mut next = || take_number(bytes).cast_signed();
        let revision = Revision::new(next(), next());
        Some(Self {
            key,
            at: RowKey {
                revision,
                is_tombstone: is_tombstone != 0,
            },
            created: next(),
            version: next(),
            lease: next(),
        })
    }
}

fn take_key<'run>(bytes: &mut &'run [u8]) -> &'run [u8] {
    let length = usize::try_from(take_number(bytes)).unwrap_or(usize::MAX);
    let (key, rest) = bytes.split_at_checked(length).unwrap_or_default();
    *bytes = rest;
    key
}

fn decode(key: &[u8]) -> Result<RowKey, Error> {
    RowKey::decode(key).ok_or_else(|| wrong(key, "not a revision"))
}

fn wrong(key: &[u8], reason: &'static str) -> Error {
    Error::Record {
        table: Table::Key.name(),
        key: hex::encode(key),
        reason,
    }
}

/// Merges the runs and folds the rows of each key into one entry.
fn merge(runs: &[Run]) -> (IndexBuilder, Leased) {
    let mut runs: Vec<&[u8]> = runs.iter().map(|run| run.bytes.as_slice()).collect();
    let mut heads: Vec<Option<Row<'_>>> = runs.iter_mut().map(Row::take).collect();
    let mut index = IndexBuilder::default();
    let mut leased: Leased = Vec::new();
    let mut key: Option<Folded<'_>> = None;
    loop {
        let first = heads
            .iter()
            .enumerate()
            .filter_map(|(at, head)| head.map(|row| (row.key, row.at, at)))
            .min();
        let Some((_, _, at)) = first else { break };
        let (Some(head), Some(run)) = (heads.get_mut(at), runs.get_mut(at)) else {
            break;
        };
        let Some(row) = std::mem::replace(head, Row::take(run)) else {
            break;
        };
        match &mut key {
            Some(known) if known.key == row.key => known.add(&row),
            _ => {
                let done = key.replace(Folded::new(&row));
                finish(done, &mut index, &mut leased);
            }
        }
    }
    finish(key, &mut index, &mut leased);
    (index, leased)
}

fn finish(key: Option<Folded<'_>>, index: &mut IndexBuilder, leased: &mut Leased) {
    if let Some(Folded {
        key,
        versions,
        lease,
    }) = key
    {
        index.push(key, versions);
        if lease != 0 {
            leased.push((key.into(), lease));
        }
    }
}

/// A key and what its rows so far say.
#[derive(Debug)]
struct Folded<'run> {
    key: &'run [u8],
    versions: KeyIndex,
    lease: i64,
}

impl<'run> Folded<'run> {
    fn new(row: &Row<'run>) -> Self {
        let versions = if row.at.is_tombstone {
            KeyIndex::restored_tombstone(row.at.revision)
        } else {
            KeyIndex::restored(Found {
                modified: row.at.revision,
                created: row.created,
                version: row.version,
            })
        };
        Self {
            key: row.key,
            versions,
            lease: row.lease,
        }
    }

    fn add(&mut self, row: &Row<'_>) {
        if row.at.is_tombstone {
            // A second tombstone in a row, as a file may hold, changes nothing.
            let _was_live = self.versions.tombstone(row.at.revision);
        } else {
            self.versions.put(row.at.revision);
        }
        self.lease = row.lease;
    }
}
