//! A cluster of three real members as a source: whom a backup reads, and what it does when that one
//! is lost on the way or is not to be believed.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use holdfast_policies::Level;
use holdfast_proto::etcd::rpc::PutRequest;
use holdfast_restore::manifest::SourceHash;
use holdfast_restore::source::{BundledSource, ClusterSource, ObservedRevision, SnapshotStream};
use holdfast_restore::{Error, Source, capture};
use holdfast_store::api::StoreServer;
use holdfast_store::bolt::FileSource;
use holdfast_store::command;
use holdfast_store::datadir::bootstrap::{Changes, NewCluster, write_data_dir};
use holdfast_store::etcd_file::EtcdFile;
use holdfast_store::options::{ListenUrl, StoreOptions};
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::bench::{Bench, minute};

/// More than any buffer on the way holds.
const VALUES: usize = 16;
const VALUE_BYTES: usize = 1 << 20;

fn put(key: String, value: Vec<u8>) -> command::Request {
    command::Request::Put(PutRequest {
        key: key.into(),
        value: value.into(),
        ..PutRequest::default()
    })
}

/// A database file in which the last key has `last`; otherwise always the same.
async fn database(folder: &Path, last: &str) -> PathBuf {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = StoreOptions::single("one", &folder.join(last), any);
    let server = StoreServer::start(options).await.unwrap();
    let member = server.member();
    for at in 0..VALUES {
        let byte = u8::try_from(at).unwrap();
        let request = put(format!("k{at:02}"), vec![byte; VALUE_BYTES]);
        member.propose(request).await.unwrap();
    }
    let request = put("last".to_owned(), last.as_bytes().to_vec());
    member.propose(request).await.unwrap();
    let path = folder.join(format!("{last}.db"));
    let mut file = std::fs::File::create(&path).unwrap();
    let mut export = member.state().export().unwrap();
    export.write_to(&mut file).unwrap();
    server.stop().await.unwrap();
    path
}

/// Three members of one cluster; each may be gone.
struct Cluster {
    _folder: TempDir,
    servers: Mutex<Vec<Option<StoreServer>>>,
    endpoints: Vec<String>,
    ids: Vec<String>,
    source: ClusterSource,
}

impl Cluster {
    /// The last member has other data than the others when `differs`.
    async fn start(differs: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let right = database(folder.path(), "right").await;
        let wrong = if differs {
            database(folder.path(), "wrong").await
        } else {
            right.clone()
        };
        let held: Vec<_> = (0..3)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let ports = held.iter().map(|held| held.local_addr().unwrap().port());
        let ports: Vec<u16> = ports.collect();
        drop(held);
        let url = |port: &u16| format!("http://127.0.0.1:{port}");
        let named = ports.iter().enumerate();
        let named = named.map(|(at, port)| (format!("m{at}"), vec![url(port)]));
        let initial_cluster: Vec<_> = named.collect();
        let mut starts = Vec::new();
        for (at, port) in ports.iter().enumerate() {
            let name = format!("m{at}");
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let mut options = StoreOptions::single(&name, &folder.path().join(&name), any);
            options.listen.peer_urls = vec![ListenUrl::loopback(*port)];
            options.cluster.advertise_peer_urls = vec![url(port)];
            options.cluster.initial_cluster.clone_from(&initial_cluster);
            let described = NewCluster {
                name,
                initial_cluster: initial_cluster.clone(),
                token: options.cluster.token.clone(),
            };
            let file = if at == 2 { &wrong } else { &right };
            let content = EtcdFile::open(FileSource::open(file).unwrap()).unwrap();
            let changes = Changes::default();
            write_data_dir(&options.data_dir, &content, &described, changes).unwrap();
            starts.push(StoreServer::start(options));
        }
        let servers: Vec<StoreServer> = futures::future::try_join_all(starts).await.unwrap();
        let endpoints = servers.iter().map(|server| {
            let address = server.client_addresses()[0];
            format!("http://{address}")
        });
        let endpoints: Vec<String> = endpoints.collect();
        // As in a daemon: the jobs run beside the leader.
        let leads = |server: &&StoreServer| server.member().is_leader();
        let own = servers.iter().find(leads).unwrap_or(&servers[0]).member();
        let status = own.status();
        let source = BundledSource::new(
            Arc::clone(own.state()),
            status.cluster_id.0,
            status.member_id.0,
            "3.7.3",
        );
        Self {
            _folder: folder,
            source: ClusterSource::new(source, endpoints.clone()).unwrap(),
            ids: servers
                .iter()
                .map(|server| server.member().id().to_string())
                .collect(),
            servers: Mutex::new(servers.into_iter().map(Some).collect()),
            endpoints,
        }
    }

    async fn stop(self) {
        for server in self.servers.into_inner().into_iter().flatten() {
            server.stop().await.unwrap();
        }
    }
}

/// The cluster, of which the member that is read first is lost right after it began to send.
struct Losing<'a> {
    cluster: &'a Cluster,
    lost: Mutex<Option<String>>,
}

#[async_trait]
impl Source for Losing<'_> {
    async fn open(&self, avoid: &[String]) -> Result<SnapshotStream, Error> {
        let stream = self.cluster.source.open(avoid).await?;
        let mut lost = self.lost.lock().await;
        if lost.is_none() {
            let id = stream.source.member_id.clone().unwrap();
            let at = self
                .cluster
                .ids
                .iter()
                .position(|known| *known == id)
                .unwrap();
            let server = self.cluster.servers.lock().await[at].take().unwrap();
            server.stop().await.unwrap();
            *lost = Some(id);
        }
        Ok(stream)
    }

    async fn hash_kv(&self, revision: i64) -> Result<SourceHash, Error> {
        self.cluster.source.hash_kv(revision).await
    }

    async fn latest_revision(&self) -> Result<ObservedRevision, Error> {
        self.cluster.source.latest_revision().await
    }

    fn describe(&self) -> String {
        "a cluster that loses a member".to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_lost_while_it_is_read_is_followed_by_another() {
    let bench = Bench::new().await;
    let cluster = Cluster::start(false).await;
    let source = Losing {
        cluster: &cluster,
        lost: Mutex::default(),
    };
    let mut options = bench.options(minute(0));
    options.attempts = 3;
    let (vault, sealer, signer) = (&bench.vault, &bench.sealer, &bench.signer);
    let captured = capture(&options, &source, vault, sealer, signer, &|_| {})
        .await
        .unwrap();
    let lost = source.lost.into_inner();
    assert!(lost.is_some());
    assert_ne!(
        captured.manifest.source.member_id, lost,
        "another one was read"
    );
    assert_eq!(captured.manifest.source.kind, "bundled");
    let proof = bench.verify(captured.manifest.id, Level::L2).await;
    assert_eq!(proof.level, Some(Level::L2), "{:?}", proof.flaws);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_data_differ_is_named_and_not_read() {
    let cluster = Cluster::start(true).await;
    let stream = cluster.source.open(&[]).await.unwrap();
    assert_eq!(stream.divergent, [cluster.endpoints[2].clone()]);
    assert_ne!(stream.source.member_id.as_ref(), Some(&cluster.ids[2]));
    // Nor when the one that was read has failed.
    let avoid = [stream.source.endpoint.clone()];
    drop(stream);
    let next = cluster.source.open(&avoid).await.unwrap();
    assert_ne!(next.source.member_id.as_ref(), Some(&cluster.ids[2]));
    drop(next);
    cluster.stop().await;
}
