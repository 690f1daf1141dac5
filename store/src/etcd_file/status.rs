//! What `etcdutl snapshot status` prints.

use super::{EtcdFile, META};
use crate::bolt::ReadAt;
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

impl<R: ReadAt> EtcdFile<R> {
    /// Reads every page once. The digest is checked elsewhere.
    pub fn status(&self) -> Result<Status, Error> {
        Ok(self.survey(|_pair| ()).content?.status)
    }

    /// The version of the storage format, as `3.7.0`; absent before etcd 3.6.
    pub fn storage_version(&self) -> Result<Option<String>, Error> {
        self.text(META, b"storageVersion")
    }
}
