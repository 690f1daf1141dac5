//! What the members of a cluster say of each other in their metrics, and to whom the last one that
//! stops hands over.

use std::time::Duration;

use tokio::time::Instant;

use crate::api_support::{eventually, http};
use crate::cluster_support::Cluster;

/// The value of a sample whose labels contain all of `labels`.
async fn sample(cluster: &Cluster, at: usize, name: &str, labels: &[&str]) -> Option<f64> {
    let address = cluster.servers[at].as_ref().unwrap().client_addresses()[0];
    let (_, page) = http(address, "GET", "/metrics").await;
    let mut lines = page.lines();
    let line = lines.find(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with('{')) && labels.iter().all(|l| line.contains(l))
    });
    line?.rsplit(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_traffic_with_each_other_member_is_counted_under_etcds_names() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let away = (leader + 1) % 3;
    let id = |at: usize| cluster.member(at).id().to_string();
    let (own, gone) = (id(leader), id(away));
    let value = "v".repeat(100_000);
    for key in 0..10 {
        cluster
            .put(leader, &format!("k{key}"), &value)
            .await
            .unwrap();
    }
    cluster.agree().await;
    let to = format!("To=\"{gone}\"");
    let sent = sample(
        &cluster,
        leader,
        "etcd_network_peer_sent_bytes_total",
        &[&to],
    )
    .await;
    assert!(sent.unwrap() > 1_000_000.0, "{sent:?}");
    let from = format!("From=\"{own}\"");
    let name = "etcd_network_peer_received_bytes_total";
    let received = sample(&cluster, away, name, &[&from]).await;
    assert!(received.unwrap() > 1_000_000.0, "{received:?}");
    let name = "etcd_network_peer_round_trip_time_seconds_count";
    assert!(sample(&cluster, leader, name, &[&to]).await.unwrap() > 0.0);
    let pair = [format!("Local=\"{own}\""), format!("Remote=\"{gone}\"")];
    let pair = [pair[0].as_str(), pair[1].as_str()];
    let active = sample(&cluster, leader, "etcd_network_active_peers", &pair).await;
    assert_eq!(active, Some(1.0));
    cluster.stop(away).await;
    eventually(|| async {
        sample(&cluster, leader, "etcd_network_active_peers", &pair).await == Some(0.0)
    })
    .await;
    let name = "etcd_network_disconnected_peers_total";
    assert_eq!(sample(&cluster, leader, name, &pair).await, Some(1.0));
    let name = "etcd_network_peer_sent_failures_total";
    assert!(sample(&cluster, leader, name, &[&to]).await.unwrap() > 0.0);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_member_that_stops_does_not_wait_for_those_that_are_gone() {
    let election = Duration::from_secs(4);
    let mut cluster = Cluster::start_with(3, |options| {
        options.raft.election_timeout = election;
        options.raft.heartbeat = Duration::from_millis(50);
    })
    .await;
    let leader = cluster.leader().await;
    for at in [(leader + 1) % 3, (leader + 2) % 3] {
        cluster.stop(at).await;
    }
    let start = Instant::now();
    cluster.stop(leader).await;
    let took = start.elapsed();
    assert!(took < election, "{took:?}: it hands over to nobody");
}
