//! What `etcdutl snapshot status` prints.

use std::collections::HashSet;

use super::pair::Pair;
use super::{EtcdFile, KEY, META, damaged, row_key};
use crate::bolt::{Bucket, ReadAt};
use crate::error::Error;

/// One line about a file. Two snapshots of the same data differ in `hash`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// CRC-32C over the names and entries of all buckets.
    pub hash: u32,
    /// Revision of the newest row; 0 for an empty store.
    pub revision: i64,
    /// Keys that exist at the newest revision: the count of etcdutl 3.6 and later, which takes the
    /// row that marks a bumped revision for one.
    pub total_key: u64,
    /// Keys that a client sees at the newest revision.
    pub client_key: u64,
    /// Entries of all buckets: what etcdutl 3.5 and earlier call the count of keys.
    pub total_row: u64,
    /// Size of the database in bytes, without a digest behind it.
    pub total_size: u64,
    /// The storage version; empty for files of etcd 3.5 and earlier.
    pub version: String,
}

#[derive(Default)]
struct Tally {
    hash: u32,
    revision: i64,
    rows: u64,
    keys: HashSet<Box<[u8]>>,
}

impl Tally {
    /// Counts what only rows of the key bucket have.
    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let row = row_key(key)?;
        self.revision = row.revision.main;
        let pair = Pair::decode(value).ok_or_else(|| damaged(KEY, key, "not a key-value"))?;
        if row.is_tombstone {
            self.keys.remove(pair.key);
        } else if !self.keys.contains(pair.key) {
            self.keys.insert(pair.key.into());
        }
        Ok(())
    }

    fn bucket<R: ReadAt>(&mut self, bucket: &Bucket<'_, R>, is_key: bool) -> Result<(), Error> {
        let mut cursor = bucket.cursor();
        while let Some(entry) = cursor.advance()? {
            self.rows += 1;
            self.hash = crc32c::crc32c_append(self.hash, entry.key);
            if entry.is_bucket {
                continue;
            }
            self.hash = crc32c::crc32c_append(self.hash, entry.value);
            if is_key {
                self.row(entry.key, entry.value)?;
            }
        }
        Ok(())
    }
}

impl<R: ReadAt> EtcdFile<R> {
    /// Reads every entry once. Pages and digest are checked elsewhere.
    pub fn status(&self) -> Result<Status, Error> {
        let mut tally = Tally::default();
        for entry in &self.bolt().root() {
            let name = entry?.key;
            let Some(bucket) = self.bolt().bucket(&name)? else {
                return Err(damaged("root", &name, "an entry outside any bucket"));
            };
            tally.hash = crc32c::crc32c_append(tally.hash, &name);
            tally.bucket(&bucket, name == KEY)?;
        }
        let total_key = u64::try_from(tally.keys.len()).unwrap_or(u64::MAX);
        let is_bumped = tally.keys.contains(b"".as_slice());
        Ok(Status {
            hash: tally.hash,
            revision: tally.revision,
            total_key,
            client_key: total_key.saturating_sub(u64::from(is_bumped)),
            total_row: tally.rows,
            total_size: self.bolt().size(),
            version: self.storage_version()?.unwrap_or_default(),
        })
    }

    /// The version of the storage format, as `3.7.0`; absent before etcd 3.6.
    pub fn storage_version(&self) -> Result<Option<String>, Error> {
        self.text(META, b"storageVersion")
    }
}
