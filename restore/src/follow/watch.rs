//! A real etcd, 3.4 to 3.7: one watch over every key.
//!
//! The watch begins at the last revision known, not behind it: the server accepts that only when
//! no compaction came beyond it, so nothing that follows can be missing, deletes at the compaction
//! included. One answer of the server (its fragments joined) holds whole revisions.

use std::time::Duration;

use async_trait::async_trait;
use holdfast_proto::etcd::rpc::watch_request::RequestUnion;
use holdfast_proto::etcd::{kv, rpc};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::metadata::MetadataValue;

use super::{CUT_BYTES, Feed, broken};
use crate::delta::Followed;
use crate::error::{Error, Result};
use crate::manifest::{SourceHash, SourceRecord};
use crate::source::{Dialled, EtcdSource, Source as _, answered};

/// Longest wait for the server to say where it stands.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes of one message from the server.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most bytes of the fragments of one answer.
const ANSWER_BYTES_MAX: usize = 128 * 1024 * 1024;

/// A watch over a real etcd.
pub struct WatchFeed {
    member: Dialled,
    requests: mpsc::Sender<rpc::WatchRequest>,
    answers: Streaming<rpc::WatchResponse>,
    source: SourceRecord,
    at: i64,
    /// Fragments of an answer that is not whole yet.
    fragments: Vec<kv::Event>,
    fragment_bytes: usize,
    /// The revision up to which the server last said that everything was sent.
    progress: Option<i64>,
}

impl std::fmt::Debug for WatchFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchFeed")
            .field("source", &self.source)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl WatchFeed {
    /// Follows `etcd` from `revision` on. `cluster_id`: that of the backup followed, in
    /// hexadecimal; another cluster ends the run.
    pub async fn open(etcd: &EtcdSource, revision: i64, cluster_id: Option<&str>) -> Result<Self> {
        let member = etcd.member_to_follow().await?;
        let found = format!("{:x}", member.cluster_id);
        if cluster_id.is_some_and(|expected| expected != found) {
            return Err(broken(
                revision,
                format!("the source is cluster {found} now"),
            ));
        }
        if member.revision < revision {
            let reason = format!("the source has gone back to revision {}", member.revision);
            return Err(broken(revision, reason));
        }
        let (requests, queue) = mpsc::channel(4);
        let everything = rpc::WatchCreateRequest {
            key: vec![0].into(),
            range_end: vec![0].into(),
            start_revision: revision,
            progress_notify: true,
            fragment: true,
            ..Default::default()
        };
        let mut feed_request = member.request(ReceiverStream::new(queue));
        // A member cut off from its leader ends the watch, and the next one is asked.
        let is_needed = MetadataValue::from_static("true");
        feed_request.metadata_mut().insert("hasleader", is_needed);
        send(
            &requests,
            &member.endpoint,
            RequestUnion::CreateRequest(everything),
        )
        .await?;
        let mut client = member.watch(MESSAGE_BYTES_MAX);
        let opened = tokio::time::timeout(CONFIRM_TIMEOUT, client.watch(feed_request)).await;
        let answers = opened
            .map_err(|_elapsed| stalled(&member.endpoint))?
            .map_err(|status| answered(&member.endpoint, &status))?
            .into_inner();
        Ok(Self {
            source: member.record(),
            member,
            requests,
            answers,
            at: revision,
            fragments: Vec::new(),
            fragment_bytes: 0,
            progress: None,
        })
    }

    /// One message: the events of a whole answer, or none.
    async fn message(&mut self) -> Result<Vec<kv::Event>> {
        let endpoint = &self.member.endpoint;
        let message = self.answers.message().await;
        let message = message.map_err(|status| answered(endpoint, &status))?;
        let message = message.ok_or_else(|| Error::Source {
            endpoint: endpoint.clone(),
            reason: "ended the watch".to_owned(),
        })?;
        self.check(&message)?;
        let revision = message.header.as_ref().map_or(0, |header| header.revision);
        if message.created {
            return Ok(Vec::new());
        }
        if message.events.is_empty() && !message.fragment && self.fragments.is_empty() {
            self.progress = self.progress.max(Some(revision));
            return Ok(Vec::new());
        }
        let bytes: usize = message.events.iter().map(prost::Message::encoded_len).sum();
        self.fragment_bytes = self.fragment_bytes.saturating_add(bytes);
        if self.fragment_bytes > ANSWER_BYTES_MAX {
            let reason = format!("one answer has more than {ANSWER_BYTES_MAX} bytes");
            return Err(broken(self.at, reason));
        }
        self.fragments.extend(message.events);
        if message.fragment {
            return Ok(Vec::new());
        }
        self.fragment_bytes = 0;
        let events = std::mem::take(&mut self.fragments);
        let newest = events.last().and_then(|event| event.kv.as_ref());
        self.at = newest
            .map_or(self.at, |pair| pair.mod_revision)
            .max(self.at);
        Ok(events)
    }

    /// What ends the run, and what ends this watch only.
    fn check(&self, message: &rpc::WatchResponse) -> Result<()> {
        if message.compact_revision > 0 {
            let reason = format!(
                "what follows was compacted at {} before it was read",
                message.compact_revision
            );
            return Err(broken(self.at, reason));
        }
        let cluster = message
            .header
            .as_ref()
            .map_or(0, |header| header.cluster_id);
        if cluster != 0 && cluster != self.member.cluster_id {
            return Err(broken(
                self.at,
                format!("the source is cluster {cluster:x} now"),
            ));
        }
        if message.canceled {
            return Err(Error::Source {
                endpoint: self.member.endpoint.clone(),
                reason: format!("ended the watch: {}", message.cancel_reason),
            });
        }
        Ok(())
    }

    /// Waits until the server says that everything was sent, as of now.
    async fn confirmed(&mut self) -> Result<Vec<kv::Event>> {
        let mut events = Vec::new();
        let mut bytes = 0_usize;
        self.progress = None;
        let request = RequestUnion::ProgressRequest(rpc::WatchProgressRequest {});
        send(&self.requests, &self.member.endpoint, request).await?;
        loop {
            let more = self.message().await?;
            bytes = more
                .iter()
                .map(prost::Message::encoded_len)
                .fold(bytes, usize::saturating_add);
            events.extend(more);
            // Some releases answer before they have sent everything: that is waited for.
            if self.progress.is_some_and(|progress| progress <= self.at) || bytes > CUT_BYTES {
                return Ok(events);
            }
        }
    }
}

#[async_trait]
impl Feed for WatchFeed {
    async fn next(&mut self) -> Result<Vec<kv::Event>> {
        self.message().await
    }

    async fn confirm(&mut self) -> Result<Vec<kv::Event>> {
        let endpoint = self.member.endpoint.clone();
        tokio::time::timeout(CONFIRM_TIMEOUT, self.confirmed())
            .await
            .map_err(|_elapsed| stalled(&endpoint))?
    }

    async fn leases(&mut self, ids: &[i64]) -> Result<Vec<(i64, i64)>> {
        let mut found = Vec::new();
        for id in ids {
            if let Some(ttl) = self.member.granted_ttl(*id).await? {
                found.push((*id, ttl));
            }
        }
        Ok(found)
    }

    fn source(&self) -> &SourceRecord {
        &self.source
    }
}

/// A real etcd and the cluster it must stay, for a session.
#[derive(Debug, Clone)]
pub struct FollowedEtcd {
    etcd: EtcdSource,
    cluster_id: Option<String>,
}

impl FollowedEtcd {
    /// `cluster_id`: that of the backup followed, in hexadecimal.
    pub fn new(etcd: EtcdSource, cluster_id: Option<String>) -> Self {
        Self { etcd, cluster_id }
    }
}

#[async_trait]
impl Followed for FollowedEtcd {
    async fn feed(&self, revision: i64) -> Result<Box<dyn Feed>> {
        let cluster_id = self.cluster_id.as_deref();
        let feed = WatchFeed::open(&self.etcd, revision, cluster_id).await?;
        Ok(Box::new(feed))
    }

    async fn hash_kv(&self, revision: i64) -> Result<SourceHash> {
        self.etcd.hash_kv(revision).await
    }
}

async fn send(
    requests: &mpsc::Sender<rpc::WatchRequest>,
    endpoint: &str,
    request: RequestUnion,
) -> Result<()> {
    let request = rpc::WatchRequest {
        request_union: Some(request),
    };
    requests.send(request).await.map_err(|_gone| Error::Source {
        endpoint: endpoint.to_owned(),
        reason: "ended the watch".to_owned(),
    })
}

fn stalled(endpoint: &str) -> Error {
    Error::Stalled {
        endpoint: endpoint.to_owned(),
        idle: CONFIRM_TIMEOUT,
    }
}
