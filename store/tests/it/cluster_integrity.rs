//! Members whose data differ: found, and named.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_proto::etcd::rpc::AlarmType;
use holdfast_store::api::StoreServer;
use holdfast_store::bolt::FileSource;
use holdfast_store::datadir::bootstrap::{Changes, NewCluster, write_data_dir};
use holdfast_store::etcd_file::EtcdFile;
use holdfast_store::options::StoreOptions;

use crate::api_support::eventually;
use crate::cluster_support::Cluster;
use crate::member::{options, put, start};

/// A database in which `k` has `value`; otherwise always the same.
async fn database(dir: &Path, value: &str) -> PathBuf {
    let home = dir.join(value);
    let member = start(options(&home)).await;
    for (key, value) in [("a", "1"), ("k", value), ("z", "2")] {
        member.propose(put(key, value.as_bytes())).await.unwrap();
    }
    let path = dir.join(format!("{value}.db"));
    let mut file = std::fs::File::create(&path).unwrap();
    member
        .state()
        .export()
        .unwrap()
        .write_to(&mut file)
        .unwrap();
    member.stop().await.unwrap();
    path
}

/// A cluster that is not started, of which the last member's data differ.
async fn one_differs(change: impl Fn(&mut StoreOptions)) -> Cluster {
    let cluster = Cluster::plan(3, change);
    let dir = tempfile::tempdir().unwrap();
    let right = database(dir.path(), "right").await;
    let wrong = database(dir.path(), "wrong").await;
    for (at, options) in cluster.options.iter().enumerate() {
        let file = if at == 2 { &wrong } else { &right };
        let source = EtcdFile::open(FileSource::open(file).unwrap()).unwrap();
        let described = NewCluster {
            name: options.name.clone(),
            initial_cluster: options.cluster.initial_cluster.clone(),
            token: options.cluster.token.clone(),
        };
        let changes = Changes::default();
        write_data_dir(&options.data_dir, &source, &described, changes).unwrap();
    }
    cluster
}

/// The members that the CORRUPT alarm names.
fn named(cluster: &Cluster, at: usize) -> Vec<u64> {
    let alarms = cluster.member(at).state().alarms();
    let corrupt = alarms
        .iter()
        .filter(|alarm| alarm.alarm() == AlarmType::Corrupt);
    corrupt.map(|alarm| alarm.member_id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_of_the_newest_state_raises_corrupt() {
    let often = |options: &mut StoreOptions| {
        options.corrupt_check = Some(Duration::from_millis(200));
    };
    let mut cluster = one_differs(often).await;
    cluster.start_all().await;
    eventually(|| async { !named(&cluster, 0).is_empty() }).await;
    // The leader names one that differs from itself: the odd one, or, when that leads, another.
    let odd = cluster.member(2).id().0;
    let leads = cluster.leader().await == 2;
    assert_eq!(named(&cluster, 0) == [odd], !leads);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_of_compactions_names_the_member_that_differs_from_the_majority() {
    let often = |options: &mut StoreOptions| {
        options.features.compares_compactions = true;
        options.compact_hash_check = Duration::from_millis(200);
    };
    let mut cluster = one_differs(often).await;
    cluster.start_all().await;
    let revision = cluster.put(0, "more", "v").await.unwrap();
    let request = holdfast_proto::etcd::rpc::CompactionRequest {
        revision,
        physical: true,
    };
    let request = holdfast_store::command::Request::Compact(request);
    cluster.member(0).propose(request).await.unwrap();
    let odd = cluster.member(2).id().0;
    eventually(|| async { named(&cluster, 0).contains(&odd) }).await;
    // While one of the others has not compacted yet there is no majority, and nobody is named.
    let others = named(&cluster, 0).into_iter().filter(|id| *id != 0);
    assert_eq!(others.collect::<Vec<_>>(), [odd]);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_differs_is_not_served_when_it_is_compared_first() {
    let first = |options: &mut StoreOptions| {
        options.features.compares_at_start = options.name == "m2";
    };
    let mut cluster = one_differs(first).await;
    let (one, two, odd) = tokio::join!(
        StoreServer::start(cluster.options[0].clone()),
        StoreServer::start(cluster.options[1].clone()),
        StoreServer::start(cluster.options[2].clone()),
    );
    let error = odd.expect_err("its data differ");
    assert!(error.to_string().contains("corrupt"), "{error}");
    cluster.servers[0] = Some(one.unwrap());
    cluster.servers[1] = Some(two.unwrap());
    cluster.put(0, "k", "v").await.unwrap();
    cluster.stop_all().await;
}
