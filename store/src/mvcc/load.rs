//! Building the index from the rows, on all cores.

use std::ops::Bound;
use std::sync::Mutex;

use crate::backend::{Table, View};
use crate::error::Error;
use crate::etcd_file::Pair;

use super::index::Index;
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

#[derive(Debug)]
struct Row {
    key: Box<[u8]>,
    at: RowKey,
    created: i64,
    version: i64,
    lease: i64,
}

#[derive(Debug, Default)]
struct Piece {
    rows: Vec<Row>,
    sum: u64,
}

/// Reads and verifies every row of the `key` table.
pub(crate) fn load(view: &View, threads: usize, epoch: u64) -> Result<Loaded, Error> {
    let pieces = read_pieces(view, threads.max(1))?;
    let sum = pieces
        .iter()
        .fold(0_u64, |sum, piece| sum.wrapping_add(piece.sum));
    let mut rows: Vec<Row> = Vec::with_capacity(pieces.iter().map(|piece| piece.rows.len()).sum());
    for piece in pieces {
        rows.extend(piece.rows);
    }
    let count = u64::try_from(rows.len()).unwrap_or(u64::MAX);
    let newest = rows
        .iter()
        .map(|row| row.at.revision.main)
        .max()
        .unwrap_or(0);
    // Stable: the rows of one key stay in the order of their revisions.
    rows.sort_by(|left, right| left.key.cmp(&right.key));
    let (keys, leased) = group(rows);
    Ok(Loaded {
        index: Index::from_sorted(keys, epoch),
        leased,
        newest,
        sum,
        rows: count,
    })
}

fn read_pieces(view: &View, threads: usize) -> Result<Vec<Piece>, Error> {
    let Some((first, last)) = view.key_ends()? else {
        return Ok(Vec::new());
    };
    let (first, last) = (decode(&first)?.revision.main, decode(&last)?.revision.main);
    let pieces = i64::try_from(threads)
        .unwrap_or(1)
        .saturating_mul(PIECES_PER_THREAD);
    let width = (last - first) / pieces + 1;
    if threads == 1 {
        return Ok(vec![read_piece(view, first, last.saturating_add(1))?]);
    }
    let next = Mutex::new(0_i64);
    let done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| -> Result<Vec<(i64, Piece)>, Error> {
                    let mut mine = Vec::new();
                    loop {
                        let piece = {
                            let mut next = next
                                .lock()
                                .unwrap_or_else(std::sync::PoisonError::into_inner);
                            let piece = *next;
                            *next += 1;
                            piece
                        };
                        if piece >= pieces {
                            return Ok(mine);
                        }
                        let from = first.saturating_add(piece.saturating_mul(width));
                        mine.push((piece, read_piece(view, from, from.saturating_add(width))?));
                    }
                })
            })
            .collect();
        let mut done = Vec::new();
        for worker in workers {
            done.extend(
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?,
            );
        }
        Ok::<_, Error>(done)
    });
    let mut done = done?;
    done.sort_by_key(|(piece, _)| *piece);
    Ok(done.into_iter().map(|(_, piece)| piece).collect())
}

fn read_piece(view: &View, from: i64, to: i64) -> Result<Piece, Error> {
    let mut piece = Piece::default();
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
        piece.sum = piece.sum.wrapping_add(u64::from(sum));
        let mut row = Row {
            key: pair.key.into(),
            at,
            created: pair.create_revision,
            version: pair.version,
            lease: pair.lease,
        };
        if at.is_tombstone {
            row.lease = 0;
        }
        piece.rows.push(row);
        Ok(true)
    })?;
    piece.rows.sort_by(|left, right| left.key.cmp(&right.key));
    Ok(piece)
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

type Keys = Vec<(Box<[u8]>, KeyIndex)>;
/// Keys with the leases they carry.
type Leased = Vec<(Box<[u8]>, i64)>;

/// Folds the sorted rows into one entry for each key.
fn group(rows: Vec<Row>) -> (Keys, Leased) {
    let mut keys: Keys = Vec::new();
    let mut leased: Leased = Vec::new();
    for row in rows {
        let is_known = keys.last().is_some_and(|(key, _)| *key == row.key);
        match keys.last_mut() {
            Some((_, versions)) if is_known => {
                if row.at.is_tombstone {
                    // A second tombstone in a row, as a file may hold, changes nothing.
                    let _was_live = versions.tombstone(row.at.revision);
                } else {
                    versions.put(row.at.revision);
                }
            }
            _ => keys.push((row.key.clone(), first_of(&row))),
        }
        if leased.last().is_some_and(|(key, _)| *key == row.key) {
            leased.pop();
        }
        if row.lease != 0 {
            leased.push((row.key, row.lease));
        }
    }
    (keys, leased)
}

fn first_of(row: &Row) -> KeyIndex {
    if row.at.is_tombstone {
        KeyIndex::restored_tombstone(row.at.revision)
    } else {
        let (created, version) = (row.created, row.version);
        KeyIndex::restored(Found {
            modified: row.at.revision,
            created,
            version,
        })
    }
}
