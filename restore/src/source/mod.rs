//! What a backup reads: an etcd snapshot as a stream of bytes, from one member, at one revision.

mod buffer;
mod bundled;
mod cluster;
mod etcd;
mod file;
mod trailer;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::error::Result;
use crate::manifest::{SourceHash, SourceRecord};

pub use buffer::Overflow;
pub use bundled::BundledSource;
pub use cluster::ClusterSource;
pub(crate) use etcd::{Dialled, answered};
pub use etcd::{ENDPOINTS_MAX, EtcdSource, EtcdSpec, TlsSpec, UserSpec};
pub use file::FileSource;
pub(crate) use trailer::TrailerCheck;

/// Bytes of the SHA-256 digest an etcd snapshot file ends in.
pub const TRAILER_BYTES: usize = 32;

/// A revision somebody may have seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedRevision {
    /// The revision.
    pub revision: i64,
    /// The cluster's id in hexadecimal, when told.
    pub cluster_id: Option<String>,
}

/// A snapshot being read: the bytes of an etcd snapshot file, its digest trailer included.
pub struct SnapshotStream {
    /// Who sends it.
    pub source: SourceRecord,
    /// Endpoints whose HashKV differed from the others' before the stream began.
    pub divergent: Vec<String>,
    /// Bytes to come, when the source says so; for progress only.
    pub expected_bytes: Option<u64>,
    /// The bytes. Ends after the trailer; any error ends it too.
    pub chunks: BoxStream<'static, Result<Bytes>>,
}

impl std::fmt::Debug for SnapshotStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotStream")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// Where snapshots come from.
#[async_trait]
pub trait Source: Send + Sync {
    /// Starts a snapshot from its beginning, on a member not listed in `avoid` (endpoints that
    /// failed before in this run; ignored when no other is left).
    async fn open(&self, avoid: &[String]) -> Result<SnapshotStream>;

    /// The source's own HashKV at `revision`, from all members that can tell it.
    async fn hash_kv(&self, revision: i64) -> Result<SourceHash>;

    /// As [`Source::hash_kv`], computed anew from the rows that are there, where members remember
    /// hashes. A compaction remembers the hash of the rows it is about to remove, and tells it from
    /// then on when asked for its own revision: no later copy can have that one. Only possible
    /// while `revision` is the source's newest.
    async fn fresh_hash_kv(&self, revision: i64) -> Result<SourceHash> {
        self.hash_kv(revision).await
    }

    /// The newest revision a client may have seen.
    async fn latest_revision(&self) -> Result<ObservedRevision>;

    /// What to call it in messages.
    fn describe(&self) -> String;
}

/// Which source a backup reads, as configured.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SourceSpec {
    /// The store of the same daemon.
    Bundled,
    /// An etcd cluster.
    Etcd(Box<EtcdSpec>),
}
