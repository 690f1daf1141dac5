//! Clusters of several members: founding, writing and reading through each, loss of members.

use std::time::Duration;

use holdfast_store::api::StoreServer;
use tokio::time::Instant;

use crate::api_support::eventually;
use crate::cluster_support::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_through_any_member_is_read_through_every_member() {
    let mut cluster = Cluster::start(3).await;
    for at in 0..3 {
        let key = format!("k{at}");
        cluster.put(at, &key, "v").await.unwrap();
        // A client of a follower reads its own writes there without asking the leader.
        assert_eq!(cluster.read(at, &key).as_deref(), Some("v"));
        for other in 0..3 {
            let found = cluster.get(other, &key).await.unwrap();
            assert_eq!(found.as_deref(), Some("v"), "through m{other}");
        }
    }
    cluster.agree().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_leader_is_followed_by_another_and_the_next_write_goes_through() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    cluster.put(leader, "before", "1").await.unwrap();
    cluster.kill(leader).await;
    let start = Instant::now();
    let survivor = cluster.running()[0];
    cluster.put(survivor, "after", "2").await.unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    for at in cluster.running() {
        assert_eq!(
            cluster.get(at, "before").await.unwrap().as_deref(),
            Some("1")
        );
        assert_eq!(
            cluster.get(at, "after").await.unwrap().as_deref(),
            Some("2")
        );
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seven_members_lose_three_and_go_on() {
    let mut cluster = Cluster::start(7).await;
    for at in 0..7 {
        cluster.put(at, &format!("k{at}"), "v").await.unwrap();
    }
    cluster.agree().await;
    // The leader is one of those that are lost.
    let leader = cluster.leader().await;
    for lost in [leader, (leader + 1) % 7, (leader + 2) % 7] {
        cluster.kill(lost).await;
    }
    let left = cluster.running();
    assert_eq!(left.len(), 4);
    cluster.leader().await;
    for at in left {
        let own = format!("after{at}");
        cluster.put(at, &own, "v").await.unwrap();
        assert_eq!(cluster.get(at, &own).await.unwrap().as_deref(), Some("v"));
        for key in 0..7 {
            let found = cluster.get(at, &format!("k{key}")).await.unwrap();
            assert_eq!(found.as_deref(), Some("v"), "k{key} through m{at}");
        }
    }
    cluster.agree().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_member_and_five_members_found_a_cluster_the_same_way() {
    for size in [1, 5] {
        let mut cluster = Cluster::start(size).await;
        let ids: Vec<_> = (0..size).map(|at| cluster.member(at).id().0).collect();
        let cluster_id = cluster.member(0).cluster_id();
        for (at, id) in ids.iter().enumerate() {
            assert_eq!(cluster.member(at).cluster_id(), cluster_id);
            // Everyone's name is known before its clients are served.
            let members = cluster.member(at).state().members();
            let own = members.iter().find(|member| member.id == *id).unwrap();
            assert_eq!(own.name, format!("m{at}"));
            assert_eq!(members.len(), size);
        }
        cluster.put(size - 1, "k", "v").await.unwrap();
        cluster.agree().await;
        cluster.stop_all().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_was_away_catches_up_and_keeps_its_identity() {
    let mut cluster = Cluster::start(3).await;
    let away = cluster.follower().await;
    let id = cluster.member(away).id();
    cluster.stop(away).await;
    let other = cluster.leader().await;
    for at in 0..20 {
        cluster.put(other, &format!("k{at}"), "v").await.unwrap();
    }
    cluster.restart(away).await;
    assert_eq!(cluster.member(away).id(), id);
    // It serves its clients only when it has what was acknowledged before.
    assert_eq!(cluster.read(away, "k19").as_deref(), Some("v"));
    cluster.agree().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_stopped_as_a_whole_goes_on_with_its_data() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let revision = cluster.put(leader, "k", "1").await.unwrap();
    cluster.stop_all().await;
    cluster.start_all().await;
    for at in 0..3 {
        assert_eq!(cluster.read(at, "k").as_deref(), Some("1"));
    }
    assert_eq!(cluster.put(0, "k", "2").await.unwrap(), revision + 1);
    cluster.agree().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_cut_off_from_the_others_says_so_and_serves_nothing_it_cannot_vouch_for() {
    let mut cluster = Cluster::start(3).await;
    let old = cluster.leader().await;
    cluster.put(old, "k", "1").await.unwrap();
    cluster.isolate(old);
    let others: Vec<_> = (0..3).filter(|at| *at != old).collect();
    let new = cluster.leader_among(&others).await;
    cluster.put(new, "k", "2").await.unwrap();
    eventually(|| async { cluster.member(old).leader().is_none() }).await;
    let status = cluster.member(old).status();
    assert!(status.errors.contains(&"etcdserver: no leader".to_owned()));
    let (read, write) = tokio::join!(cluster.get(old, "k"), cluster.put(old, "k", "3"));
    let told = |error| holdfast_store::api::status(&error);
    let (read, write) = (told(read.unwrap_err()), told(write.unwrap_err()));
    assert_eq!(read.message(), "etcdserver: request timed out");
    assert_eq!(write.code(), tonic::Code::DeadlineExceeded, "{write}");
    cluster.heal();
    eventually(|| async { cluster.get(old, "k").await.is_ok() }).await;
    assert_eq!(cluster.read(old, "k").as_deref(), Some("2"));
    cluster.agree().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_data_is_gone_is_not_founded_again() {
    let mut cluster = Cluster::start(3).await;
    let lost = cluster.follower().await;
    cluster.stop(lost).await;
    let leader = cluster.leader().await;
    cluster.put(leader, "k", "v").await.unwrap();
    let data = cluster.options[lost].data_dir.clone();
    std::fs::remove_dir_all(&data).unwrap();
    // Each time: what the first attempt left in the directory does not change the answer.
    for _attempt in 0..2 {
        let refused = StoreServer::start(cluster.options[lost].clone()).await;
        let error = refused.expect_err("it may have voted").to_string();
        assert!(error.contains("has already been bootstrapped"), "{error}");
    }
    cluster.put(leader, "k", "w").await.unwrap();
    cluster.stop_all().await;
}
