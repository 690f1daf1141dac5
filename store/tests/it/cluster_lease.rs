//! Leases in a cluster: kept alive through any member, renewed in full by a new leader.

use holdfast_proto::etcd::rpc::LeaseGrantRequest;
use holdfast_store::Error;
use holdfast_store::command::Request;
use holdfast_store::lease::LeaseId;

use crate::cluster_support::Cluster;

async fn grant(cluster: &Cluster, at: usize, ttl: i64) -> LeaseId {
    let request = Request::LeaseGrant(LeaseGrantRequest { ttl, id: 77 });
    cluster.member(at).propose(request).await.unwrap();
    LeaseId(77)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_granted_kept_alive_and_asked_for_through_a_follower() {
    let mut cluster = Cluster::start(3).await;
    let follower = cluster.follower().await;
    let id = grant(&cluster, follower, 100).await;
    for at in 0..3 {
        assert_eq!(cluster.member(at).renew_lease(id).await.unwrap(), 100);
        let time = cluster.member(at).lease_time(id, true).await.unwrap();
        let time = time.expect("the lease is there");
        assert_eq!(time.granted_ttl_s, 100);
        assert!((98..=100).contains(&time.ttl_s), "{time:?}");
        let unknown = cluster.member(at).renew_lease(LeaseId(1)).await;
        assert!(matches!(unknown, Err(Error::LeaseNotFound)), "{unknown:?}");
        let unknown = cluster.member(at).lease_time(LeaseId(1), false).await;
        assert_eq!(unknown.unwrap(), None);
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_gives_every_lease_its_full_time_again() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let id = grant(&cluster, leader, 4).await;
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    let before = cluster.member(leader).lease_time(id, false).await.unwrap();
    assert!(before.expect("not over yet").ttl_s <= 2);
    cluster.kill(leader).await;
    let new = cluster.leader().await;
    let after = cluster.member(new).lease_time(id, false).await.unwrap();
    assert!(
        after.as_ref().is_some_and(|time| time.ttl_s >= 3),
        "{after:?}"
    );
    // And it ends the lease when nobody renews it.
    crate::api_support::eventually(|| async {
        cluster
            .member(new)
            .lease_time(id, false)
            .await
            .unwrap()
            .is_none()
    })
    .await;
    cluster.stop_all().await;
}
