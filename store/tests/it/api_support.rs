//! A store on a free port in a temporary folder, and clients for it.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_proto::etcd::rpc::cluster_client::ClusterClient;
use holdfast_proto::etcd::rpc::kv_client::KvClient;
use holdfast_proto::etcd::rpc::lease_client::LeaseClient;
use holdfast_proto::etcd::rpc::maintenance_client::MaintenanceClient;
use holdfast_proto::etcd::rpc::watch_client::WatchClient;
use holdfast_proto::etcd::{kv, rpc};
use holdfast_store::api::StoreServer;
use holdfast_store::options::StoreOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::transport::Channel;

/// Longest wait for anything a test expects.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running store and its folder.
pub(crate) struct Store {
    pub(crate) server: StoreServer,
    pub(crate) channel: Channel,
    pub(crate) directory: tempfile::TempDir,
}

impl Store {
    pub(crate) async fn start() -> Store {
        Store::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut StoreOptions)) -> Store {
        let directory = tempfile::tempdir().unwrap();
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut options = StoreOptions::single("one", &directory.path().join("data"), any_port);
        change(&mut options);
        let server = StoreServer::start(options).await.unwrap();
        let address = server.client_addresses()[0];
        let channel = Channel::from_shared(format!("http://{address}"))
            .unwrap()
            .connect()
            .await
            .unwrap();
        Store {
            server,
            channel,
            directory,
        }
    }

    pub(crate) fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone()).max_decoding_message_size(64 << 20)
    }

    pub(crate) fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone()).max_decoding_message_size(64 << 20)
    }

    pub(crate) fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone())
    }

    pub(crate) fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }

    pub(crate) fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel.clone())
    }

    /// Puts a key; the revision.
    pub(crate) async fn put(&self, key: &str, value: &str) -> i64 {
        self.put_bytes(key, value.as_bytes().to_vec()).await
    }

    pub(crate) async fn put_bytes(&self, key: &str, value: Vec<u8>) -> i64 {
        let request = rpc::PutRequest {
            key: key.to_owned().into(),
            value: value.into(),
            ..rpc::PutRequest::default()
        };
        revision(
            self.kv()
                .put(request)
                .await
                .unwrap()
                .into_inner()
                .header
                .as_ref(),
        )
    }

    pub(crate) async fn delete(&self, key: &str) -> i64 {
        let request = rpc::DeleteRangeRequest {
            key: key.to_owned().into(),
            ..Default::default()
        };
        revision(
            self.kv()
                .delete_range(request)
                .await
                .unwrap()
                .into_inner()
                .header
                .as_ref(),
        )
    }

    pub(crate) async fn get(&self, key: &str) -> Option<kv::KeyValue> {
        self.range(range(key, "")).await.kvs.into_iter().next()
    }

    pub(crate) async fn range(&self, request: rpc::RangeRequest) -> rpc::RangeResponse {
        self.kv().range(request).await.unwrap().into_inner()
    }

    pub(crate) async fn compact(
        &self,
        revision: i64,
        physical: bool,
    ) -> Result<i64, tonic::Status> {
        let request = rpc::CompactionRequest { revision, physical };
        let response = self.kv().compact(request).await?.into_inner();
        Ok(self::revision(response.header.as_ref()))
    }

    /// An HTTP/1.1 request on the client port; the status and the body.
    pub(crate) async fn http(&self, method: &str, path: &str) -> (u16, String) {
        http(self.server.client_addresses()[0], method, path).await
    }

    pub(crate) async fn stop(self) -> tempfile::TempDir {
        drop(self.channel);
        self.server.stop().await.unwrap();
        self.directory
    }
}

pub(crate) async fn http(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: store\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

pub(crate) fn revision(header: Option<&rpc::ResponseHeader>) -> i64 {
    header.unwrap().revision
}

pub(crate) fn range(key: &str, end: &str) -> rpc::RangeRequest {
    rpc::RangeRequest {
        key: key.to_owned().into(),
        range_end: end.to_owned().into(),
        ..rpc::RangeRequest::default()
    }
}

pub(crate) fn keys(response: &rpc::RangeResponse) -> Vec<String> {
    let text = |kv: &kv::KeyValue| String::from_utf8(kv.key.to_vec()).unwrap();
    response.kvs.iter().map(text).collect()
}

/// Polls until `check` holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(mut check: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !check().await {
        assert!(tokio::time::Instant::now() < deadline, "it never happened");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
