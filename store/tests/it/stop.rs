//! How a store ends: what systemd and Kubernetes wait for.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_proto::etcd::rpc::{self, watch_request::RequestUnion};
use holdfast_store::api::StoreServer;
use holdfast_store::options::StoreOptions;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use crate::api_support::Store;

/// The contract says 1.5 s; this leaves room for a build without optimisation on a busy machine.
const STOP_MAX: Duration = Duration::from_secs(5);
const WATCHES: usize = 20;
const WRITERS: usize = 8;

fn put(key: String) -> rpc::PutRequest {
    rpc::PutRequest {
        key: key.into(),
        value: vec![7; 1024].into(),
        ..rpc::PutRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_watches_and_busy_writers_do_not_hold_up_the_end() {
    let store = Store::start().await;
    let mut streams = Vec::new();
    for _ in 0..WATCHES {
        let (requests, inbound) = mpsc::channel(4);
        let create = rpc::WatchCreateRequest {
            key: "a".into(),
            range_end: "z".into(),
            ..rpc::WatchCreateRequest::default()
        };
        let request_union = Some(RequestUnion::CreateRequest(create));
        requests
            .send(rpc::WatchRequest { request_union })
            .await
            .unwrap();
        let responses = store.watch().watch(ReceiverStream::new(inbound)).await;
        // Nobody reads them: they fill up.
        streams.push((requests, responses.unwrap().into_inner()));
    }
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let mut kv = store.kv();
        writers.spawn(async move {
            let mut acknowledged = 0_u32;
            while kv
                .put(put(format!("k{writer}-{acknowledged}")))
                .await
                .is_ok()
            {
                acknowledged += 1;
            }
            (writer, acknowledged)
        });
    }
    let written = || store.server.member().state().revision() > 200;
    crate::api_support::eventually(|| async { written() }).await;

    let Store {
        server,
        channel,
        directory,
    } = store;
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = StoreOptions::single("one", &directory.path().join("data"), any_port);
    let started = tokio::time::Instant::now();
    server.stop().await.unwrap();
    let took = started.elapsed();
    assert!(took < STOP_MAX, "{took:?}");

    drop((streams, channel));
    let acknowledged = writers.join_all().await;
    let server = StoreServer::start(options).await.unwrap();
    for (writer, count) in acknowledged {
        for number in 0..count {
            let key = format!("k{writer}-{number}");
            let request = crate::api_support::range(&key, "");
            let found = server.member().state().range(&request).unwrap();
            assert_eq!(found.count, 1, "{key} was acknowledged");
        }
    }
    server.stop().await.unwrap();
    drop(directory);
}
