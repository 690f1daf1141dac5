//! One connection to one member: TLS, user, status.

use std::fs;
use std::path::Path;

use holdfast_proto::etcd::rpc;
use holdfast_proto::etcd::rpc::auth_client::AuthClient;
use holdfast_proto::etcd::rpc::lease_client::LeaseClient;
use holdfast_proto::etcd::rpc::maintenance_client::MaintenanceClient;
use holdfast_proto::etcd::rpc::watch_client::WatchClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use zeroize::Zeroizing;

use super::{CALL_TIMEOUT, EtcdSpec, HASH_TIMEOUT, TlsSpec, UserSpec};
use crate::error::{Error, Result};
use crate::manifest::SourceRecord;

/// A member that answered.
pub(crate) struct Dialled {
    pub(crate) endpoint: String,
    pub(super) maintenance: MaintenanceClient<Channel>,
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    pub(crate) cluster_id: u64,
    pub(super) member_id: u64,
    pub(crate) revision: i64,
    pub(super) version: String,
    pub(super) db_size: i64,
    pub(super) is_leader: bool,
    is_learner: bool,
    has_leader: bool,
}

/// What HashKV answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ToldHash {
    pub(super) hash: u32,
    pub(super) compact_revision: i64,
    pub(super) hash_revision: i64,
}

impl Dialled {
    /// A request with this member's token.
    pub(crate) fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    /// What a backup or a delta says of where it came from.
    pub(crate) fn record(&self) -> SourceRecord {
        SourceRecord {
            kind: "etcd".to_owned(),
            endpoint: self.endpoint.clone(),
            cluster_id: Some(format!("{:x}", self.cluster_id)),
            member_id: Some(format!("{:x}", self.member_id)),
            server_version: Some(self.version.clone()),
        }
    }

    /// A client for watches, over the same connection.
    pub(crate) fn watch(&self, message_bytes_max: usize) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone()).max_decoding_message_size(message_bytes_max)
    }

    /// Granted time to live of a lease in seconds; `None` when there is no such lease.
    pub(crate) async fn granted_ttl(&self, id: i64) -> Result<Option<i64>> {
        let request = self.request(rpc::LeaseTimeToLiveRequest { id, keys: false });
        let mut client = LeaseClient::new(self.channel.clone());
        let answer = tokio::time::timeout(CALL_TIMEOUT, client.lease_time_to_live(request))
            .await
            .map_err(|_elapsed| silent(&self.endpoint))?
            .map_err(|status| answered(&self.endpoint, &status))?
            .into_inner();
        // A lease that is gone is answered with a time of -1.
        Ok((answer.ttl > 0 && answer.granted_ttl > 0).then_some(answer.granted_ttl))
    }

    pub(super) async fn hash_kv(&mut self, revision: i64) -> Result<ToldHash> {
        let answer = self.ask_hash(revision).await?;
        Ok(ToldHash {
            hash: answer.hash,
            compact_revision: answer.compact_revision,
            hash_revision: answer.hash_revision,
        })
    }

    /// The hash of the newest revision, which is never a remembered one, if that is `revision`.
    pub(super) async fn fresh_hash_kv(&mut self, revision: i64) -> Result<ToldHash> {
        let answer = self.ask_hash(0).await?;
        // The revision at which it was computed; etcd 3.4 and 3.5 say it in the header only.
        let newest = answer.header.unwrap_or_default().revision;
        if newest != revision {
            return Err(Error::Source {
                endpoint: self.endpoint.clone(),
                reason: format!("is at revision {newest} already, the copy at {revision}"),
            });
        }
        Ok(ToldHash {
            hash: answer.hash,
            compact_revision: answer.compact_revision,
            hash_revision: newest,
        })
    }

    async fn ask_hash(&mut self, revision: i64) -> Result<rpc::HashKvResponse> {
        let request = self.request(rpc::HashKvRequest { revision });
        let answer = tokio::time::timeout(HASH_TIMEOUT, self.maintenance.hash_kv(request))
            .await
            .map_err(|_elapsed| silent(&self.endpoint))?
            .map_err(|status| answered(&self.endpoint, &status))?;
        Ok(answer.into_inner())
    }

    /// Why this member must not be read; `None` when it may.
    pub(super) fn refusal(&self, newest: i64, lag_max: i64) -> Option<String> {
        if self.is_learner {
            return Some("a learner is still catching up".to_owned());
        }
        if !self.has_leader {
            return Some("sees no leader, so its data may be old".to_owned());
        }
        let lag = newest.saturating_sub(self.revision);
        (lag > lag_max).then(|| format!("{lag} revisions behind the newest member"))
    }
}

/// Connects, authenticates and asks for the status.
pub(super) async fn dial(spec: &EtcdSpec, endpoint: &str) -> Result<Dialled> {
    let channel = connect(spec.tls.as_ref(), endpoint).await?;
    let token = match &spec.user {
        Some(user) => Some(authenticate(channel.clone(), user, endpoint).await?),
        None => None,
    };
    let mut member = Dialled {
        endpoint: endpoint.to_owned(),
        maintenance: MaintenanceClient::new(channel.clone()),
        channel,
        token,
        cluster_id: 0,
        member_id: 0,
        revision: 0,
        version: String::new(),
        db_size: 0,
        is_leader: false,
        is_learner: false,
        has_leader: false,
    };
    let request = member.request(rpc::StatusRequest {});
    let status = tokio::time::timeout(CALL_TIMEOUT, member.maintenance.status(request))
        .await
        .map_err(|_elapsed| silent(endpoint))?
        .map_err(|status| answered(endpoint, &status))?
        .into_inner();
    let header = status.header.unwrap_or_default();
    member.cluster_id = header.cluster_id;
    member.member_id = header.member_id;
    member.revision = header.revision;
    member.is_leader = status.leader == header.member_id;
    member.has_leader = status.leader != 0;
    member.is_learner = status.is_learner;
    member.version = status.version;
    member.db_size = status.db_size;
    if !status.errors.is_empty() {
        tracing::warn!(endpoint, errors = ?status.errors, "source member reports errors");
    }
    Ok(member)
}

async fn connect(tls: Option<&TlsSpec>, endpoint: &str) -> Result<Channel> {
    let failed = |reason: String| Error::Source {
        endpoint: endpoint.to_owned(),
        reason,
    };
    let url = match (endpoint.contains("://"), tls) {
        (true, _) => endpoint.to_owned(),
        (false, Some(_)) => format!("https://{endpoint}"),
        (false, None) => format!("http://{endpoint}"),
    };
    if url.starts_with("https://") && tls.is_none() {
        return Err(failed(
            "an https endpoint needs `tls` with a `cacert`".to_owned(),
        ));
    }
    if url.starts_with("http://") && tls.is_some() {
        return Err(failed(
            "`tls` is configured but the endpoint says http".to_owned(),
        ));
    }
    let mut builder = Endpoint::from_shared(url)
        .map_err(|error| failed(error.to_string()))?
        .connect_timeout(CALL_TIMEOUT)
        .http2_keep_alive_interval(CALL_TIMEOUT)
        .keep_alive_timeout(CALL_TIMEOUT);
    if let Some(tls) = tls {
        builder = builder
            .tls_config(tls_config(tls)?)
            .map_err(|error| failed(format!("tls: {}", chain(&error))))?;
    }
    builder
        .connect()
        .await
        .map_err(|error| failed(format!("cannot connect: {}", chain(&error))))
}

fn tls_config(spec: &TlsSpec) -> Result<ClientTlsConfig> {
    let read = |path: &Path| fs::read(path).map_err(Error::io("read", path));
    let mut config =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&spec.cacert)?));
    match (&spec.cert, &spec.key) {
        (Some(cert), Some(key)) => {
            let key = Zeroizing::new(read(key)?);
            config = config.identity(Identity::from_pem(read(cert)?, key.as_slice()));
        }
        (None, None) => {}
        _ => {
            return Err(Error::Refused {
                reason: "tls needs both `cert` and `key`".to_owned(),
            });
        }
    }
    if let Some(name) = &spec.server_name {
        config = config.domain_name(name.clone());
    }
    Ok(config)
}

async fn authenticate(
    channel: Channel,
    user: &UserSpec,
    endpoint: &str,
) -> Result<MetadataValue<Ascii>> {
    let path = &user.password_file;
    let text = Zeroizing::new(fs::read_to_string(path).map_err(Error::io("read", path))?);
    let password = text.lines().next().unwrap_or_default().to_owned();
    let request = rpc::AuthenticateRequest {
        name: user.name.clone(),
        password,
    };
    let answer = tokio::time::timeout(CALL_TIMEOUT, AuthClient::new(channel).authenticate(request))
        .await
        .map_err(|_elapsed| silent(endpoint))?
        .map_err(|status| answered(endpoint, &status))?
        .into_inner();
    answer.token.parse().map_err(|_invalid| Error::Source {
        endpoint: endpoint.to_owned(),
        reason: "sent a token that is no header value".to_owned(),
    })
}

/// An error status as an error.
pub(crate) fn answered(endpoint: &str, status: &tonic::Status) -> Error {
    Error::Source {
        endpoint: endpoint.to_owned(),
        reason: format!("{:?}: {}", status.code(), status.message()),
    }
}

fn silent(endpoint: &str) -> Error {
    Error::Source {
        endpoint: endpoint.to_owned(),
        reason: "no answer in time".to_owned(),
    }
}

/// The error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    for _depth in 0..8 {
        let Some(inner) = cause else { break };
        let more = inner.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}
