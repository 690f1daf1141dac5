//! The store of the same process: its applied rows, read where it keeps them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdfast_proto::etcd::kv;
use holdfast_store::ErrorKind;
use holdfast_store::state::State;

use super::{CUT_BYTES, Feed, broken};
use crate::delta::Followed;
use crate::error::{Error, Result};
use crate::manifest::{SourceHash, SourceRecord};
use crate::source::{BundledSource, Source as _};

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Bytes of events read at once.
const READ_BYTES: usize = 4 * 1024 * 1024;

/// The bundled store, followed.
#[derive(Debug, Clone)]
pub struct BundledFeed {
    state: Arc<State>,
    source: SourceRecord,
    at: i64,
}

impl BundledFeed {
    /// Follows `state`, which is described by `source`, from `revision` on.
    pub fn open(state: Arc<State>, source: SourceRecord, revision: i64) -> Result<Self> {
        let newest = state.revision();
        if newest < revision {
            let reason = format!("the store has gone back to revision {newest}");
            return Err(broken(revision, reason));
        }
        Ok(Self {
            state,
            source,
            at: revision,
        })
    }

    /// What is there, a piece of it. Reading begins at the last revision known, not behind it: that
    /// it can be read proves that no compaction came beyond it.
    async fn read(&mut self) -> Result<Vec<kv::Event>> {
        let (state, at) = (Arc::clone(&self.state), self.at);
        let read = tokio::task::spawn_blocking(move || state.events(at, i64::MAX, READ_BYTES));
        let batch = match read.await? {
            Ok(batch) => batch,
            Err(holdfast_store::Error::Compacted) => {
                return Err(broken(at, "what follows was compacted before it was read"));
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                return Err(broken(at, error.to_string()));
            }
            Err(error) => {
                return Err(Error::Source {
                    endpoint: self.source.endpoint.clone(),
                    reason: error.to_string(),
                });
            }
        };
        self.at = batch.next.saturating_sub(1).max(at);
        let is_new = |event: &kv::Event| event.kv.as_ref().is_some_and(|kv| kv.mod_revision > at);
        Ok(batch.events.into_iter().filter(is_new).collect())
    }
}

#[async_trait]
impl Feed for BundledFeed {
    async fn next(&mut self) -> Result<Vec<kv::Event>> {
        if self.state.revision() <= self.at {
            tokio::time::sleep(LOOK_EVERY).await;
            return Ok(Vec::new());
        }
        self.read().await
    }

    async fn confirm(&mut self) -> Result<Vec<kv::Event>> {
        let newest = self.state.revision();
        let mut events = Vec::new();
        let mut bytes = 0_usize;
        while self.at < newest && bytes < CUT_BYTES {
            let more = self.read().await?;
            bytes = bytes.saturating_add(READ_BYTES);
            events.extend(more);
        }
        Ok(events)
    }

    async fn leases(&mut self, ids: &[i64]) -> Result<Vec<(i64, i64)>> {
        let infos = self.state.lease_infos();
        let known = infos.iter().map(|info| (info.id.0, info.granted_ttl_s));
        Ok(known.filter(|(id, _)| ids.contains(id)).collect())
    }

    fn source(&self) -> &SourceRecord {
        &self.source
    }
}

/// The bundled store and the cluster it must stay, for a session.
#[derive(Debug, Clone)]
pub struct FollowedBundled {
    store: BundledSource,
    cluster_id: Option<String>,
}

impl FollowedBundled {
    /// `cluster_id`: that of the backup followed, in hexadecimal.
    pub fn new(store: BundledSource, cluster_id: Option<String>) -> Self {
        Self { store, cluster_id }
    }
}

#[async_trait]
impl Followed for FollowedBundled {
    async fn feed(&self, revision: i64) -> Result<Box<dyn Feed>> {
        let record = self.store.record();
        if let (Some(expected), Some(found)) = (&self.cluster_id, &record.cluster_id)
            && expected != found
        {
            return Err(broken(
                revision,
                format!("the source is cluster {found} now"),
            ));
        }
        let feed = BundledFeed::open(self.store.state(), record, revision)?;
        Ok(Box::new(feed))
    }

    async fn hash_kv(&self, revision: i64) -> Result<SourceHash> {
        self.store.hash_kv(revision).await
    }
}
