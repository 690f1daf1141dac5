//! A data directory written offline from an etcd database, and the member that starts from it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::etcd::rpc::RangeRequest;
use holdfast_store::Error;
use holdfast_store::apply::{NoEvents, Response};
use holdfast_store::bolt::FileSource;
use holdfast_store::datadir::bootstrap::{Changes, NewCluster, write_data_dir};
use holdfast_store::etcd_file::EtcdFile;
use holdfast_store::lease::LeaseId;
use holdfast_store::member::{Member, MemberOptions};
use serde_json::Value;
use tempfile::TempDir;

use crate::golden_fixture::{self, list};
use crate::member::{assert_private, put};

const PEER_URL: &str = "http://127.0.0.1:23791";

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/etcd/v3.7.3")
        .join(name)
}

fn open(file: &Path) -> EtcdFile<FileSource> {
    EtcdFile::open(FileSource::open(file).unwrap()).unwrap()
}

fn source(name: &str) -> EtcdFile<FileSource> {
    open(&golden(name))
}

fn cluster() -> NewCluster {
    NewCluster::single("m0", &[PEER_URL.to_owned()], "restored")
}

fn bump(amount: i64) -> Changes {
    Changes {
        bump: amount,
        mark_compacted: true,
        clear_alarms: true,
    }
}

#[test]
fn only_the_owner_may_look_into_a_restored_directory() {
    let dir = TempDir::new().unwrap();
    let target = dir.path().join("m0");
    write_data_dir(&target, &source("small.db"), &cluster(), bump(10)).unwrap();
    let mode = std::fs::metadata(&target).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_private(&target);
}

async fn start(dir: &Path) -> Member {
    let options = MemberOptions {
        peer_urls: vec![PEER_URL.to_owned()],
        log_segment_bytes: 1 << 20,
        reserve_bytes: 1 << 20,
        ..MemberOptions::new("m0", dir)
    };
    Member::start(options, Arc::new(NoEvents))
        .await
        .expect("it starts")
}

fn all_at(revision: i64) -> RangeRequest {
    RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        revision,
        ..RangeRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_member_answers_what_etcd_restored_from_the_same_file_answers() {
    for name in golden_fixture::BASIC {
        let dir = TempDir::new().unwrap();
        let target = dir.path().join("m0");
        answers_as_etcd_did(name, &target).await;
    }
}

/// Restores one golden file, and holds the member against what etcd said of its own restore.
async fn answers_as_etcd_did(name: &str, target: &Path) {
    let told = &golden_fixture::json(name)["restored"];
    let file = open(&golden_fixture::path(name));
    let written = write_data_dir(target, &file, &cluster(), bump(1_000_000)).unwrap();
    let header = &told["header"];
    assert_eq!(written.revision, header["revision"], "{name}");
    assert_eq!(written.ids.cluster.0, header["cluster_id"], "{name}");
    assert_eq!(written.ids.member.0, header["member_id"], "{name}");

    let member = start(target).await;
    let state = member.state();
    assert_eq!(member.term(), header["raft_term"], "{name}");
    let found = state.range(&all_at(0)).unwrap().kvs;
    let told_keys = list(&told["keys"]);
    assert_eq!(found.len(), told_keys.len(), "{name}");
    for (pair, told) in found.iter().zip(told_keys) {
        assert_eq!(pair.create_revision, told["create_revision"], "{name}");
        assert_eq!(pair.mod_revision, told["mod_revision"], "{name}");
        assert_eq!(pair.version, told["version"], "{name}");
    }
    for old in [160, 1_000_159] {
        let refused = state.range(&all_at(old));
        assert!(matches!(refused, Err(Error::Compacted)), "{name} at {old}");
    }
    let at_the_bump = state.range(&all_at(1_000_160)).unwrap().kvs;
    assert_eq!(at_the_bump.len(), told_keys.len(), "{name}");
    let leases: Vec<i64> = state.leases().iter().map(|LeaseId(id)| *id).collect();
    assert_eq!(leases.as_slice(), list(&told["leases"]), "{name}");
    let members = state.members();
    assert_eq!(members.len(), 1, "{name}");
    assert_eq!(members[0].id, written.ids.member.0, "{name}");

    // The write that came between the restore and the hash: the json has its revision only.
    let applied = member.propose(put("after", b"restore")).await.unwrap();
    let Response::Put(answer) = applied.response else {
        panic!("a put")
    };
    assert_eq!(answer.header.unwrap().revision, 1_000_161, "{name}");
    member.compaction_finished().await.unwrap();
    assert_eq!(state.compact_revision(), 1_000_160, "{name}");
    assert_restored_hash(name, &member, told);
    member.stop().await.unwrap();
    let member = start(target).await;
    assert_eq!(member.state().revision(), 1_000_161, "{name}");
    assert_restored_hash(name, &member, told);
    member.stop().await.unwrap();
}

fn assert_restored_hash(name: &str, member: &Member, told: &Value) {
    let hash = member.state().hash_kv(0).unwrap();
    let told = &told["hashkv"];
    assert_eq!(u64::from(hash.hash), told["hash"], "{name}");
    assert_eq!(hash.compact_revision, told["compact_revision"], "{name}");
    assert_eq!(hash.hash_revision, told["header"]["revision"], "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_changes_the_hash_is_the_files_own() {
    let dir = TempDir::new().unwrap();
    let target = dir.path().join("m0");
    write_data_dir(&target, &source("basic.db"), &cluster(), Changes::default()).unwrap();
    let member = start(&target).await;
    let text = std::fs::read_to_string(golden("basic.json")).unwrap();
    let told: Value = serde_json::from_str(&text).unwrap();
    let newest = told["hashkv"].as_array().unwrap().last().unwrap();
    let hash = member.state().hash_kv(0).unwrap();
    assert_eq!(u64::from(hash.hash), newest["hash"].as_u64().unwrap());
    assert_eq!(hash.hash_revision, 160);
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_alarm_is_kept_or_cleared_as_asked() {
    for clear_alarms in [false, true] {
        let dir = TempDir::new().unwrap();
        let target = dir.path().join("m0");
        let changes = Changes {
            clear_alarms,
            ..Changes::default()
        };
        write_data_dir(&target, &source("alarm.db"), &cluster(), changes).unwrap();
        let member = start(&target).await;
        let written = member.propose(put("a", b"1")).await;
        assert_eq!(written.is_ok(), clear_alarms, "{written:?}");
        member.stop().await.unwrap();
    }
}

#[test]
fn a_bump_beyond_the_range_of_revisions_is_refused_and_leaves_nothing() {
    for amount in [i64::MAX, i64::MAX - 100, i64::MAX / 2, -1] {
        let dir = TempDir::new().unwrap();
        let target = dir.path().join("m0");
        let refused = write_data_dir(&target, &source("basic.db"), &cluster(), bump(amount));
        let error = refused.unwrap_err();
        assert!(error.to_string().contains("bump-revision"), "{error}");
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            0,
            "bump {amount}"
        );
    }
}

#[test]
fn an_existing_target_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    let target = dir.path().join("m0");
    std::fs::create_dir(&target).unwrap();
    let error = write_data_dir(&target, &source("basic.db"), &cluster(), bump(1)).unwrap_err();
    assert!(error.to_string().contains("exists"), "{error}");
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn a_database_with_damaged_pages_is_refused_and_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("damaged.db");
    let mut bytes = std::fs::read(golden("small.db")).unwrap();
    // The meta pages stay, so that the file opens.
    bytes[4 * 4096..].fill(7);
    std::fs::write(&file, bytes).unwrap();
    let target = dir.path().join("m0");
    assert!(write_data_dir(&target, &open(&file), &cluster(), bump(1)).is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn each_member_of_a_larger_cluster_gets_its_own_directory_of_the_same_cluster() {
    let dir = TempDir::new().unwrap();
    let initial_cluster: Vec<_> = (0..3)
        .map(|at| {
            (
                format!("m{at}"),
                vec![format!("http://127.0.0.1:{}", 2380 + at)],
            )
        })
        .collect();
    let mut clusters = Vec::new();
    for at in 0..3 {
        let cluster = NewCluster {
            name: format!("m{at}"),
            initial_cluster: initial_cluster.clone(),
            token: "three".to_owned(),
        };
        let target = dir.path().join(format!("m{at}"));
        let written = write_data_dir(&target, &source("small.db"), &cluster, bump(10)).unwrap();
        clusters.push((written.ids.cluster, written.revision));
    }
    assert!(clusters.iter().all(|cluster| *cluster == clusters[0]));
}
