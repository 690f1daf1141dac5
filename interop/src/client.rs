//! Our generated gRPC clients on one connection.

use std::time::Duration;

use anyhow::Result;
use holdfast_proto::etcd::rpc;
use holdfast_proto::etcd::rpc::cluster_client::ClusterClient;
use holdfast_proto::etcd::rpc::kv_client::KvClient;
use holdfast_proto::etcd::rpc::lease_client::LeaseClient;
use holdfast_proto::etcd::rpc::maintenance_client::MaintenanceClient;
use holdfast_proto::etcd::rpc::watch_client::WatchClient;
use tonic::transport::{Channel, Endpoint};

/// No single call of a test may take longer.
const CALL_MAX: Duration = Duration::from_secs(30);
/// How long a member may take to say how it is.
const STATUS_MAX: Duration = Duration::from_secs(2);

/// Clients of every etcd service a test calls.
#[derive(Debug, Clone)]
pub struct Client {
    /// Keys and values.
    pub kv: KvClient<Channel>,
    /// Watches.
    pub watch: WatchClient<Channel>,
    /// Leases.
    pub lease: LeaseClient<Channel>,
    /// Status, hashes, snapshots, alarms.
    pub maintenance: MaintenanceClient<Channel>,
    /// Members.
    pub cluster: ClusterClient<Channel>,
}

impl Client {
    /// Connects to `endpoint` (`http://host:port`).
    ///
    /// # Errors
    /// When nobody answers there.
    pub async fn connect(endpoint: &str) -> Result<Self> {
        let channel = Endpoint::from_shared(endpoint.to_owned())?
            .connect()
            .await?;
        Ok(Self {
            kv: KvClient::new(channel.clone()),
            watch: WatchClient::new(channel.clone()),
            lease: LeaseClient::new(channel.clone()),
            maintenance: MaintenanceClient::new(channel.clone()),
            cluster: ClusterClient::new(channel),
        })
    }

    /// `HashKV` at a revision; 0 means the current one.
    ///
    /// # Errors
    /// The server's.
    pub async fn hash_kv(&mut self, revision: i64) -> Result<rpc::HashKvResponse> {
        let request = tonic::Request::new(rpc::HashKvRequest { revision });
        Ok(self
            .maintenance
            .hash_kv(limited(request))
            .await?
            .into_inner())
    }
}

/// What a member says of itself, if it answers soon.
pub async fn status(endpoint: &str) -> Option<rpc::StatusResponse> {
    let asked = async {
        let mut client = Client::connect(endpoint).await.ok()?;
        let answer = client.maintenance.status(rpc::StatusRequest {});
        Some(answer.await.ok()?.into_inner())
    };
    tokio::time::timeout(STATUS_MAX, asked).await.ok()?
}

/// The request with the time limit of a test's call.
pub fn limited<T>(mut request: tonic::Request<T>) -> tonic::Request<T> {
    request.set_timeout(CALL_MAX);
    request
}
