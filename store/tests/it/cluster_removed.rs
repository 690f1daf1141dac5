//! A member that is removed ends, however little it has heard.

use std::sync::Arc;
use std::time::Duration;

use holdfast_store::apply::NoEvents;
use holdfast_store::member::{Change, ClusterState, Member, MemberOptions};
use tokio::time::timeout;

use crate::cluster_support::{Cluster, free_ports};

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_removed_before_its_first_entry_came_ends_all_the_same() {
    let mut cluster = Cluster::start(1).await;
    let only = cluster.member(0).clone();
    let folder = tempfile::tempdir().unwrap();
    // Nobody listens there: the leader's calls never arrive.
    let url = format!("http://127.0.0.1:{}", free_ports(1)[0]);
    let id = 0xadded;
    let add = Change::Add {
        id,
        peer_urls: vec![url.clone()],
        is_learner: false,
    };
    only.reconfigure(add).await.unwrap();
    let mut options = MemberOptions::new("joiner", folder.path().join("data"));
    options.peer_urls = vec![url.clone()];
    options.cluster_state = ClusterState::Existing;
    options.initial_cluster = vec![
        ("m0".to_owned(), only.options().peer_urls.clone()),
        ("joiner".to_owned(), vec![url]),
    ];
    options.reserve_bytes = 0;
    let joiner = Member::start(options, Arc::new(NoEvents)).await.unwrap();
    assert_eq!(joiner.id().0, id);
    assert!(joiner.state().members().is_empty(), "it has heard nothing");
    only.reconfigure(Change::Remove { id }).await.unwrap();
    let reason = timeout(Duration::from_secs(30), joiner.failed()).await;
    assert!(joiner.is_removed(), "{reason:?}");
    joiner.stop().await.unwrap();
    drop(only);
    cluster.stop_all().await;
}
