//! A cluster of the bundled store as a source, seen from one of its members: a healthy follower is
//! read over the network, and this member itself where there is none.

use async_trait::async_trait;

use super::{BundledSource, EtcdSource, EtcdSpec, ObservedRevision, SnapshotStream, Source};
use crate::error::{Error, Result};
use crate::manifest::SourceHash;

/// One member of a cluster, and how all of them are reached.
#[derive(Debug, Clone)]
pub struct ClusterSource {
    own: BundledSource,
    all: EtcdSource,
}

impl ClusterSource {
    /// A source over `own`, whose cluster's members answer at the client URLs `endpoints`, its own
    /// among them.
    pub fn new(own: BundledSource, endpoints: Vec<String>) -> Result<Self> {
        let all = EtcdSource::new(EtcdSpec::at(endpoints))?;
        Ok(Self { own, all })
    }

    /// This member's own view, with what the others said of each other.
    async fn open_own(&self, divergent: Vec<String>) -> Result<SnapshotStream> {
        let stream = self.own.open(&[]).await?;
        Ok(SnapshotStream {
            divergent,
            ..stream
        })
    }
}

#[async_trait]
impl Source for ClusterSource {
    async fn open(&self, avoid: &[String]) -> Result<SnapshotStream> {
        let mut stream = match self.all.open(avoid).await {
            Ok(stream) => stream,
            // Advertised addresses that nobody can reach from here: a backup of this member is
            // better than none. Members that answer and disagree are another matter.
            Err(error @ Error::NoUsableMember { .. }) => {
                if self.all.is_reachable().await {
                    return Err(error);
                }
                tracing::warn!(%error, "no member of the cluster answers; this one is read itself");
                return self.open_own(Vec::new()).await;
            }
            Err(error) => return Err(error),
        };
        // Of the one chosen; none of the others is as good, so it need not go over the network.
        if stream.source.member_id.as_deref() == Some(self.own.member_id()) {
            return self.open_own(stream.divergent).await;
        }
        tracing::info!(
            endpoint = stream.source.endpoint,
            member_id = stream.source.member_id,
            "a follower is read"
        );
        "bundled".clone_into(&mut stream.source.kind);
        Ok(stream)
    }

    async fn hash_kv(&self, revision: i64) -> Result<SourceHash> {
        match self.all.hash_kv(revision).await {
            Err(Error::NoUsableMember { .. }) => self.own.hash_kv(revision).await,
            told => told,
        }
    }

    async fn fresh_hash_kv(&self, revision: i64) -> Result<SourceHash> {
        match self.all.fresh_hash_kv(revision).await {
            Err(Error::NoUsableMember { .. }) => self.own.fresh_hash_kv(revision).await,
            told => told,
        }
    }

    async fn latest_revision(&self) -> Result<ObservedRevision> {
        self.own.latest_revision().await
    }

    fn describe(&self) -> String {
        format!("{}, and its cluster", self.own.describe())
    }
}
