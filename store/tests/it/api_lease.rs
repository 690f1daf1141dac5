//! The Lease service as a client sees it.

use std::time::Duration;

use holdfast_proto::etcd::rpc;
use tonic::Code;

use crate::api_support::{PATIENCE, Store, eventually, revision};

async fn grant(store: &Store, ttl: i64, id: i64) -> rpc::LeaseGrantResponse {
    let request = rpc::LeaseGrantRequest { ttl, id };
    store
        .lease()
        .lease_grant(request)
        .await
        .unwrap()
        .into_inner()
}

async fn attach(store: &Store, key: &str, lease: i64) {
    let put = rpc::PutRequest {
        key: key.to_owned().into(),
        value: "v".into(),
        lease,
        ..rpc::PutRequest::default()
    };
    store.kv().put(put).await.unwrap();
}

async fn time_to_live(store: &Store, id: i64) -> rpc::LeaseTimeToLiveResponse {
    let request = rpc::LeaseTimeToLiveRequest { id, keys: true };
    store
        .lease()
        .lease_time_to_live(request)
        .await
        .unwrap()
        .into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_granted_listed_and_revoked_with_their_keys() {
    let store = Store::start().await;
    let chosen = grant(&store, 100, 7).await;
    assert_eq!(
        (chosen.id, chosen.ttl, revision(chosen.header.as_ref())),
        (7, 100, 1)
    );
    let given = grant(&store, 100, 0).await;
    assert!(given.id > 0);
    let request = rpc::LeaseGrantRequest { ttl: 100, id: 7 };
    let twice = store.lease().lease_grant(request).await.unwrap_err();
    assert_eq!(twice.message(), "etcdserver: lease already exists");
    let request = rpc::LeaseGrantRequest {
        ttl: 9_000_000_001,
        id: 8,
    };
    let long = store.lease().lease_grant(request).await.unwrap_err();
    assert_eq!(long.message(), "etcdserver: too large lease TTL");
    attach(&store, "a", 7).await;
    attach(&store, "b", 7).await;
    let left = time_to_live(&store, 7).await;
    assert_eq!((left.id, left.granted_ttl, left.keys.len()), (7, 100, 2));
    assert!((98..=100).contains(&left.ttl), "{left:?}");
    let request = rpc::LeaseLeasesRequest {};
    let listed = store
        .lease()
        .lease_leases(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(listed.leases.len(), 2);
    let request = rpc::LeaseRevokeRequest { id: 7 };
    let revoked = store
        .lease()
        .lease_revoke(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(revision(revoked.header.as_ref()), 4);
    assert!(store.get("a").await.is_none() && store.get("b").await.is_none());
    assert_eq!(time_to_live(&store, 7).await.ttl, -1);
    let again = store.lease().lease_revoke(request).await.unwrap_err();
    assert_eq!(again.code(), Code::NotFound);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_not_kept_alive_takes_its_keys_in_one_revision() {
    let store = Store::start().await;
    let lease = grant(&store, 1, 0).await;
    assert_eq!(lease.ttl, 2, "no shorter than an election");
    for key in ["a", "b", "c"] {
        attach(&store, key, lease.id).await;
    }
    let before = store.put("other", "v").await;
    eventually(|| async { store.get("a").await.is_none() }).await;
    assert!(store.get("b").await.is_none() && store.get("c").await.is_none());
    assert_eq!(store.server.member().state().revision(), before + 1);
    assert!(store.get("other").await.is_some());
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_alives_hold_a_lease_and_tell_of_one_that_is_gone() {
    let store = Store::start().await;
    let lease = grant(&store, 2, 0).await;
    attach(&store, "k", lease.id).await;
    let (requests, inbound) = tokio::sync::mpsc::channel(4);
    let inbound = tokio_stream::wrappers::ReceiverStream::new(inbound);
    let mut stream = store
        .lease()
        .lease_keep_alive(inbound)
        .await
        .unwrap()
        .into_inner();
    for _renewal in 0..6 {
        requests
            .send(rpc::LeaseKeepAliveRequest { id: lease.id })
            .await
            .unwrap();
        let answer = tokio::time::timeout(PATIENCE, stream.message())
            .await
            .unwrap();
        assert_eq!(answer.unwrap().unwrap().ttl, 2);
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    assert!(store.get("k").await.is_some());
    let request = rpc::LeaseRevokeRequest { id: lease.id };
    store.lease().lease_revoke(request).await.unwrap();
    requests
        .send(rpc::LeaseKeepAliveRequest { id: lease.id })
        .await
        .unwrap();
    let gone = stream.message().await.unwrap().unwrap();
    assert_eq!((gone.id, gone.ttl), (lease.id, 0));
    drop(requests);
    assert!(stream.message().await.unwrap().is_none());
    store.stop().await;
}
