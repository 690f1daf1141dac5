//! A real etcd, 3.4 to 3.7, as a source: dial, agree on a healthy member, stream its snapshot.

mod agree;
mod dial;
mod stream;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use holdfast_policies::{ByteSize, Span};
use holdfast_proto::etcd::rpc;
use serde::{Deserialize, Serialize};

use self::agree::{Answer, Choice};
pub(crate) use self::dial::{Dialled, answered};
use super::{ObservedRevision, SnapshotStream, Source};
use crate::error::{Error, Result};
use crate::manifest::SourceHash;

/// Most endpoints of one cluster.
pub const ENDPOINTS_MAX: usize = 32;

/// Slowest rate accepted, in bytes a second: below it no backup comes to its end.
const RATE_MIN: u64 = 16 * 1024;

/// Longest wait for one call that is not a stream.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest wait for a hash: the server reads all its rows for it.
const HASH_TIMEOUT: Duration = Duration::from_mins(5);

/// How an etcd cluster is reached. Names as etcdctl's flags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdSpec {
    /// Client URLs of the members, or `host:port`.
    pub endpoints: Vec<String>,
    /// TLS; needed by `https` endpoints.
    #[serde(default)]
    pub tls: Option<TlsSpec>,
    /// A user, when authentication is on.
    #[serde(default)]
    pub user: Option<UserSpec>,
    /// A stream that brings no bytes for this long has failed. Default: `30s`.
    #[serde(default = "idle_timeout")]
    pub idle_timeout: Span,
    /// At most so many bytes a second are read from the cluster. Default: not set, no limit.
    #[serde(default)]
    pub rate: Option<ByteSize>,
    /// A member further behind the newest revision than this is not read. Default: 10000.
    #[serde(default = "lag_revisions_max")]
    pub lag_revisions_max: i64,
}

/// TLS towards a source. Files are read anew for each connection, so that rotated ones count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSpec {
    /// Certificate authorities, PEM.
    pub cacert: PathBuf,
    /// Client certificate, PEM.
    #[serde(default)]
    pub cert: Option<PathBuf>,
    /// Its key, PEM.
    #[serde(default)]
    pub key: Option<PathBuf>,
    /// The name expected in the server's certificate, when it is not the endpoint's host.
    #[serde(default)]
    pub server_name: Option<String>,
}

/// A user of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserSpec {
    /// The name. Reading a snapshot needs the `root` role.
    pub name: String,
    /// A file whose first line is the password.
    pub password_file: PathBuf,
}

fn idle_timeout() -> Span {
    Span::from_secs(30)
}

const fn lag_revisions_max() -> i64 {
    10_000
}

impl EtcdSpec {
    /// These endpoints, everything else default.
    pub fn at<S: Into<String>>(endpoints: impl IntoIterator<Item = S>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls: None,
            user: None,
            idle_timeout: idle_timeout(),
            rate: None,
            lag_revisions_max: lag_revisions_max(),
        }
    }
}

/// An etcd cluster.
#[derive(Debug, Clone)]
pub struct EtcdSource {
    spec: EtcdSpec,
}

impl EtcdSource {
    /// Checks the settings; nothing is dialled yet.
    pub fn new(spec: EtcdSpec) -> Result<Self> {
        if spec.endpoints.is_empty() || spec.endpoints.len() > ENDPOINTS_MAX {
            return Err(Error::Refused {
                reason: format!("a source needs 1 to {ENDPOINTS_MAX} endpoints"),
            });
        }
        if spec.rate.is_some_and(|rate| rate.bytes() < RATE_MIN) {
            return Err(Error::Refused {
                reason: format!("a source's `rate` is at least {RATE_MIN} bytes a second"),
            });
        }
        Ok(Self { spec })
    }

    /// Whether any endpoint answers.
    pub(super) async fn is_reachable(&self) -> bool {
        let dialled = self.dial_all().await;
        dialled.iter().any(|(_, outcome)| outcome.is_ok())
    }

    /// Every endpoint with its status, or with the reason why there is none.
    async fn dial_all(&self) -> Vec<(String, Result<Dialled>)> {
        let dials = self.spec.endpoints.iter().map(|endpoint| async move {
            (endpoint.clone(), dial::dial(&self.spec, endpoint).await)
        });
        futures::future::join_all(dials).await
    }

    /// The member whose changes are followed: one that may be read, not the leader if another is as
    /// new.
    pub(crate) async fn member_to_follow(&self) -> Result<Dialled> {
        let (mut members, mut reasons) = split(self.dial_all().await);
        refuse_mixed_clusters(&members)?;
        let newest = members.iter().map(|member| member.revision).max();
        let newest = newest.unwrap_or(0);
        members.retain(
            |member| match member.refusal(newest, self.spec.lag_revisions_max) {
                Some(reason) => {
                    reasons.push(format!("{}: {reason}", member.endpoint));
                    false
                }
                None => true,
            },
        );
        members.sort_by_key(|member| (std::cmp::Reverse(member.revision), member.is_leader));
        let first = members.into_iter().next();
        first.ok_or(Error::NoUsableMember { reasons })
    }

    async fn hash_all(members: &mut [Dialled], revision: i64) -> Vec<Answer> {
        let asks = members.iter_mut().map(|member| async move {
            let told = member.hash_kv(revision).await;
            Answer {
                endpoint: member.endpoint.clone(),
                told,
            }
        });
        futures::future::join_all(asks).await
    }
}

fn split(dialled: Vec<(String, Result<Dialled>)>) -> (Vec<Dialled>, Vec<String>) {
    let mut members = Vec::new();
    let mut reasons = Vec::new();
    for (endpoint, outcome) in dialled {
        match outcome {
            Ok(member) => members.push(member),
            Err(Error::Source { reason, .. }) => reasons.push(format!("{endpoint}: {reason}")),
            Err(error) => reasons.push(format!("{endpoint}: {error}")),
        }
    }
    (members, reasons)
}

/// Members of more than one cluster among the endpoints would be mixed into one backup history.
fn refuse_mixed_clusters(members: &[Dialled]) -> Result<()> {
    let mut clusters: Vec<u64> = members.iter().map(|member| member.cluster_id).collect();
    clusters.sort_unstable();
    clusters.dedup();
    if clusters.len() > 1 {
        let named = members
            .iter()
            .map(|one| format!("{} is in {:x}", one.endpoint, one.cluster_id));
        return Err(Error::NoUsableMember {
            reasons: named.collect(),
        });
    }
    Ok(())
}

#[async_trait]
impl Source for EtcdSource {
    async fn open(&self, avoid: &[String]) -> Result<SnapshotStream> {
        let (mut members, mut reasons) = split(self.dial_all().await);
        refuse_mixed_clusters(&members)?;
        let newest = members
            .iter()
            .map(|member| member.revision)
            .max()
            .unwrap_or(0);
        let common = members
            .iter()
            .map(|member| member.revision)
            .min()
            .unwrap_or(0);
        let answers = Self::hash_all(&mut members, common).await;
        let choice = agree::choose(&answers)?;
        members.retain(
            |member| match member.refusal(newest, self.spec.lag_revisions_max) {
                Some(reason) => {
                    reasons.push(format!("{}: {reason}", member.endpoint));
                    false
                }
                None if choice.divergent.contains(&member.endpoint) => {
                    reasons.push(format!(
                        "{}: its HashKV differs from the others'",
                        member.endpoint
                    ));
                    false
                }
                None => true,
            },
        );
        for endpoint in &choice.divergent {
            tracing::warn!(
                endpoint,
                "member's HashKV differs from the others'; it is not read"
            );
        }
        let is_avoided = |member: &Dialled| avoid.contains(&member.endpoint);
        members.sort_by_key(|member| {
            (
                is_avoided(member),
                member.is_leader,
                std::cmp::Reverse(member.revision),
            )
        });
        let Some(member) = members.into_iter().next() else {
            return Err(Error::NoUsableMember { reasons });
        };
        let pace = stream::Pace {
            idle: self.spec.idle_timeout.as_duration(),
            rate: self.spec.rate.map(ByteSize::bytes),
        };
        open_stream(member, choice, pace).await
    }

    async fn hash_kv(&self, revision: i64) -> Result<SourceHash> {
        let (mut members, reasons) = split(self.dial_all().await);
        if members.is_empty() {
            return Err(Error::NoUsableMember { reasons });
        }
        let answers = Self::hash_all(&mut members, revision).await;
        Ok(agree::told(&answers, revision))
    }

    async fn fresh_hash_kv(&self, revision: i64) -> Result<SourceHash> {
        let (mut members, reasons) = split(self.dial_all().await);
        if members.is_empty() {
            return Err(Error::NoUsableMember { reasons });
        }
        let asks = members.iter_mut().map(|member| async move {
            let told = member.fresh_hash_kv(revision).await;
            Answer {
                endpoint: member.endpoint.clone(),
                told,
            }
        });
        let answers = futures::future::join_all(asks).await;
        Ok(agree::told(&answers, revision))
    }

    async fn latest_revision(&self) -> Result<ObservedRevision> {
        let (members, reasons) = split(self.dial_all().await);
        refuse_mixed_clusters(&members)?;
        members
            .iter()
            .max_by_key(|member| member.revision)
            .map(|member| ObservedRevision {
                revision: member.revision,
                cluster_id: Some(format!("{:x}", member.cluster_id)),
            })
            .ok_or(Error::NoUsableMember { reasons })
    }

    fn describe(&self) -> String {
        format!("etcd {}", self.spec.endpoints.join(","))
    }
}

async fn open_stream(
    mut member: Dialled,
    choice: Choice,
    pace: stream::Pace,
) -> Result<SnapshotStream> {
    let idle = pace.idle;
    let endpoint = member.endpoint.clone();
    let request = member.request(rpc::SnapshotRequest {});
    let opened = tokio::time::timeout(idle, member.maintenance.snapshot(request)).await;
    let messages = match opened {
        Ok(Ok(response)) => response.into_inner(),
        Ok(Err(status)) => return Err(answered(&endpoint, &status)),
        Err(_elapsed) => return Err(Error::Stalled { endpoint, idle }),
    };
    Ok(SnapshotStream {
        source: member.record(),
        divergent: choice.divergent,
        expected_bytes: u64::try_from(member.db_size).ok(),
        chunks: stream::chunks(messages, endpoint, pace).boxed(),
    })
}
