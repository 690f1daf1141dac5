//! `snapshot status`, `hashkv`, `restore` and `save` on golden files and on damaged ones.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use holdfast_restore::manifest::SourceRecord;
use holdfast_restore::offline::{
    DigestState, SnapshotRestore, hash_kv, restore, restore_plan, save, status,
};
use holdfast_restore::source::SnapshotStream;
use holdfast_restore::{Error, ErrorKind};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use crate::golden_fixture::{self, ALL, path};
use crate::long::rounds;

fn options(snapshot: PathBuf, data_dir: &Path) -> SnapshotRestore {
    SnapshotRestore {
        snapshot,
        data_dir: Some(data_dir.to_path_buf()),
        ..Default::default()
    }
}

fn stream(chunks: Vec<Result<Bytes, Error>>) -> SnapshotStream {
    SnapshotStream {
        source: SourceRecord {
            kind: "file".into(),
            endpoint: "test".into(),
            cluster_id: None,
            member_id: None,
            server_version: None,
        },
        divergent: Vec::new(),
        expected_bytes: None,
        chunks: stream::iter(chunks).boxed(),
    }
}

fn chunks(content: &[u8]) -> Vec<Result<Bytes, Error>> {
    content
        .chunks(10_000)
        .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
        .collect()
}

#[test]
fn status_has_etcdutls_fields_and_tells_only_a_missing_digest() {
    for name in ALL.iter().filter(|name| !name.starts_with("v3.5")) {
        let golden = golden_fixture::json(name);
        let expected = golden
            .get("status")
            .unwrap_or(&golden["etcdutl_snapshot_status"]);
        let found = serde_json::to_value(status(&path(name)).unwrap()).unwrap();
        assert_eq!(&found, expected, "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("copied.db");
    let whole = fs::read(path("v3.7.3/basic")).unwrap();
    fs::write(&cut, &whole[..whole.len() - 32]).unwrap();
    let found = serde_json::to_value(status(&cut).unwrap()).unwrap();
    assert_eq!(found["digest"], "missing");
}

#[test]
fn hashkv_has_etcdutls_fields() {
    let found = serde_json::to_value(hash_kv(&path("v3.7.3/basic"), 0).unwrap()).unwrap();
    assert_eq!(found, golden_fixture::json("v3.7.3/basic")["utl_hashkv"]);
    assert_eq!(
        serde_json::to_value(hash_kv(&path("v3.7.3/small"), 417).unwrap()).unwrap(),
        json!({ "hash": 715_687_593, "hashRevision": 417, "compactRevision": 416 })
    );
    for revision in [415, 453, -1] {
        let refused = hash_kv(&path("v3.7.3/small"), revision).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
}

#[test]
fn status_refuses_every_flipped_snapshot_and_hashkv_and_restore_do_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flipped.db");
    let mut content = fs::read(path("v3.7.3/small")).unwrap();
    let mut random = StdRng::seed_from_u64(400);
    for _ in 0..rounds(200, 3_000) {
        let at = random.random_range(0..content.len());
        let bit = 1 << random.random_range(0..8);
        *content.get_mut(at).unwrap() ^= bit;
        fs::write(&file, &content).unwrap();
        assert_eq!(
            status(&file).unwrap_err().kind(),
            ErrorKind::Corrupt,
            "byte {at}"
        );
        assert_eq!(
            hash_kv(&file, 0).unwrap_err().kind(),
            ErrorKind::Corrupt,
            "byte {at}"
        );
        let target = folder.path().join("new.etcd");
        let refused = restore(&options(file.clone(), &target)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "byte {at}");
        assert!(!target.exists());
        *content.get_mut(at).unwrap() ^= bit;
    }
}

#[test]
fn a_snapshot_without_its_digest_is_shown_but_not_restored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("db");
    let content = fs::read(path("v3.7.3/basic")).unwrap();
    fs::write(&file, &content[..content.len() - 32]).unwrap();
    assert_eq!(status(&file).unwrap().digest, DigestState::Missing);
    let target = folder.path().join("new.etcd");
    let refused = restore(&options(file.clone(), &target)).unwrap_err();
    assert!(
        refused.to_string().contains("--skip-hash-check"),
        "{refused}"
    );
    assert!(!target.exists());
    let accepted = SnapshotRestore {
        skip_hash_check: true,
        ..options(file, &target)
    };
    assert_eq!(restore(&accepted).unwrap().revision, 160);
}

#[test]
fn a_wrong_digest_is_restored_on_request_only_and_damaged_pages_never() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("snapshot.db");
    let mut content = fs::read(path("v3.7.3/basic")).unwrap();
    let last = content.len() - 1;
    *content.get_mut(last).unwrap() ^= 1;
    fs::write(&file, &content).unwrap();
    let target = folder.path().join("new.etcd");
    assert!(restore(&options(file.clone(), &target)).is_err());
    let skipping = SnapshotRestore {
        skip_hash_check: true,
        ..options(file.clone(), &target)
    };
    restore(&skipping).unwrap();
    fs::remove_dir_all(&target).unwrap();
    // A page in use gets another page's id.
    let used = (2..content.len() / 4096)
        .rev()
        .find(|page| content[page * 4096 + 8] == 2)
        .unwrap();
    content[used * 4096] ^= 1;
    fs::write(&file, &content).unwrap();
    let outcome = restore(&skipping);
    assert!(outcome.is_err() || status(&file).is_err(), "{outcome:?}");
}

#[test]
fn restore_reads_etcdutls_flags() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("new.etcd");
    let flags = SnapshotRestore {
        name: "m0".into(),
        initial_cluster: "m0=http://127.0.0.1:23791".into(),
        initial_cluster_token: "restored".into(),
        initial_advertise_peer_urls: vec!["http://127.0.0.1:23791".into()],
        bump_revision: 1_000_000,
        ..options(path("v3.7.3/basic"), &target)
    };
    let restored = restore(&flags).unwrap();
    let golden = &golden_fixture::json("v3.7.3/basic")["restored"];
    assert_eq!(
        u64::from_str_radix(&restored.member_id, 16).unwrap(),
        golden["header"]["member_id"]
    );
    assert_eq!(
        u64::from_str_radix(&restored.cluster_id, 16).unwrap(),
        golden["header"]["cluster_id"]
    );
    assert_eq!(restored.revision, golden["header"]["revision"]);
    assert_eq!(restored.compact_revision, 1_000_160);
    assert_eq!(restored.data_dir, target);

    let plan = restore_plan(&SnapshotRestore::default()).unwrap();
    assert_eq!(plan.data_dir, Path::new("default.etcd"));
    assert!(!plan.mark_compacted);
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let refused = |flags: &SnapshotRestore| restore_plan(flags).unwrap_err().to_string();
    let base = SnapshotRestore::default;
    let marked = SnapshotRestore {
        mark_compacted: Some(true),
        ..base()
    };
    assert!(refused(&marked).contains("--bump-revision"));
    let bumped = SnapshotRestore {
        bump_revision: 1,
        mark_compacted: Some(false),
        ..base()
    };
    assert!(refused(&bumped).contains("--mark-compacted"));
    let unnamed = SnapshotRestore {
        name: "m9".into(),
        ..base()
    };
    assert!(refused(&unnamed).contains("m9"));
    let elsewhere = SnapshotRestore {
        initial_advertise_peer_urls: vec!["http://localhost:2381".into()],
        ..base()
    };
    assert!(refused(&elsewhere).contains("--initial-advertise-peer-urls"));
}

#[test]
fn nothing_that_reads_a_snapshot_changes_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("snapshot.db");
    fs::copy(path("v3.7.3/small"), &file).unwrap();
    let before = (
        fs::read(&file).unwrap(),
        fs::metadata(&file).unwrap().modified().unwrap(),
    );
    status(&file).unwrap();
    hash_kv(&file, 0).unwrap();
    restore(&options(file.clone(), &folder.path().join("new.etcd"))).unwrap();
    assert_eq!(fs::read(&file).unwrap(), before.0);
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before.1);
}

#[tokio::test]
async fn save_writes_what_the_stream_sends_and_reads_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("saved.db");
    let content = fs::read(path("v3.7.3/auth")).unwrap();
    let saved = save(stream(chunks(&content)), &target).await.unwrap();
    assert_eq!(fs::read(&target).unwrap(), content);
    assert_eq!(usize::try_from(saved.size).unwrap(), content.len());
    assert_eq!(saved.status.digest, DigestState::Valid);
    let again = save(stream(chunks(&content)), &target).await;
    assert!(
        matches!(again, Err(Error::TargetExists { .. })),
        "{again:?}"
    );
}

#[tokio::test]
async fn save_leaves_nothing_when_the_stream_breaks() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("saved.db");
    let content = fs::read(path("v3.7.3/auth")).unwrap();
    let mut broken = chunks(&content);
    broken.truncate(5);
    broken.push(Err(Error::Source {
        endpoint: "test".into(),
        reason: "gone".into(),
    }));
    let mut flipped = content.clone();
    *flipped.get_mut(70_000).unwrap() ^= 1;
    let without_digest = content.get(..content.len() - 32).unwrap();
    for bad in [
        broken,
        chunks(&flipped),
        chunks(without_digest),
        chunks(b"too short"),
        Vec::new(),
    ] {
        assert!(save(stream(bad), &target).await.is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
