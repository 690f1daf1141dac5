//! Members that were away for longer than the log reaches: snapshots between members.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_store::member::Change;
use holdfast_store::options::StoreOptions;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::api_support::eventually;
use crate::cluster_support::Cluster;

/// A log that reaches back a few entries only.
fn short_log(options: &mut StoreOptions) {
    options.raft.snapshot_count = 20;
    options.raft.catch_up_entries = 5;
}

/// Writes so much through `at` that the log no longer reaches back, and purges it.
async fn outrun(cluster: &Cluster, at: usize) {
    let value = "v".repeat(10_000);
    for key in 0..100 {
        cluster.put(at, &format!("k{key}"), &value).await.unwrap();
    }
    for member in cluster.running() {
        cluster.member(member).purge_log().await.unwrap();
    }
}

/// The files in the snapshot folder of member `at`.
fn snapshot_files(cluster: &Cluster, at: usize) -> usize {
    let folder = cluster.options[at].data_dir.join("snapshots");
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_behind_the_purged_log_gets_a_snapshot_while_writes_go_on() {
    let mut cluster = Cluster::start_with(3, short_log).await;
    let away = cluster.follower().await;
    cluster.stop(away).await;
    let leader = cluster.leader().await;
    outrun(&cluster, leader).await;

    let done = AtomicBool::new(false);
    let (cluster_options, dir) = (cluster.options[away].clone(), away);
    let written = async {
        let mut written = 0;
        while !done.load(Ordering::Relaxed) {
            let key = format!("during{written}");
            cluster.put(leader, &key, "v").await.unwrap();
            written += 1;
        }
        written
    };
    let restarted = async {
        let server = holdfast_store::api::StoreServer::start(cluster_options).await;
        done.store(true, Ordering::Relaxed);
        server.unwrap()
    };
    let (written, server) = tokio::join!(written, restarted);
    cluster.servers[dir] = Some(server);
    assert!(written > 0, "writes went on");
    cluster.agree().await;
    assert_eq!(
        snapshot_files(&cluster, away),
        0,
        "what was received is gone"
    );
    // It is a full member: it takes part in the next writes and may be asked.
    cluster.put(away, "after", "v").await.unwrap();
    cluster.stop_all().await;
    cluster.start_all().await;
    assert_eq!(
        cluster.get(away, "after").await.unwrap().as_deref(),
        Some("v")
    );
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_broke_off_goes_on_where_it_stopped() {
    let slow = |options: &mut StoreOptions| {
        short_log(options);
        options.raft.snapshot_bytes_per_s = Some(600_000);
    };
    let mut cluster = Cluster::start_with(3, slow).await;
    let away = cluster.follower().await;
    cluster.stop(away).await;
    let leader = cluster.leader().await;
    outrun(&cluster, leader).await;
    let options = cluster.options[away].clone();
    let mut restarted = JoinSet::new();
    restarted.spawn(holdfast_store::api::StoreServer::start(options));
    let folder = cluster.options[away].data_dir.join("snapshots");
    let received = || {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let lengths = entries.filter_map(|entry| entry.metadata().ok());
        lengths.map(|found| found.len()).max().unwrap_or(0)
    };
    eventually(|| async { received() > 100_000 }).await;
    cluster.disconnect(away, cluster.network.made()).await;
    let before = received();
    assert!(before > 0, "what arrived stays");
    cluster.heal();
    eventually(|| async {
        let now = received();
        assert!(now >= before, "it began anew: {now} of {before}");
        now > before
    })
    .await;
    let server = restarted.join_next().await.unwrap().unwrap().unwrap();
    cluster.servers[away] = Some(server);
    cluster.agree().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_sent_no_faster_than_it_may_be() {
    /// A quarter of what is sent at least: 100 values of 10,000 bytes that are not compressed.
    const BYTES_PER_S: u64 = 250_000;
    let mut cluster = Cluster::start_with(3, |options| {
        short_log(options);
        options.raft.snapshot_bytes_per_s = Some(BYTES_PER_S);
    })
    .await;
    let away = cluster.follower().await;
    cluster.stop(away).await;
    let leader = cluster.leader().await;
    outrun(&cluster, leader).await;
    let start = Instant::now();
    cluster.restart(away).await;
    let taken = start.elapsed();
    assert!(cluster.read(away, "k99").is_some(), "it has arrived");
    assert!(taken >= Duration::from_secs(3), "{taken:?}");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn purging_the_log_never_strands_a_follower_that_can_be_reached() {
    let mut cluster = Cluster::start_with(3, short_log).await;
    let leader = cluster.leader().await;
    let behind = (leader + 1) % 3;
    for round in 0..4 {
        // Odd rounds: it hears nothing while the log is purged past it, and then it does again.
        let is_cut = round % 2 == 1;
        if is_cut {
            cluster.disconnect(behind, cluster.network.made()).await;
        }
        for key in 0..60 {
            let (key, at) = (format!("r{round}k{key}"), (leader + 2) % 3);
            cluster.put(at, &key, "v").await.unwrap();
            // In the middle of writing, with entries on their way to the followers.
            if key.ends_with("k30") || key.ends_with("k59") {
                cluster.member(leader).purge_log().await.unwrap();
            }
        }
        cluster.heal();
        let last = format!("r{round}k59");
        eventually(|| async { cluster.read(behind, &last).is_some() }).await;
        // It takes part: written through it, and read there without asking the leader.
        let own = format!("own{round}");
        eventually(|| async { cluster.put(behind, &own, "v").await.is_ok() }).await;
        assert!(cluster.read(behind, &own).is_some());
    }
    cluster.agree().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_says_who_has_been_removed() {
    let mut cluster = Cluster::start_with(4, short_log).await;
    let leader = cluster.leader().await;
    let (away, removed) = ((leader + 1) % 4, (leader + 2) % 4);
    cluster.stop(away).await;
    let id = cluster.member(removed).id().0;
    let change = Change::Remove { id };
    eventually(|| async {
        cluster
            .member(leader)
            .reconfigure(change.clone())
            .await
            .is_ok()
    })
    .await;
    outrun(&cluster, leader).await;
    assert!(cluster.member(leader).state().is_removed(id));
    cluster.restart(away).await;
    let state = cluster.member(away).state();
    assert!(state.is_removed(id), "by the snapshot: the log is gone");
    let listed = state.members();
    assert!(listed.iter().all(|known| known.id != id), "{listed:?}");
    cluster.stop(away).await;
    cluster.restart(away).await;
    assert!(cluster.member(away).state().is_removed(id), "and it stays");
    cluster.stop_all().await;
}
