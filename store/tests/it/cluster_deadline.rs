//! Deadlines of clients: a call ends with its client's time, and so does the work behind it, here
//! and on the leader.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::etcd::rpc;
use holdfast_proto::etcd::rpc::kv_client::KvClient;
use holdfast_proto::etcd::rpc::lease_client::LeaseClient;
use holdfast_proto::etcd::rpc::watch_client::WatchClient;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tonic::body::Body;
use tonic::{Code, Request, Status};
use tower::util::{BoxCloneService, ServiceExt as _};

use crate::api_support::{PATIENCE, Store, eventually};
use crate::cluster_support::Cluster;

type Wire = BoxCloneService<http::Request<Body>, http::Response<Incoming>, hyper::Error>;

/// A connection that leaves it to the server to end a call in time; tonic's own does not.
async fn connect(address: SocketAddr) -> (Wire, http::Uri) {
    let stream = TcpStream::connect(address).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    // Ends with the service.
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let tasks = Arc::new(tasks);
    let service = tower::service_fn(move |request| {
        assert!(!tasks.is_empty(), "the connection is kept");
        sender.clone().send_request(request)
    });
    let uri = format!("http://{address}").parse().unwrap();
    (service.boxed_clone(), uri)
}

fn within<T>(grpc_timeout: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = grpc_timeout.parse().unwrap();
    request.metadata_mut().insert("grpc-timeout", value);
    request
}

fn put_request(key: &str) -> rpc::PutRequest {
    rpc::PutRequest {
        key: key.to_owned().into(),
        value: "v".into(),
        ..rpc::PutRequest::default()
    }
}

fn assert_is_over<T: std::fmt::Debug>(answer: Result<T, Status>) {
    let refused = answer.unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused}");
    assert_eq!(refused.message(), "context deadline exceeded");
}

async fn clients_of(cluster: &Cluster, at: usize) -> (Wire, http::Uri) {
    connect(cluster.servers[at].as_ref().unwrap().client_addresses()[0]).await
}

fn pending(cluster: &Cluster, at: usize) -> u64 {
    cluster.member(at).status().pending_proposals
}

/// What a call to member `at` that has a second, of which nothing can come, leaves behind.
async fn assert_ends_in_a_second(cluster: &Cluster, at: usize) {
    let (service, uri) = clients_of(cluster, at).await;
    let mut kv = KvClient::with_origin(service, uri);
    let failed = cluster.member(at).status().failed_proposals;
    let start = Instant::now();
    assert_is_over(kv.put(within("1S", put_request("k"))).await);
    let taken = start.elapsed();
    assert!(taken >= Duration::from_secs(1), "{taken:?}");
    // Its own patience is six seconds.
    assert!(taken < Duration::from_secs(4), "{taken:?}");
    let gone = || async { pending(cluster, at) == 0 };
    let gone = timeout(Duration::from_secs(2), eventually(gone)).await;
    assert!(gone.is_ok(), "work stays behind");
    assert_eq!(cluster.member(at).status().failed_proposals, failed + 1);
    let range = crate::api_support::range("k", "");
    let start = Instant::now();
    assert_is_over(kv.range(within("500m", range)).await);
    assert!(start.elapsed() < Duration::from_secs(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_a_call_ends_when_its_client_stops_waiting_and_leaves_no_work() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    cluster.kill((leader + 2) % 3).await;
    cluster.isolate(leader);
    tokio::join!(
        assert_ends_in_a_second(&cluster, leader),
        assert_ends_in_a_second(&cluster, follower)
    );
    cluster.heal();
    cluster.leader().await;
    cluster.put(follower, "after", "v").await.unwrap();
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_works_no_longer_for_a_follower_than_the_followers_client_waits() {
    // A leader that is patient with its quorum, and still leads while the call lasts.
    let mut cluster = Cluster::start_with(5, |options| {
        options.raft.election_timeout = Duration::from_secs(3);
    })
    .await;
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 5;
    let (service, uri) = clients_of(&cluster, follower).await;
    let mut kv = KvClient::with_origin(service, uri);
    kv.put(within("9S", put_request("before"))).await.unwrap();
    for lost in 2..5 {
        cluster.isolate((leader + lost) % 5);
    }
    let worked = async {
        eventually(|| async { pending(&cluster, leader) == 1 }).await;
        // As it is with one of its own: eleven seconds. The client has one.
        let gone = || async { pending(&cluster, leader) == 0 };
        timeout(Duration::from_secs(4), eventually(gone)).await
    };
    let (answer, gone) = tokio::join!(kv.put(within("1S", put_request("k"))), worked);
    assert_is_over(answer);
    assert!(gone.is_ok(), "the leader works on for nobody");
    assert_eq!(pending(&cluster, follower), 0);
    cluster.heal();
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_before_it_begins_is_not_proposed() {
    let store = Store::start().await;
    let committed = store.server.member().status().committed_index;
    let (service, uri) = connect(store.server.client_addresses()[0]).await;
    let mut kv = KvClient::with_origin(service, uri);
    assert_is_over(kv.put(within("0m", put_request("k"))).await);
    assert_eq!(store.server.member().status().committed_index, committed);
    assert!(store.get("k").await.is_none());
    for wrong in ["1", "S", "123456789S", "1s", "-1S"] {
        let refused = kv.put(within(wrong, put_request("k"))).await.unwrap_err();
        assert_eq!(refused.code(), Code::Internal, "{wrong}: {refused}");
        let text = refused.message();
        assert!(text.starts_with("malformed grpc-timeout"), "{text}");
    }
    assert!(store.get("k").await.is_none());
    kv.put(within("10S", put_request("k"))).await.unwrap();
    assert!(store.get("k").await.is_some());
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_client_stops_waiting() {
    let store = Store::start().await;
    let (service, uri) = connect(store.server.client_addresses()[0]).await;
    let start = Instant::now();
    let mut watch = WatchClient::with_origin(service.clone(), uri.clone());
    let create = rpc::WatchCreateRequest {
        key: "k".into(),
        ..rpc::WatchCreateRequest::default()
    };
    let request = rpc::WatchRequest {
        request_union: Some(rpc::watch_request::RequestUnion::CreateRequest(create)),
    };
    // The client's side stays open.
    let requests =
        futures::StreamExt::chain(futures::stream::iter([request]), futures::stream::pending());
    let mut watched = watch
        .watch(within("1S", requests))
        .await
        .unwrap()
        .into_inner();
    assert!(watched.message().await.unwrap().unwrap().created);
    assert_eq!(store.server.member().state().revision(), 1);
    let mut lease = LeaseClient::with_origin(service, uri);
    let silent = futures::stream::pending::<rpc::LeaseKeepAliveRequest>();
    let kept = lease.lease_keep_alive(within("1S", silent)).await;
    let mut kept = kept.unwrap().into_inner();
    let (watched, kept) = tokio::join!(
        timeout(PATIENCE, watched.message()),
        timeout(PATIENCE, kept.message())
    );
    assert_is_over(watched.expect("the watch ends"));
    assert_is_over(kept.expect("the keep-alive ends"));
    assert!(start.elapsed() >= Duration::from_secs(1));
    // No watch is left behind it.
    let watchers = || async {
        let (_, page) = store.http("GET", "/metrics").await;
        page.lines()
            .any(|line| line == "etcd_debugging_mvcc_watcher_total 0")
    };
    eventually(watchers).await;
    store.stop().await;
}
