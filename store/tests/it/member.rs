//! A member of one: start, write, read, restart, refuse what it must.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_proto::etcd::rpc::{
    self, CompactionRequest, LeaseGrantRequest, PutRequest, RangeRequest,
};
use holdfast_store::apply::{NoEvents, Response};
use holdfast_store::command::Request;
use holdfast_store::member::{ClusterState, Member, MemberOptions};
use holdfast_store::{Error, ErrorKind};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Options for a small member under `dir`.
pub(crate) fn options(dir: &Path) -> MemberOptions {
    MemberOptions {
        log_segment_bytes: 1 << 20,
        reserve_bytes: 1 << 20,
        cache_bytes: 8 << 20,
        ..MemberOptions::new("m0", dir.join("m0"))
    }
}

/// A started member.
pub(crate) async fn start(options: MemberOptions) -> Member {
    Member::start(options, Arc::new(NoEvents))
        .await
        .expect("the member starts")
}

/// A put request.
pub(crate) fn put(key: &str, value: &[u8]) -> Request {
    Request::Put(PutRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value),
        ..PutRequest::default()
    })
}

/// The value of `key`, linearizably.
pub(crate) async fn get(member: &Member, key: &str) -> Option<Bytes> {
    member.linearizable().await.expect("a read index");
    let request = RangeRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        ..Default::default()
    };
    let found = member.state().range(&request).expect("a range");
    found.kvs.first().map(|pair| pair.value.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_whose_raft_log_is_gone_is_refused_as_damaged() {
    let dir = TempDir::new().unwrap();
    let member = start(options(dir.path())).await;
    member.propose(put("a", b"1")).await.unwrap();
    member.stop().await.unwrap();
    let log = dir.path().join("m0/raft");
    for segment in std::fs::read_dir(&log).unwrap() {
        std::fs::remove_file(segment.unwrap().path()).unwrap();
    }
    for _without_segments_then_without_folder in 0..2 {
        let refused = Member::start(options(dir.path()), Arc::new(NoEvents)).await;
        let error = refused.expect_err("writes may be gone");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("raft"), "{error}");
        drop(std::fs::remove_dir_all(&log));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_may_look_into_what_a_member_writes() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("m0");
    // As a volume or a service manager makes it.
    std::fs::create_dir(&root).unwrap();
    let member = start(options(dir.path())).await;
    member.propose(put("a", b"1")).await.unwrap();
    member.stop().await.unwrap();
    assert_private(&root);
}

/// That nothing below `root` can be read by others than its owner.
pub(crate) fn assert_private(root: &Path) {
    let mut open = vec![root.to_owned()];
    let mut files = 0;
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let found = path.metadata().unwrap();
            let mode = found.permissions().mode() & 0o777;
            assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
            files += 1;
            if found.is_dir() {
                open.push(path);
            }
        }
    }
    assert!(files > 2, "{files} files in {}", root.display());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_is_read_back_and_survives_an_orderly_restart() {
    let dir = TempDir::new().unwrap();
    let member = start(options(dir.path())).await;
    let applied = member.propose(put("a", b"1")).await.unwrap();
    let Response::Put(answer) = &applied.response else {
        panic!("{applied:?}")
    };
    assert_eq!(answer.header.as_ref().unwrap().revision, 2);
    assert_eq!(get(&member, "a").await.as_deref(), Some(&b"1"[..]));
    let first = member.status();
    assert_eq!(first.leader, Some(first.member_id));
    assert!(
        first.errors.is_empty() && first.fatal.is_none(),
        "{first:?}"
    );
    member.stop().await.unwrap();

    let member = start(options(dir.path())).await;
    assert_eq!(get(&member, "a").await.as_deref(), Some(&b"1"[..]));
    let second = member.status();
    assert_eq!(
        (second.member_id, second.cluster_id),
        (first.member_id, first.cluster_id)
    );
    assert_eq!(second.term, first.term + 1, "a restart is a new term");
    assert!(second.applied_index > first.applied_index);
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ids_are_etcds() {
    let dir = TempDir::new().unwrap();
    let options = MemberOptions {
        peer_urls: vec!["http://localhost:2380".to_owned()],
        ..MemberOptions::new("default", dir.path().join("default"))
    };
    let member = start(options).await;
    // What real etcd has when started without any flag.
    assert_eq!(member.id().to_string(), "8e9e05c52164694d");
    assert_eq!(member.cluster_id().to_string(), "cdf818194e3a8c32");
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_member_and_the_cluster_version_are_published() {
    let dir = TempDir::new().unwrap();
    let member = start(options(dir.path())).await;
    let known = member.state().members();
    assert_eq!(known.len(), 1);
    assert_eq!(known[0].name, "m0");
    assert_eq!(known[0].peer_urls, ["http://localhost:2380"]);
    assert_eq!(known[0].client_urls, ["http://localhost:2379"]);
    assert_eq!(member.state().cluster_version().as_deref(), Some("3.7.0"));
    let before = member.status().applied_index;
    member.stop().await.unwrap();
    let member = start(options(dir.path())).await;
    // Only the new leader's blank entry: nothing is published twice.
    assert_eq!(member.status().applied_index, before + 1);
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writers_each_get_their_own_revision() {
    let dir = TempDir::new().unwrap();
    let member = start(options(dir.path())).await;
    let mut writes = JoinSet::new();
    for at in 0..500 {
        let member = member.clone();
        writes.spawn(async move {
            let applied = member.propose(put(&format!("k{at}"), b"v")).await.unwrap();
            let Response::Put(answer) = applied.response else {
                panic!("a put")
            };
            answer.header.unwrap().revision
        });
    }
    let mut revisions: Vec<i64> = writes.join_all().await;
    revisions.sort_unstable();
    assert_eq!(revisions, (2..502).collect::<Vec<_>>());
    assert_eq!(member.status().pending_proposals, 0);
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_purged_once_a_checkpoint_covers_it() {
    let dir = TempDir::new().unwrap();
    let options = MemberOptions {
        snapshot_count: 200,
        catch_up_entries: 50,
        ..options(dir.path())
    };
    let member = start(options.clone()).await;
    let value = vec![7; 16 << 10];
    for round in 0..20 {
        let writes = (0..50).map(|at| member.propose(put(&format!("{round}-{at}"), &value)));
        for written in futures::future::join_all(writes).await {
            written.unwrap();
        }
    }
    let folder = dir.path().join("m0/raft");
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let bytes: u64 = std::fs::read_dir(&folder)
            .unwrap()
            .map(|file| file.unwrap().metadata().map_or(0, |file| file.len()))
            .sum();
        if bytes < 10 << 20 {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "the log keeps {bytes} bytes of 16 MiB written"
        );
        sleep(Duration::from_millis(50)).await;
    }
    member.stop().await.unwrap();
    let member = start(options).await;
    assert_eq!(
        get(&member, "0-0").await.map(|value| value.len()),
        Some(16 << 10)
    );
    assert_eq!(
        get(&member, "19-49").await.map(|value| value.len()),
        Some(16 << 10)
    );
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_few_large_entries_is_purged_by_its_bytes() {
    let dir = TempDir::new().unwrap();
    let options = MemberOptions {
        log_bytes_max: 2 << 20,
        ..options(dir.path())
    };
    let member = start(options).await;
    let value = vec![7; 512 << 10];
    for at in 0..24 {
        member.propose(put(&format!("{at}"), &value)).await.unwrap();
    }
    let folder = dir.path().join("m0/raft");
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::fs::read_dir(&folder).unwrap().count() > 6 {
        assert!(
            Instant::now() < deadline,
            "12 MiB of entries are still in the log"
        );
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(
        get(&member, "0").await.map(|value| value.len()),
        Some(512 << 10)
    );
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_takes_its_keys_with_it() {
    let dir = TempDir::new().unwrap();
    let member = start(options(dir.path())).await;
    let grant = LeaseGrantRequest { ttl: 2, id: 77 };
    member.propose(Request::LeaseGrant(grant)).await.unwrap();
    for key in ["x", "y"] {
        let put = PutRequest {
            key: Bytes::from_static(key.as_bytes()),
            lease: 77,
            ..PutRequest::default()
        };
        member.propose(Request::Put(put)).await.unwrap();
    }
    let revision = member.state().revision();
    let deadline = Instant::now() + Duration::from_secs(15);
    while !member.state().leases().is_empty() {
        assert!(Instant::now() < deadline, "the lease is still there");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(get(&member, "x").await, None);
    assert_eq!(
        member.state().revision(),
        revision + 1,
        "both keys went in one revision"
    );
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_removes_old_rows_and_can_be_waited_for() {
    let dir = TempDir::new().unwrap();
    let member = start(options(dir.path())).await;
    for at in 0..50 {
        member
            .propose(put("same", format!("{at}").as_bytes()))
            .await
            .unwrap();
    }
    let revision = member.state().revision();
    let compact = CompactionRequest {
        revision,
        physical: true,
    };
    member.propose(Request::Compact(compact)).await.unwrap();
    member.compaction_finished().await.unwrap();
    assert_eq!(member.state().compact_revision(), revision);
    let old = RangeRequest {
        key: Bytes::from_static(b"same"),
        revision: revision - 1,
        ..Default::default()
    };
    assert!(matches!(member.state().range(&old), Err(Error::Compacted)));
    member.defragment().await.unwrap();
    assert_eq!(get(&member, "same").await.as_deref(), Some(&b"49"[..]));
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quota_raises_the_alarm_and_a_disarmed_alarm_lets_writes_in_again() {
    let dir = TempDir::new().unwrap();
    let options = MemberOptions {
        quota_bytes: 2 << 20,
        ..options(dir.path())
    };
    let member = start(options).await;
    let value = vec![1; 100 << 10];
    let mut refused = None;
    for at in 0..100 {
        if let Err(error) = member.propose(put(&format!("k{at}"), &value)).await {
            refused = Some(error);
            break;
        }
    }
    assert!(matches!(refused, Some(Error::NoSpace)), "{refused:?}");
    let deadline = Instant::now() + Duration::from_secs(10);
    while member.state().alarms().is_empty() {
        assert!(Instant::now() < deadline, "no alarm");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(matches!(
        member.propose(put("small", b"1")).await,
        Err(Error::NoSpace)
    ));
    assert!(!member.status().errors.is_empty());
    let mut disarm = rpc::AlarmRequest {
        member_id: member.id().0,
        ..Default::default()
    };
    disarm.set_action(rpc::alarm_request::AlarmAction::Deactivate);
    disarm.set_alarm(rpc::AlarmType::Nospace);
    member.propose(Request::Alarm(disarm)).await.unwrap();
    assert!(member.state().alarms().is_empty());
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_refused_with_the_holders_id() {
    let dir = TempDir::new().unwrap();
    let member = start(options(dir.path())).await;
    let error = Member::start(options(dir.path()), Arc::new(NoEvents))
        .await
        .unwrap_err();
    let Error::Locked { holder, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(holder, Some(std::process::id()));
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_data_directory_takes_another_name_and_ignores_another_cluster_as_in_etcd() {
    let dir = TempDir::new().unwrap();
    let member = start(options(dir.path())).await;
    let ids = (member.id(), member.cluster_id());
    member.propose(put("k", b"v")).await.unwrap();
    member.stop().await.unwrap();
    let other = MemberOptions {
        name: "other".to_owned(),
        initial_cluster: vec![("third".to_owned(), vec!["http://localhost:2980".to_owned()])],
        cluster_token: "another".to_owned(),
        ..options(dir.path())
    };
    let member = start(other).await;
    assert_eq!((member.id(), member.cluster_id()), ids);
    assert_eq!(get(&member, "k").await.as_deref(), Some(b"v".as_slice()));
    let members = member.state().members();
    let [only] = members.as_slice() else {
        panic!("{members:?}")
    };
    assert_eq!(only.name, "other");
    assert_eq!(only.peer_urls, options(dir.path()).peer_urls);
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn joining_where_no_cluster_runs_says_so() {
    let dir = TempDir::new().unwrap();
    let joining = MemberOptions {
        cluster_state: ClusterState::Existing,
        ..options(dir.path())
    };
    let error = Member::start(joining, Arc::new(NoEvents))
        .await
        .unwrap_err();
    let told = "no member of --initial-cluster tells of a running cluster";
    assert!(error.to_string().contains(told), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_directory_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    std::fs::create_dir_all(dir.path().join("m0/member/snap")).unwrap();
    let error = Member::start(options(dir.path()), Arc::new(NoEvents))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("data directory of etcd"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(dir.path().join("m0")).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_without_its_marker_is_refused_but_an_interrupted_founding_is_redone() {
    let dir = TempDir::new().unwrap();
    start(options(dir.path())).await.stop().await.unwrap();
    std::fs::remove_file(dir.path().join("m0/member.json")).unwrap();
    let error = Member::start(options(dir.path()), Arc::new(NoEvents))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("not a complete data directory"),
        "{error}"
    );

    std::fs::write(dir.path().join("m0/incomplete"), b"").unwrap();
    let member = start(options(dir.path())).await;
    assert_eq!(member.state().revision(), 1);
    member.stop().await.unwrap();
    assert!(!dir.path().join("m0/incomplete").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_member_answers_stopped_and_can_be_started_again() {
    let dir = TempDir::new().unwrap();
    let member = start(options(dir.path())).await;
    let clone = member.clone();
    member.stop().await.unwrap();
    assert!(matches!(
        clone.propose(put("a", b"1")).await,
        Err(Error::Stopped)
    ));
    assert!(matches!(clone.linearizable().await, Err(Error::Stopped)));
    drop(clone);
    start(options(dir.path())).await.stop().await.unwrap();
}
