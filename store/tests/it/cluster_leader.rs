//! The lead: moved on request, handed over at a stop, not disturbed by who was away.

use std::time::Duration;

use holdfast_proto::etcd::rpc::MoveLeaderRequest;
use holdfast_proto::etcd::rpc::maintenance_client::MaintenanceClient;
use holdfast_store::Error;
use holdfast_store::datadir::identity::MemberId;
use holdfast_store::options::StoreOptions;
use tokio::time::Instant;

use crate::api_support::eventually;
use crate::cluster_support::Cluster;

/// An election would take longer than any of these tests allows.
fn slow_election(options: &mut StoreOptions) {
    options.raft.heartbeat = Duration::from_millis(100);
    options.raft.election_timeout = Duration::from_secs(5);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lead_is_moved_by_the_leader_and_by_nobody_else() {
    let mut cluster = Cluster::start_with(3, slow_election).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let id = cluster.member(follower).id();
    let ask = |at: usize, target_id: u64| {
        let address = cluster.servers[at].as_ref().unwrap().client_addresses()[0];
        async move {
            let client = MaintenanceClient::connect(format!("http://{address}")).await;
            let mut client = client.unwrap();
            let moved = client.move_leader(MoveLeaderRequest { target_id }).await;
            moved
                .map(drop)
                .map_err(|status| status.message().to_owned())
        }
    };
    assert_eq!(
        ask(follower, id.0).await.unwrap_err(),
        "etcdserver: not leader"
    );
    let unknown = ask(leader, id.0 + 1).await.unwrap_err();
    assert_eq!(unknown, "etcdserver: bad leader transferee");
    ask(leader, id.0).await.unwrap();
    assert_eq!(cluster.member(leader).leader(), Some(id));
    cluster.put(leader, "k", "v").await.unwrap();
    assert_eq!(cluster.leader().await, follower);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stops_hands_its_place_over_and_no_election_is_waited_for() {
    let mut cluster = Cluster::start_with(3, slow_election).await;
    let leader = cluster.leader().await;
    cluster.put(leader, "k", "1").await.unwrap();
    cluster.stop(leader).await;
    let start = Instant::now();
    let survivor = cluster.running()[0];
    cluster.put(survivor, "k", "2").await.unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_to_a_member_that_is_away_fails_and_writes_go_on() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let away = cluster.follower().await;
    let id: MemberId = cluster.member(away).id();
    cluster.kill(away).await;
    let refused = cluster.member(leader).move_leader(id).await;
    assert!(
        matches!(refused, Err(Error::TimeoutLeaderTransfer)),
        "{refused:?}"
    );
    cluster.put(leader, "k", "v").await.unwrap();
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_cut_off_does_not_unseat_the_leader_when_it_comes_back() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let term = cluster.member(leader).term();
    let away = cluster.follower().await;
    cluster.isolate(away);
    // Long enough for several elections, had it not asked first whether it could win.
    eventually(|| async { cluster.member(away).leader().is_none() }).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.put(leader, "k", "v").await.unwrap();
    cluster.heal();
    eventually(|| async { cluster.get(away, "k").await.is_ok() }).await;
    assert_eq!(cluster.leader().await, leader);
    assert_eq!(cluster.member(away).term(), term, "no election took place");
    cluster.stop_all().await;
}
