//! Keys and rows at any revision.

use std::collections::HashMap;

use holdfast_proto::etcd::kv;

use super::pair::Pair;
use super::{EtcdFile, KEY, damaged, row_key};
use crate::bolt::ReadAt;
use crate::error::Error;
use crate::mvcc::{Keep, KvHasher, Revision, RowKey};
use crate::state::HashKv;

impl<R: ReadAt> EtcdFile<R> {
    /// Visits every row in order of revision: its decoded key, and the bytes of key and value.
    pub fn for_each_row<F>(&self, mut visit: F) -> Result<(), Error>
    where
        F: FnMut(RowKey, &[u8], &[u8]) -> Result<(), Error>,
    {
        let Some(bucket) = self.bucket(KEY)? else {
            return Ok(());
        };
        let mut cursor = bucket.cursor();
        while let Some(entry) = cursor.advance()? {
            if entry.is_bucket {
                return Err(damaged(KEY, entry.key, "a bucket instead of a row"));
            }
            visit(row_key(entry.key)?, entry.key, entry.value)?;
        }
        Ok(())
    }

    /// Visits every key that exists at `revision` (0: the newest), in order of its last change.
    ///
    /// Needs memory for the keys, not for the values.
    pub fn for_each_key<F>(&self, revision: i64, mut visit: F) -> Result<(), Error>
    where
        F: FnMut(&Pair<'_>) -> Result<(), Error>,
    {
        let revision = self.readable(revision)?;
        let keep = self.live(revision, i64::MAX)?;
        let mut kept = keep.iter().peekable();
        self.for_each_row(|row, key, value| {
            while kept.next_if(|kept| **kept < row.revision).is_some() {}
            if kept.peek() != Some(&&row.revision) {
                return Ok(());
            }
            let pair = Pair::decode(value).ok_or_else(|| damaged(KEY, key, "not a key-value"))?;
            // The row that marks a bumped revision has no key; no client can see it.
            if pair.key.is_empty() {
                Ok(())
            } else {
                visit(&pair)
            }
        })
    }

    /// Every key that exists at `revision` (0: the newest), in key order, in memory.
    pub fn keys(&self, revision: i64) -> Result<Vec<kv::KeyValue>, Error> {
        let mut keys = Vec::new();
        self.for_each_key(revision, |pair| {
            keys.push(pair.to_key_value());
            Ok(())
        })?;
        keys.sort_unstable_by(|left, right| left.key.cmp(&right.key));
        Ok(keys)
    }

    /// HashKV at `revision` (0: the newest), as etcdutl computes it once a compaction is done.
    pub fn hash_kv(&self, revision: i64) -> Result<HashKv, Error> {
        self.hash_kv_behind(revision, self.compact_revision()?)
    }

    /// As [`EtcdFile::hash_kv`], as if compacted at `compact_revision`, which is not before the
    /// file's own compaction: what a member answers that has compacted more since.
    pub fn hash_kv_behind(&self, revision: i64, compact_revision: i64) -> Result<HashKv, Error> {
        let current_revision = self.revision()?;
        let hash_revision = self.readable(revision)?;
        if compact_revision < self.compact_revision()? {
            return Err(Error::Compacted);
        }
        let keep = self.keep_for_hash(compact_revision, hash_revision)?;
        let mut hasher = KvHasher::new(compact_revision, hash_revision, &keep);
        self.for_each_row(|row, key, value| {
            hasher.write(row, key, value);
            Ok(())
        })?;
        Ok(HashKv {
            hash: hasher.finish(),
            compact_revision,
            hash_revision,
            current_revision,
        })
    }

    /// Which rows at or before the compaction are alive at `revision`.
    fn keep_for_hash(&self, compact_revision: i64, revision: i64) -> Result<Keep, Error> {
        if compact_revision < 0 {
            return Ok(Keep::default());
        }
        let mut keep = self.live(revision, compact_revision)?;
        // Whether any key at all is alive decides how superseded rows count.
        if keep.is_empty() {
            keep = self.live(revision, i64::MAX)?;
        }
        // Without any, those count that the compaction leaves, done or not.
        if keep.is_empty() {
            keep = self.live(compact_revision, compact_revision)?;
        }
        if keep.is_empty() {
            keep = Keep::of_nothing();
        }
        Ok(keep)
    }

    /// The newest rows, at or before `upto`, of the keys that exist at `revision`.
    fn live(&self, revision: i64, upto: i64) -> Result<Keep, Error> {
        let mut newest: HashMap<Box<[u8]>, Revision> = HashMap::new();
        self.for_each_row(|row, key, value| {
            if row.revision.main > revision {
                return Ok(());
            }
            let pair = Pair::decode(value).ok_or_else(|| damaged(KEY, key, "not a key-value"))?;
            if row.is_tombstone || row.revision.main > upto {
                newest.remove(pair.key);
            } else if let Some(slot) = newest.get_mut(pair.key) {
                *slot = row.revision;
            } else {
                newest.insert(pair.key.into(), row.revision);
            }
            Ok(())
        })?;
        Ok(Keep::new(newest.into_values().collect()))
    }

    /// Checks that a revision can be read and replaces 0 by the newest.
    fn readable(&self, revision: i64) -> Result<i64, Error> {
        let current = self.revision()?;
        match revision {
            0 => Ok(current),
            _ if revision < 0 => Err(Error::Option {
                option: "rev",
                reason: format!("{revision} is negative"),
            }),
            _ if revision < self.compact_revision()? => Err(Error::Compacted),
            _ if revision > current => Err(Error::FutureRevision),
            _ => Ok(revision),
        }
    }
}
