//! An etcd client, as the audience's: it knows nothing of Holdfast.

use std::time::Duration;

use holdfast_proto::etcd::rpc::{
    self, kv_client::KvClient, lease_client::LeaseClient, maintenance_client::MaintenanceClient,
    watch_client::WatchClient,
};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

use crate::failure::{ErrorName, Failure};

/// Longest wait for an answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between tries to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A client of one member.
#[derive(Debug, Clone)]
pub(super) struct Client {
    channel: Channel,
}

/// What an old watcher was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Start anew: everything before this revision is gone.
    Compacted(i64),
    /// Nothing in time: the watcher would go on and miss changes in silence.
    Nothing,
}

impl Client {
    /// Waits until the member at `endpoint` (`http://host:port`) answers, at most `patience`.
    pub(super) async fn connect(endpoint: &str, patience: Duration) -> Result<Self, Failure> {
        let unreachable = |cause: &dyn std::error::Error| {
            Failure::new(
                ErrorName::Unavailable,
                format!("no member answers at {endpoint}"),
            )
            .because(cause)
        };
        let dialled = Endpoint::from_shared(endpoint.to_owned())
            .map_err(|error| unreachable(&error))?
            .timeout(CALL_TIMEOUT)
            .connect_timeout(CALL_TIMEOUT);
        let deadline = Instant::now() + patience;
        loop {
            let failure = match dialled.connect().await {
                Ok(channel) => {
                    let client = Self { channel };
                    match client.revision().await {
                        Ok(_) => return Ok(client),
                        Err(failure) => failure,
                    }
                }
                Err(error) => unreachable(&error),
            };
            if Instant::now() >= deadline {
                return Err(failure);
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Puts `key` and returns the revision.
    pub(super) async fn put(&self, key: &str, value: &str, lease: i64) -> Result<i64, Failure> {
        let request = rpc::PutRequest {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
            lease,
            ..Default::default()
        };
        let answer = self.kv().put(request).await.map_err(refused)?;
        revision_of(answer.into_inner().header)
    }

    /// Deletes `key` and returns the revision.
    pub(super) async fn delete(&self, key: &str) -> Result<i64, Failure> {
        let request = rpc::DeleteRangeRequest {
            key: key.to_owned().into(),
            ..Default::default()
        };
        let answer = self.kv().delete_range(request).await.map_err(refused)?;
        revision_of(answer.into_inner().header)
    }

    /// The value of `key`.
    pub(super) async fn get(&self, key: &str) -> Result<Option<String>, Failure> {
        let request = rpc::RangeRequest {
            key: key.to_owned().into(),
            ..Default::default()
        };
        let answer = self.kv().range(request).await.map_err(refused)?;
        let pair = answer.into_inner().kvs.into_iter().next();
        Ok(pair.map(|pair| String::from_utf8_lossy(&pair.value).into_owned()))
    }

    /// How many keys start with `prefix`.
    pub(super) async fn count(&self, prefix: &str) -> Result<i64, Failure> {
        let mut end = prefix.to_owned().into_bytes();
        if let Some(last) = end.last_mut() {
            *last = last.saturating_add(1);
        }
        let request = rpc::RangeRequest {
            key: prefix.to_owned().into(),
            range_end: end.into(),
            count_only: true,
            ..Default::default()
        };
        let answer = self.kv().range(request).await.map_err(refused)?;
        Ok(answer.into_inner().count)
    }

    /// The current revision.
    pub(super) async fn revision(&self) -> Result<i64, Failure> {
        let request = rpc::RangeRequest {
            key: "revision".into(),
            ..Default::default()
        };
        let answer = self.kv().range(request).await.map_err(refused)?;
        revision_of(answer.into_inner().header)
    }

    /// Grants a lease of `seconds`.
    pub(super) async fn grant(&self, seconds: i64) -> Result<i64, Failure> {
        let request = rpc::LeaseGrantRequest {
            ttl: seconds,
            id: 0,
        };
        let answer = LeaseClient::new(self.channel.clone())
            .lease_grant(request)
            .await
            .map_err(refused)?;
        Ok(answer.into_inner().id)
    }

    /// HashKV at `revision`.
    pub(super) async fn hash_kv(&self, revision: i64) -> Result<u32, Failure> {
        let request = rpc::HashKvRequest { revision };
        let mut client = MaintenanceClient::new(self.channel.clone());
        Ok(client
            .hash_kv(request)
            .await
            .map_err(refused)?
            .into_inner()
            .hash)
    }

    /// Watches `key` from `revision`, as a client that comes back after a disaster does, and says
    /// what it was told.
    pub(super) async fn watch_from(&self, key: &str, revision: i64) -> Result<Told, Failure> {
        let create = rpc::WatchCreateRequest {
            key: key.to_owned().into(),
            start_revision: revision,
            ..Default::default()
        };
        let request = rpc::WatchRequest {
            request_union: Some(rpc::watch_request::RequestUnion::CreateRequest(create)),
        };
        let requests =
            futures::StreamExt::chain(tokio_stream::once(request), futures::stream::pending());
        let mut client = WatchClient::new(self.channel.clone());
        let mut answers = client.watch(requests).await.map_err(refused)?.into_inner();
        let deadline = Instant::now() + CALL_TIMEOUT;
        while let Ok(answer) = tokio::time::timeout_at(deadline, answers.message()).await {
            match answer.map_err(refused)? {
                Some(answer) if answer.canceled && answer.compact_revision > 0 => {
                    return Ok(Told::Compacted(answer.compact_revision));
                }
                Some(_) => {}
                None => break,
            }
        }
        Ok(Told::Nothing)
    }

    fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone())
    }
}

fn revision_of(header: Option<rpc::ResponseHeader>) -> Result<i64, Failure> {
    header.map(|header| header.revision).ok_or_else(|| {
        Failure::new(
            ErrorName::Unexpected,
            "the member answered without a header",
        )
    })
}

#[expect(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn refused(status: tonic::Status) -> Failure {
    let name = match status.code() {
        tonic::Code::Unavailable | tonic::Code::DeadlineExceeded => ErrorName::Unavailable,
        _ => ErrorName::Unexpected,
    };
    Failure::new(name, "the member refused a call").because_of(status.message().to_owned())
}
