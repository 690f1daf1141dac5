//! A client of the scratch member.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_proto::etcd::rpc::kv_client::KvClient;
use holdfast_proto::etcd::rpc::lease_client::LeaseClient;
use holdfast_proto::etcd::rpc::maintenance_client::MaintenanceClient;
use holdfast_proto::etcd::rpc::watch_client::WatchClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use crate::error::{Error, Result};

/// One answer may take this long.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Largest answer read: a page of large values.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// A connection to one member on loopback.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    channel: Channel,
}

impl Client {
    /// A client of the member at `address`, connected when it is first asked. Refuses any
    /// address that is not on loopback: a drill has no business elsewhere.
    pub(crate) fn new(address: SocketAddr) -> Result<Self> {
        if !address.ip().is_loopback() {
            let reason = format!("listens on {address}, which is not loopback");
            return Err(Error::Member { reason });
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| Error::member(format!("cannot be reached: {error}")))?;
        let endpoint = endpoint.connect_timeout(Duration::from_secs(5));
        Ok(Self {
            channel: endpoint.connect_lazy(),
        })
    }

    pub(crate) fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }
}

/// Waits for an answer, for a limited time.
pub(crate) async fn answer<T, F>(request: F) -> std::result::Result<T, Status>
where
    F: Future<Output = std::result::Result<Response<T>, Status>>,
{
    match tokio::time::timeout(ANSWER_MAX, request).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_elapsed) => Err(Status::deadline_exceeded("no answer in 30 s")),
    }
}
