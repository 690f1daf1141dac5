//! Everything that a file says, in one pass over its pages.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::key_table::KeyTable;
use super::pair::Pair;
use super::records::LeaseRecord;
use super::row_hash::RowHash;
use super::{EtcdFile, KEY, Status, damaged, row_key};
use crate::bolt::{EntryRef, ReadAt, Report};
use crate::error::Error;
use crate::state::HashKv;

/// What one pass over every page found. `V` is what the caller keeps of each key.
#[derive(Debug)]
pub struct Survey<V> {
    /// What is wrong with the pages.
    pub report: Report,
    /// What is in them; an error when a bucket or a record in it is damaged. Problems of free
    /// pages alone do not count.
    pub content: Result<Content<V>, Error>,
}

/// The content of a sound file.
#[derive(Debug)]
pub struct Content<V> {
    /// What `etcdutl snapshot status` prints.
    pub status: Status,
    /// HashKV at the newest revision.
    pub hash: HashKv,
    /// Leases by id, with their keys.
    pub leases: Vec<LeaseRecord>,
    keys: KeyTable<Slot<V>>,
}

impl<V> Content<V> {
    /// What the caller keeps of each key that a client sees at the newest revision, by key.
    pub fn into_keys(self) -> impl Iterator<Item = (Box<[u8]>, V)> {
        let slots = self.keys.into_sorted().into_iter();
        slots.map(|(key, slot)| (key, slot.value))
    }
}

/// A key that exists as far as the pass has come.
#[derive(Debug)]
struct Slot<V> {
    /// Place of its newest row among those at or before the compaction.
    early: Option<usize>,
    lease: i64,
    value: V,
}

/// What the pass has seen.
struct Tally<V, F> {
    keep: F,
    sum: u32,
    rows: u64,
    revision: i64,
    keys: KeyTable<Slot<V>>,
    hash: RowHash,
    /// The first damaged record.
    error: Option<Error>,
}

impl<V, F: FnMut(&Pair<'_>) -> V> Tally<V, F> {
    fn entry(&mut self, bucket: Option<&[u8]>, entry: EntryRef<'_>) -> Result<(), Error> {
        self.sum = crc32c::crc32c_append(self.sum, entry.key);
        let Some(name) = bucket else {
            return if entry.is_bucket {
                Ok(())
            } else {
                let reason = "an entry outside any bucket";
                Err(damaged("root", entry.key, reason))
            };
        };
        self.rows += 1;
        let is_row = name == KEY.as_bytes();
        if entry.is_bucket {
            return if is_row {
                Err(damaged(KEY, entry.key, "a bucket instead of a row"))
            } else {
                Ok(())
            };
        }
        self.sum = crc32c::crc32c_append(self.sum, entry.value);
        if is_row {
            self.row(entry.key, entry.value)?;
        }
        Ok(())
    }

    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let row = row_key(key)?;
        self.revision = row.revision.main;
        let pair = Pair::decode(value).ok_or_else(|| damaged(KEY, key, "not a key-value"))?;
        let early = self.hash.write(row, key, value);
        let slot = (!row.is_tombstone).then(|| Slot {
            early,
            lease: pair.lease,
            value: (self.keep)(&pair),
        });
        let before = self.keys.set(pair.key, slot).and_then(|slot| slot.early);
        if let Some(before) = before {
            self.hash.supersede(before, row.revision.main);
        }
        Ok(())
    }

    /// Keys attached to leases.
    fn attached(&self) -> BTreeMap<i64, Vec<Bytes>> {
        let mut attached: BTreeMap<i64, Vec<Bytes>> = BTreeMap::new();
        self.keys
            .iter()
            .filter(|(key, slot)| slot.lease != 0 && !key.is_empty())
            .for_each(|(key, slot)| {
                let keys = attached.entry(slot.lease).or_default();
                keys.push(Bytes::copy_from_slice(key));
            });
        attached
    }
}

impl<R: ReadAt> EtcdFile<R> {
    /// Reads every page once: checks it, and computes all that is computed from the rows. `keep`
    /// says what is to be kept of a key; it is called for each row that is not a tombstone.
    ///
    /// Needs memory for the keys and what is kept of them, not for the values.
    pub fn survey<V>(&self, keep: impl FnMut(&Pair<'_>) -> V) -> Survey<V> {
        let compact_revision = self.compact_revision();
        let mut tally = Tally {
            keep,
            sum: 0,
            rows: 0,
            revision: 0,
            keys: KeyTable::new(),
            hash: RowHash::new(*compact_revision.as_ref().unwrap_or(&-1)),
            error: None,
        };
        let report = self.bolt().check_each(|bucket, entry| {
            if tally.error.is_none() {
                tally.error = tally.entry(bucket, entry).err();
            }
        });
        let content = match (report.problems.first(), compact_revision) {
            (Some(problem), _) if report.bucket_problems > 0 => Err(Error::Format {
                what: "the database file",
                reason: problem.to_string(),
            }),
            (_, Err(error)) => Err(error),
            (_, Ok(compact_revision)) => self.content(tally, compact_revision),
        };
        Survey { report, content }
    }

    fn content<V, F: FnMut(&Pair<'_>) -> V>(
        &self,
        mut tally: Tally<V, F>,
        compact_revision: i64,
    ) -> Result<Content<V>, Error> {
        if let Some(error) = tally.error.take() {
            return Err(error);
        }
        let count = |count| u64::try_from(count).unwrap_or(u64::MAX);
        let total_key = count(tally.keys.len());
        let current_revision = self.revision()?;
        let leases = self.leases_of(tally.attached())?;
        let hash = tally.hash.finish(tally.keys.len() > 0);
        // The row that marks a bumped revision has no key; no client can see it.
        tally.keys.set(&[], None);
        Ok(Content {
            status: Status {
                hash: tally.sum,
                revision: tally.revision,
                total_key,
                client_key: count(tally.keys.len()),
                total_row: tally.rows,
                total_size: self.bolt().size(),
                version: self.storage_version()?.unwrap_or_default(),
            },
            hash: HashKv {
                hash,
                compact_revision,
                hash_revision: current_revision,
                current_revision,
            },
            leases,
            keys: tally.keys,
        })
    }
}
