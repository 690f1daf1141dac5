//! A snapshot file as a source: to import what `etcdctl snapshot save` wrote, and for tests.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::io::AsyncReadExt as _;

use super::{ObservedRevision, SnapshotStream, Source};
use crate::error::{Error, Result};
use crate::manifest::{SourceHash, SourceRecord};

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// A snapshot file. It cannot vouch for itself: without a hash given by whoever took the file,
/// a backup of it stops short of the level that compares hashes.
#[derive(Debug, Clone)]
pub struct FileSource {
    path: PathBuf,
    told: Option<SourceHash>,
    cluster_id: Option<String>,
}

impl FileSource {
    /// The file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            told: None,
            cluster_id: None,
        }
    }

    /// What the source cluster told about the file's revision when the file was taken.
    #[must_use]
    pub fn with_told_hash(mut self, told: SourceHash) -> Self {
        self.told = Some(told);
        self
    }

    /// The cluster the file was taken from.
    #[must_use]
    pub fn with_cluster_id(mut self, cluster_id: impl Into<String>) -> Self {
        self.cluster_id = Some(cluster_id.into());
        self
    }

    fn name(path: &Path) -> String {
        path.file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }
}

#[async_trait]
impl Source for FileSource {
    async fn open(&self, _avoid: &[String]) -> Result<SnapshotStream> {
        let file = tokio::fs::File::open(&self.path)
            .await
            .map_err(Error::io("open", &self.path))?;
        let length = file
            .metadata()
            .await
            .map_err(Error::io("read", &self.path))?
            .len();
        let path = self.path.clone();
        let chunks = futures::stream::try_unfold((file, path), |(mut file, path)| async move {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            let limit = u64::try_from(CHUNK_BYTES).unwrap_or(u64::MAX);
            let read = (&mut file)
                .take(limit)
                .read_to_end(&mut chunk)
                .await
                .map_err(Error::io("read", &path))?;
            Ok((read > 0).then(|| (Bytes::from(chunk), (file, path))))
        });
        Ok(SnapshotStream {
            source: SourceRecord {
                kind: "file".to_owned(),
                endpoint: Self::name(&self.path),
                cluster_id: self.cluster_id.clone(),
                member_id: None,
                server_version: None,
            },
            divergent: Vec::new(),
            expected_bytes: Some(length),
            chunks: chunks.boxed(),
        })
    }

    async fn hash_kv(&self, _revision: i64) -> Result<SourceHash> {
        Ok(self
            .told
            .clone()
            .unwrap_or_else(|| SourceHash::Unavailable {
                reason: "a file does not know what its cluster's hash was".to_owned(),
            }))
    }

    async fn latest_revision(&self) -> Result<ObservedRevision> {
        Err(Error::Source {
            endpoint: self.describe(),
            reason: "a file has no newest revision".to_owned(),
        })
    }

    fn describe(&self) -> String {
        format!("file {}", Self::name(&self.path))
    }
}
