//! The store of the same process as a source: one consistent view, written out while it is read.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt as _;
use holdfast_store::state::{HashKv, State};

use super::buffer::{self, Overflow, Writer};
use super::{ObservedRevision, SnapshotStream, Source, TRAILER_BYTES};
use crate::digest::Digester;
use crate::error::{Error, Result};
use crate::manifest::{SourceHash, SourceRecord};

/// Bytes handed over at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The store of the same process.
#[derive(Debug, Clone)]
pub struct BundledSource {
    state: Arc<State>,
    cluster_id: String,
    member_id: String,
    version: String,
    overflow: Option<Overflow>,
}

impl BundledSource {
    /// A source over `state` of the member with these ids, which runs `version`.
    pub fn new(state: Arc<State>, cluster_id: u64, member_id: u64, version: &str) -> Self {
        Self {
            state,
            cluster_id: format!("{cluster_id:x}"),
            member_id: format!("{member_id:x}"),
            version: version.to_owned(),
            overflow: None,
        }
    }

    /// What a slow vault does not take waits there, so that the store's read view is not held for
    /// it.
    #[must_use]
    pub fn with_overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = Some(overflow);
        self
    }

    /// What is read.
    pub(crate) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state)
    }

    /// How a backup names this source.
    pub(crate) fn record(&self) -> SourceRecord {
        SourceRecord {
            kind: "bundled".to_owned(),
            endpoint: "bundled".to_owned(),
            cluster_id: Some(self.cluster_id.clone()),
            member_id: Some(self.member_id.clone()),
            server_version: Some(self.version.clone()),
        }
    }

    /// The id of the member, in hexadecimal.
    pub(super) fn member_id(&self) -> &str {
        &self.member_id
    }

    fn told(&self, told: Result<HashKv, holdfast_store::error::Error>) -> SourceHash {
        match told {
            Ok(told) => SourceHash::Told {
                hash: told.hash,
                revision: told.hash_revision,
                compact_revision: told.compact_revision,
                members: vec![self.member_id.clone()],
                divergent: Vec::new(),
            },
            Err(error) => SourceHash::Unavailable {
                reason: error.to_string(),
            },
        }
    }

    fn failed(error: &impl std::fmt::Display) -> Error {
        Error::Source {
            endpoint: "bundled store".to_owned(),
            reason: error.to_string(),
        }
    }
}

#[async_trait]
impl Source for BundledSource {
    async fn open(&self, _avoid: &[String]) -> Result<SnapshotStream> {
        let state = Arc::clone(&self.state);
        let (export, bytes) = tokio::task::spawn_blocking(move || {
            let mut export = state.export().map_err(|error| Self::failed(&error))?;
            let bytes = export.measure().map_err(|error| Self::failed(&error))?;
            Ok::<_, Error>((export, bytes))
        })
        .await??;
        let (writer, reader) = buffer::buffer(self.overflow.clone());
        let writing = tokio::task::spawn_blocking(move || write_out(export, writer));
        // The writer ends by itself when the stream is dropped: its next send fails.
        drop(writing);
        let trailer = u64::try_from(TRAILER_BYTES).unwrap_or(u64::MAX);
        Ok(SnapshotStream {
            source: self.record(),
            divergent: Vec::new(),
            expected_bytes: bytes.checked_add(trailer),
            chunks: reader.chunks().boxed(),
        })
    }

    async fn hash_kv(&self, revision: i64) -> Result<SourceHash> {
        let state = Arc::clone(&self.state);
        let told = tokio::task::spawn_blocking(move || state.hash_kv(revision)).await?;
        Ok(self.told(told))
    }

    async fn fresh_hash_kv(&self, revision: i64) -> Result<SourceHash> {
        let state = Arc::clone(&self.state);
        // The newest revision's hash is never a remembered one.
        let told = tokio::task::spawn_blocking(move || state.hash_kv(0)).await?;
        Ok(match told {
            Ok(told) if told.hash_revision != revision => SourceHash::Unavailable {
                reason: format!("the store is at revision {} already", told.hash_revision),
            },
            told => self.told(told),
        })
    }

    async fn latest_revision(&self) -> Result<ObservedRevision> {
        Ok(ObservedRevision {
            revision: self.state.revision(),
            cluster_id: Some(self.cluster_id.clone()),
        })
    }

    fn describe(&self) -> String {
        format!("bundled store, member {}", self.member_id)
    }
}

/// Runs on a blocking thread: the export, then the digest of what it wrote.
fn write_out(mut export: holdfast_store::export::Export, writer: Writer) {
    let mut sink = Chunks {
        writer,
        chunk: Vec::with_capacity(CHUNK_BYTES),
        sum: Digester::default(),
    };
    let outcome = export
        .write_to(&mut sink)
        .map_err(|error| BundledSource::failed(&error));
    drop(export);
    if let Err(error) = outcome.and_then(|_bytes| sink.finish()) {
        sink.writer.fail(error);
    }
}

struct Chunks {
    writer: Writer,
    chunk: Vec<u8>,
    sum: Digester,
}

impl Chunks {
    fn send(&mut self) -> io::Result<()> {
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
        if chunk.is_empty() {
            return Ok(());
        }
        self.writer.send(chunk.into())
    }

    fn finish(&mut self) -> Result<()> {
        let digest = std::mem::take(&mut self.sum).finish();
        self.chunk.extend_from_slice(digest.as_bytes());
        self.send().map_err(|error| BundledSource::failed(&error))
    }
}

impl io::Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sum.update(bytes);
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
