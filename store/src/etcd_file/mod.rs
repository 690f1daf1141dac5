//! What an etcd database file says: a snapshot, or a member's own database.
//!
//! etcd keeps its state in named buckets of a bbolt file. This reads all of them at rest, for
//! 3.4 to 3.7, and computes what etcd and etcdutl compute from them. It never writes.

mod history;
mod key_table;
mod pair;
mod records;
mod row_hash;
mod status;
mod survey;
mod trailer;

pub use pair::Pair;
pub(crate) use records::{AUTH_ENABLED, AUTH_REVISION};
pub use records::{Auth, ConfState, Downgrade, LeaseRecord};
pub use status::Status;
pub use survey::{Content, Survey};
pub use trailer::{Trailer, check_trailer};

use bytes::Bytes;

use crate::bolt::{Bolt, Bucket, ReadAt, Report};
use crate::error::Error;
use crate::mvcc::RowKey;

/// The rows of all revisions.
pub(crate) const KEY: &str = "key";
pub(crate) const META: &str = "meta";
pub(crate) const LEASE: &str = "lease";
pub(crate) const ALARM: &str = "alarm";
pub(crate) const CLUSTER: &str = "cluster";
pub(crate) const MEMBERS: &str = "members";
pub(crate) const AUTH: &str = "auth";
pub(crate) const AUTH_USERS: &str = "authUsers";
pub(crate) const AUTH_ROLES: &str = "authRoles";

/// The compaction that was asked for last (in the bucket `meta`).
pub(crate) const SCHEDULED_COMPACT: &[u8] = b"scheduledCompactRev";
/// The compaction that was carried out last.
pub(crate) const FINISHED_COMPACT: &[u8] = b"finishedCompactRev";

/// An open database file of etcd.
#[derive(Debug)]
pub struct EtcdFile<R> {
    bolt: Bolt<R>,
}

impl<R: ReadAt> EtcdFile<R> {
    /// Opens the file. Its digest is checked by [`check_trailer`], its pages by
    /// [`EtcdFile::check`].
    pub fn open(source: R) -> Result<Self, Error> {
        Ok(Self {
            bolt: Bolt::open(source)?,
        })
    }

    /// The file underneath.
    pub fn bolt(&self) -> &Bolt<R> {
        &self.bolt
    }

    /// Walks every page; see [`Bolt::check`].
    pub fn check(&self) -> Report {
        self.bolt.check()
    }

    /// The revision a server that starts from this file has; 1 for an empty store.
    pub fn revision(&self) -> Result<i64, Error> {
        Ok(self.newest_revision()?.max(1))
    }

    /// The revision that a bump counts from, as etcdutl does: 0 for an empty store.
    pub fn newest_revision(&self) -> Result<i64, Error> {
        let last = self.last_row()?.map_or(0, |row| row.revision.main);
        Ok(last.max(self.compact_revision()?))
    }

    /// The revision of the last compaction, carried out or only scheduled; -1: never compacted.
    pub fn compact_revision(&self) -> Result<i64, Error> {
        let finished = self.meta_revision(FINISHED_COMPACT)?.unwrap_or(-1);
        let scheduled = self.meta_revision(SCHEDULED_COMPACT)?.unwrap_or(-1);
        // A scheduled revision of 0 stands for none.
        Ok(if scheduled > 0 {
            finished.max(scheduled)
        } else {
            finished
        })
    }

    /// The key of the newest row.
    pub fn last_row(&self) -> Result<Option<RowKey>, Error> {
        let Some(bucket) = self.bucket(KEY)? else {
            return Ok(None);
        };
        match bucket.last()? {
            Some(entry) => row_key(&entry.key).map(Some),
            None => Ok(None),
        }
    }

    /// A bucket by name; a file of an older version lacks some.
    pub(crate) fn bucket(&self, name: &str) -> Result<Option<Bucket<'_, R>>, Error> {
        Ok(self.bolt.bucket(name.as_bytes())?)
    }

    /// One value of a bucket.
    pub(crate) fn value(&self, bucket: &str, key: &[u8]) -> Result<Option<Bytes>, Error> {
        match self.bucket(bucket)? {
            Some(bucket) => Ok(bucket.get(key)?),
            None => Ok(None),
        }
    }

    fn meta_revision(&self, key: &'static [u8]) -> Result<Option<i64>, Error> {
        match self.value(META, key)? {
            Some(value) => match RowKey::decode(&value) {
                Some(row) => Ok(Some(row.revision.main)),
                None => Err(damaged(META, key, "not a revision")),
            },
            None => Ok(None),
        }
    }
}

pub(crate) fn row_key(key: &[u8]) -> Result<RowKey, Error> {
    RowKey::decode(key).ok_or_else(|| damaged(KEY, key, "not a revision"))
}

/// A record that is not what its place asks for.
pub(crate) fn damaged(table: &'static str, key: &[u8], reason: &'static str) -> Error {
    // Keys in the file can be as long as requests; the start is enough to find one.
    const SHOWN: usize = 64;
    Error::Record {
        table,
        key: hex::encode(key.get(..SHOWN).unwrap_or(key)),
        reason,
    }
}
