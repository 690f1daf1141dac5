//! Leases in a cluster: kept alive through any member, renewed in full by a new leader.

use std::time::Duration;

use holdfast_proto::etcd::rpc::LeaseGrantRequest;
use holdfast_store::Error;
use holdfast_store::command::Request;
use holdfast_store::lease::LeaseId;

use crate::api_support::eventually;
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

/// Longer than the interval of checkpoints, which is a second here.
const LONG_S: i64 = 600;

/// What a new leader says is left of a long lease of which some seconds are over, and what the old
/// one said last.
async fn left_after_a_change_of_leader(makes_checkpoints: bool) -> (i64, i64) {
    let mut cluster = Cluster::start_with(3, |options| {
        options.features.makes_lease_checkpoints = makes_checkpoints;
        options.lease_checkpoint_interval = Duration::from_secs(1);
    })
    .await;
    let leader = cluster.leader().await;
    let id = grant(&cluster, leader, LONG_S).await;
    let left = async |at: usize| {
        let time = cluster.member(at).lease_time(id, false).await.unwrap();
        time.expect("the lease is there").ttl_s
    };
    eventually(|| async { left(leader).await <= LONG_S - 4 }).await;
    let recorded = |at: usize| {
        let lease = cluster.member(at).state().lease(id).expect("the lease");
        lease.checkpoint_ttl_s
    };
    for at in 0..3 {
        if makes_checkpoints {
            eventually(|| async { (1..LONG_S - 2).contains(&recorded(at)) }).await;
        } else {
            assert_eq!(recorded(at), 0, "nothing is recorded");
        }
    }
    let before = left(leader).await;
    let to = (leader + 1) % 3;
    let successor = cluster.member(to).id();
    eventually(|| async {
        let at = cluster.leader().await;
        if at != to {
            // On a busy machine a transfer may take too long, and is asked for again.
            drop(cluster.member(at).move_leader(successor).await);
        }
        cluster.leader().await == to
    })
    .await;
    let after = left(to).await;
    // Renewed, it has its whole time, whatever was recorded; and so it has with the next leader.
    cluster.member(to).renew_lease(id).await.unwrap();
    assert!(left(to).await >= LONG_S - 2);
    assert_eq!(recorded(to), 0, "the record is cleared");
    cluster.stop_all().await;
    (before, after)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_renews_a_lease_longer_than_the_checkpoints_interval_in_full() {
    let (before, after) = left_after_a_change_of_leader(false).await;
    assert!(before <= LONG_S - 4, "{before}");
    assert!(after >= LONG_S - 2, "{after} left after {before}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_gate_of_checkpoints_a_new_leader_goes_on_from_what_is_recorded() {
    let (before, after) = left_after_a_change_of_leader(true).await;
    // At most two seconds behind the record, and an election timeout is added.
    assert!(after <= LONG_S - 2, "{after} left after {before}");
    assert!(after >= before - 20, "{after} left after {before}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_gives_every_lease_its_full_time_again() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let id = grant(&cluster, leader, 4).await;
    eventually(|| async {
        let before = cluster.member(leader).lease_time(id, false).await;
        before.unwrap().expect("not over yet").ttl_s <= 2
    })
    .await;
    cluster.kill(leader).await;
    let new = cluster.leader().await;
    let after = cluster.member(new).lease_time(id, false).await.unwrap();
    assert!(
        after.as_ref().is_some_and(|time| time.ttl_s >= 3),
        "{after:?}"
    );
    // And it ends the lease when nobody renews it.
    eventually(|| async {
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
