//! Filling a fresh store file: from an etcd database file, or from an older one of ours.

use std::path::Path;
use std::sync::Arc;

use crate::backend::{Backend, HEAD_KEY, Head, OpenStorage, Rows, Table, View, open_file};
use crate::bolt::{FileSource, ReadAt};
use crate::error::Error;
use crate::etcd_file::EtcdFile;
use crate::failpoint::{self, Point};
use crate::mvcc::Revision;

use super::records::Records;
use super::step::SCHEDULED_COMPACT_KEY;
use super::{LogPosition, Membership, StateOptions, open};

/// The newest revision a bumped state may have: enough is left for writes of any lifetime.
pub const BUMPED_REVISION_MAX: i64 = i64::MAX / 2;

/// Makes the state file of a member that was never started, durably; answers its newest revision.
/// Nothing of it is read back: starting the member does, and verifies every row.
///
/// An error leaves a part of it behind: the path is one that nobody opens before this is done.
pub fn build_state<R: ReadAt>(
    path: &Path,
    source: &EtcdFile<R>,
    at: LogPosition,
    membership: Membership,
    rewrite: &Rewrite,
) -> Result<i64, Error> {
    let storage: Arc<OpenStorage> = Arc::new(open_file);
    let mut fresh = Backend::open_path(path, &storage, StateOptions::default().cache_bytes)?;
    fill(
        &mut fresh,
        source,
        at,
        membership,
        rewrite,
        Removed::Forgotten,
    )?;
    fresh.checkpoint()?;
    let compacted = open::compacted(&fresh.view()?)?;
    Ok(fresh.head().revision.max(compacted))
}

/// How an installed state differs from the file's, as a restore asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rewrite {
    /// Added to the newest revision, so that no client saw a higher one; 0 leaves it.
    pub bump: i64,
    /// Compacts everything up to the newest revision, so that old watchers are told.
    pub mark_compacted: bool,
    /// Drops alarms.
    pub clear_alarms: bool,
}

/// What becomes of the ids of members that were removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removed {
    /// The same cluster goes on: they stay removed.
    Kept,
    /// A new cluster: the ids are of another one.
    Forgotten,
}

/// Bytes written in one transaction.
const BATCH_BYTES: u64 = 8 << 20;
/// Bytes written between two checkpoints: more would make one stall.
const CHECKPOINT_BYTES: u64 = 64 << 20;

/// Opens an etcd database file.
pub(super) fn open_source(file: &Path) -> Result<EtcdFile<FileSource>, Error> {
    let source = FileSource::open(file).map_err(|source| Error::Io {
        doing: "open the snapshot file",
        source,
    })?;
    EtcdFile::open(source).map_err(|error| wrong(&error))
}

fn wrong(error: &dyn std::error::Error) -> Error {
    let mut reason = error.to_string();
    if let Some(source) = error.source() {
        reason = format!("{reason}: {source}");
    }
    Error::Format {
        what: "the snapshot file",
        reason,
    }
}

/// Takes over all buckets of `source`; the members become those of `membership`.
pub(super) fn fill<R: ReadAt>(
    fresh: &mut Backend,
    source: &EtcdFile<R>,
    at: LogPosition,
    membership: Membership,
    rewrite: &Rewrite,
    removed: Removed,
) -> Result<(), Error> {
    // As etcdutl counts: an empty store is at 0 for a bump, and at 1 once it runs.
    let newest = source.newest_revision().map_err(|error| wrong(&error))?;
    let revision = newest.max(1);
    let bumped = bumped_revision(newest, rewrite.bump)?.max(1);
    for table in Table::ETCD {
        if table == Table::Alarm && rewrite.clear_alarms
            || table == Table::MembersRemoved && removed == Removed::Forgotten
        {
            continue;
        }
        let bucket = source
            .bolt()
            .bucket(table.name().as_bytes())
            .map_err(|error| wrong(&error))?;
        let Some(bucket) = bucket else {
            continue;
        };
        let mut cursor = bucket.cursor();
        let mut is_done = false;
        while !is_done {
            write(fresh, |rows| {
                rows.append(table, |rows| {
                    let mut written = 0;
                    while written < BATCH_BYTES {
                        let Some(entry) = cursor.advance().map_err(|error| wrong(&error))? else {
                            is_done = true;
                            break;
                        };
                        let (key, value) = (entry.key, entry.value);
                        if let Some(kept) = kept_value(table, key, value)? {
                            rows.push(key, kept)?;
                        }
                        written += u64::try_from(key.len() + value.len()).unwrap_or(u64::MAX);
                    }
                    Ok(())
                })
            })?;
        }
    }
    let mut records = Records::load(&fresh.view()?)?;
    fresh.write(|rows| {
        let head = rows.head_mut();
        head.applied = Some(at);
        head.revision = bumped;
        let newest = Revision::new(bumped, 0).encode();
        if bumped > revision {
            // etcd marks a bump by a row without a key; the same row gives the same hash.
            rows.put(Table::Key, &newest, b"")?;
        }
        if rewrite.mark_compacted {
            rows.put(Table::Meta, SCHEDULED_COMPACT_KEY, &newest)?;
        }
        records.set_membership(rows, membership, false)
    })
}

/// The newest revision after a bump; one that would overflow later is refused.
fn bumped_revision(revision: i64, bump: i64) -> Result<i64, Error> {
    let bumped = revision
        .checked_add(bump)
        .filter(|bumped| bump == 0 || (bump > 0 && *bumped <= BUMPED_REVISION_MAX));
    bumped.ok_or_else(|| Error::Option {
        option: "bump-revision",
        reason: format!("{revision} and {bump} do not make a revision up to {BUMPED_REVISION_MAX}"),
    })
}

/// What of a foreign row is taken over. What we state ourselves at export is left out.
fn kept_value<'value>(
    table: Table,
    key: &[u8],
    value: &'value [u8],
) -> Result<Option<&'value [u8]>, Error> {
    if table == Table::Key && crate::mvcc::RowKey::decode(key).is_none() {
        return Err(Error::Format {
            what: "the snapshot file",
            reason: format!("key {} is not a revision", hex::encode(key)),
        });
    }
    let is_ours = table == Table::Meta
        && matches!(
            key,
            b"consistent_index" | b"term" | b"confState" | b"storageVersion"
        );
    Ok((!is_ours).then_some(value))
}

/// Takes over all rows of a view, as the `head` of the same commit describes them.
pub(super) fn copy(fresh: &mut Backend, view: &View, head: &Head) -> Result<(), Error> {
    for table in Table::ETCD.into_iter().chain([Table::Own]) {
        let failed = failpoint::failure(Point::DefragDbFail, std::io::ErrorKind::Other);
        failed.map_err(|source| Error::Io {
            doing: "rewrite the store file",
            source,
        })?;
        let mut last: Option<Vec<u8>> = None;
        loop {
            let start = last
                .as_deref()
                .map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let bounds = (start, std::ops::Bound::Unbounded);
            let mut next = None;
            write(fresh, |rows| {
                let mut written = 0;
                view.scan(table, bounds, |key, value, _sum| {
                    if !(table == Table::Own && key == HEAD_KEY) {
                        rows.put(table, key, value)?;
                    }
                    written += u64::try_from(key.len() + value.len()).unwrap_or(u64::MAX);
                    if written >= BATCH_BYTES {
                        next = Some(key.to_vec());
                    }
                    Ok(written < BATCH_BYTES)
                })
            })?;
            if next.is_none() {
                break;
            }
            last = next;
        }
    }
    fresh.write(|rows| {
        if rows.head_mut().tallies != head.tallies {
            return Err(Error::Format {
                what: "the store file",
                reason: "rows are lost or stale".to_owned(),
            });
        }
        *rows.head_mut() = *head;
        Ok(())
    })
}

fn write(
    fresh: &mut Backend,
    work: impl FnOnce(&mut Rows<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    fresh.write(work)?;
    if fresh.dirty_bytes() >= CHECKPOINT_BYTES {
        fresh.checkpoint()?;
    }
    Ok(())
}
