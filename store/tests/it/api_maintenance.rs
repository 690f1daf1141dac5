//! The Maintenance and Cluster services as a client sees them.

use holdfast_proto::etcd::rpc::{self, AlarmType, alarm_request::AlarmAction};
use holdfast_store::options::StoreOptions;
use sha2::{Digest as _, Sha256};
use tonic::Code;

use crate::api_support::{Store, eventually, revision};

async fn snapshot(store: &Store) -> Vec<rpc::SnapshotResponse> {
    let request = rpc::SnapshotRequest {};
    let mut stream = store
        .maintenance()
        .snapshot(request)
        .await
        .unwrap()
        .into_inner();
    let mut pieces = Vec::new();
    while let Some(piece) = stream.message().await.unwrap() {
        pieces.push(piece);
    }
    pieces
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_comes_in_pieces_and_ends_with_its_digest() {
    let store = Store::start().await;
    for number in 0..200 {
        store
            .put_bytes(&format!("k{number}"), vec![b'v'; 4096])
            .await;
    }
    let pieces = snapshot(&store).await;
    let (digest, pieces) = pieces.split_last().unwrap();
    let file: Vec<u8> = pieces
        .iter()
        .flat_map(|piece| piece.blob.to_vec())
        .collect();
    assert_eq!(digest.blob.as_ref(), Sha256::digest(&file).as_slice());
    assert_eq!(digest.remaining_bytes, 0);
    assert_eq!(file.len() % 512, 0);
    let mut left = u64::try_from(file.len()).unwrap();
    for (at, piece) in pieces.iter().enumerate() {
        let length = u64::try_from(piece.blob.len()).unwrap();
        assert!(length == 256 * 1024 || at + 1 == pieces.len());
        left -= length;
        assert_eq!(
            (piece.remaining_bytes, piece.version.as_str()),
            (left, "3.7.0")
        );
    }
    assert_eq!(
        snapshot(&store).await.last().unwrap().blob,
        digest.blob,
        "deterministic"
    );
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_a_snapshot_harms_nothing() {
    let store = Store::start().await;
    // More than is made ahead of a client.
    for number in 0..200 {
        store
            .put_bytes(&format!("k{number}"), vec![b'v'; 64 * 1024])
            .await;
    }
    let request = rpc::SnapshotRequest {};
    let mut stream = store
        .maintenance()
        .snapshot(request)
        .await
        .unwrap()
        .into_inner();
    assert!(stream.message().await.unwrap().is_some());
    drop(stream);
    store.put("after", "v").await;
    assert!(snapshot(&store).await.len() > 50);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hashes_are_equal_for_equal_history_and_follow_compaction() {
    let (one, two) = (Store::start().await, Store::start().await);
    for store in [&one, &two] {
        for value in ["1", "2", "3"] {
            store.put("k", value).await;
        }
        store.delete("k").await;
    }
    let hash = |revision| rpc::HashKvRequest { revision };
    let first = one
        .maintenance()
        .hash_kv(hash(0))
        .await
        .unwrap()
        .into_inner();
    let second = two
        .maintenance()
        .hash_kv(hash(0))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(first.hash, second.hash);
    assert_eq!(
        (first.hash_revision, revision(first.header.as_ref())),
        (5, 5)
    );
    let older = one
        .maintenance()
        .hash_kv(hash(3))
        .await
        .unwrap()
        .into_inner();
    assert!(older.hash != first.hash && older.hash_revision == 3);
    one.compact(4, true).await.unwrap();
    let compacted = one
        .maintenance()
        .hash_kv(hash(0))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(compacted.compact_revision, 4);
    let gone = one.maintenance().hash_kv(hash(2)).await.unwrap_err();
    assert_eq!(
        gone.message(),
        "etcdserver: mvcc: required revision has been compacted"
    );
    let whole = one
        .maintenance()
        .hash(rpc::HashRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(revision(whole.header.as_ref()), 5);
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_members_say_who_and_where_the_store_is() {
    let store = Store::start().await;
    store.put("k", "v").await;
    let status = store
        .maintenance()
        .status(rpc::StatusRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (status.version.as_str(), status.storage_version.as_str()),
        ("3.7.3", "3.7.0")
    );
    let header = status.header.unwrap();
    assert_eq!(status.leader, header.member_id);
    assert!(status.raft_index >= status.raft_applied_index && status.raft_applied_index > 0);
    assert!(status.db_size > 0 && status.db_size >= status.db_size_in_use);
    assert_eq!(status.db_size_quota, 2 * 1024 * 1024 * 1024);
    assert!(status.errors.is_empty() && !status.is_learner);
    let request = rpc::MemberListRequest { linearizable: true };
    let list = store
        .cluster()
        .member_list(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(list.members.len(), 1);
    let member = &list.members[0];
    assert_eq!((member.id, member.name.as_str()), (header.member_id, "one"));
    let address = store.server.client_addresses()[0];
    assert_eq!(member.client_ur_ls, [format!("http://{address}")]);
    store
        .maintenance()
        .defragment(rpc::DefragmentRequest {})
        .await
        .unwrap();
    assert_eq!(store.get("k").await.unwrap().value, "v");
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_quota_raises_the_alarm_and_reads_go_on() {
    let small = |options: &mut StoreOptions| options.limits.quota_backend_bytes = 4 * 1024 * 1024;
    let store = Store::start_with(small).await;
    let mut refused = None;
    for number in 0..200 {
        let put = rpc::PutRequest {
            key: format!("k{number}").into(),
            value: vec![b'v'; 100_000].into(),
            ..rpc::PutRequest::default()
        };
        if let Err(error) = store.kv().put(put).await {
            refused = Some(error);
            break;
        }
    }
    let refused = refused.expect("the quota is enforced");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(
        refused.message(),
        "etcdserver: mvcc: database space exceeded"
    );
    let is_alarmed = || async {
        let request = rpc::AlarmRequest {
            action: AlarmAction::Get.into(),
            ..Default::default()
        };
        let alarms = store
            .maintenance()
            .alarm(request)
            .await
            .unwrap()
            .into_inner()
            .alarms;
        alarms
            .iter()
            .any(|alarm| alarm.alarm() == AlarmType::Nospace)
    };
    eventually(is_alarmed).await;
    assert!(store.get("k0").await.is_some());
    let (code, body) = store.http("GET", "/health").await;
    assert_eq!(
        (code, body.trim()),
        (503, r#"{"health":"false","reason":"ALARM NOSPACE"}"#)
    );
    let (code, _) = store.http("GET", "/health?exclude=NOSPACE").await;
    assert_eq!(code, 200);
    assert!(snapshot(&store).await.len() > 1);
    store.stop().await;
}

/// Whether this process holds an unlinked file of a snapshot that a slow client has not taken.
fn is_spooling(directory: &std::path::Path) -> bool {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    entries.flatten().any(|entry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let target = target.display().to_string();
        target.contains(directory.to_str().unwrap())
            && target.contains("snapshot-stream-")
            && target.ends_with("(deleted)")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_for_a_slow_client_waits_in_a_file_without_a_name() {
    let store = Store::start().await;
    for number in 0..24 {
        let value = vec![b'v'; 1 << 20];
        store.put_bytes(&format!("k{number}"), value).await;
    }
    let request = rpc::SnapshotRequest {};
    let stream = store.maintenance().snapshot(request).await.unwrap();
    let mut stream = stream.into_inner();
    let directory = store.directory.path().to_owned();
    eventually(|| async { is_spooling(&directory) }).await;
    // The view is free again, and the store goes on.
    store.put("meanwhile", "v").await;
    let mut pieces = Vec::new();
    while let Some(piece) = stream.message().await.unwrap() {
        pieces.push(piece);
    }
    let (digest, pieces) = pieces.split_last().unwrap();
    let file: Vec<u8> = pieces
        .iter()
        .flat_map(|piece| piece.blob.to_vec())
        .collect();
    assert!(file.len() > 24 << 20);
    assert_eq!(digest.blob.as_ref(), Sha256::digest(&file).as_slice());
    assert_eq!(digest.remaining_bytes, 0);
    eventually(|| async { !is_spooling(&directory) }).await;
    store.stop().await;
}
