//! Data directories for a real etcd: what they hold, and that they come whole or not at all.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_proto::etcd::{kv, raft, snap, wal};
use holdfast_restore::etcd_datadir::{
    DataDirPlan, NewCluster, bumped_revision, write_etcd_datadir,
};
use holdfast_restore::{Error, plan};
use holdfast_store::bolt::FileSource;
use holdfast_store::etcd_file::EtcdFile;
use holdfast_store::mvcc::{Keep, KvHasher, Revision, RowKey};
use prost::Message as _;

use crate::golden_fixture::{ALL, BASIC, DUMPED, json, keys_digest, path};

const TOKEN: &str = "golden";
const CLUSTER: &str = "default=http://127.0.0.1:23802";

pub(crate) fn plan(data_dir: &Path) -> DataDirPlan {
    DataDirPlan {
        data_dir: data_dir.to_path_buf(),
        wal_dir: None,
        name: "default".into(),
        cluster: NewCluster::parse(CLUSTER, TOKEN).unwrap(),
        bump_revision: 1_000_000_000,
        mark_compacted: true,
        clear_alarms: false,
    }
}

pub(crate) fn source(name: &str) -> EtcdFile<FileSource> {
    EtcdFile::open(FileSource::open(&path(name)).unwrap()).unwrap()
}

fn database(data_dir: &Path) -> EtcdFile<FileSource> {
    EtcdFile::open(FileSource::open(&data_dir.join("member/snap/db")).unwrap()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

/// The log's records, after checking lengths, padding and the running checksum.
fn records(log: &Path) -> Vec<wal::Record> {
    let bytes = fs::read(log).unwrap();
    assert_eq!(bytes.len(), 64_000_000);
    let mut records = Vec::new();
    let mut at = 0;
    let mut sum = 0;
    loop {
        let field = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        if field == 0 {
            break;
        }
        let length = usize::try_from(field & 0x00ff_ffff_ffff_ffff).unwrap();
        let padding = usize::try_from((field >> 56) & 7).unwrap();
        assert_eq!((length + padding) % 8, 0);
        let record = wal::Record::decode(&bytes[at + 8..at + 8 + length]).unwrap();
        sum = crc32c::crc32c_append(sum, record.data());
        assert_eq!(record.crc(), sum);
        records.push(record);
        at += 8 + length + padding;
    }
    assert!(bytes[at..].iter().all(|byte| *byte == 0));
    records
}

#[test]
fn a_bumped_directory_answers_as_the_one_etcdutl_made() {
    for name in DUMPED {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("new.etcd");
        let written = write_etcd_datadir(&source(name), &plan(&target)).unwrap();
        let golden = json(name);
        let probe = &golden["restore_bump_mark_compacted"]["probe"];
        assert_eq!(
            written.member_id.to_string(),
            probe["header"]["member_id"],
            "{name}"
        );
        assert_eq!(
            written.cluster_id.to_string(),
            probe["header"]["cluster_id"],
            "{name}"
        );
        assert_eq!(written.revision, probe["header"]["revision"], "{name}");

        let file = database(&target);
        assert!(file.check().is_clean(), "{name}");
        assert_eq!(file.bolt().size(), written.database_size, "{name}");
        assert_eq!(file.revision().unwrap(), written.revision, "{name}");
        assert_eq!(
            file.compact_revision().unwrap(),
            written.compact_revision,
            "{name}"
        );
        let hash = file.hash_kv(0).unwrap();
        let expected = &probe["hashkv"][0];
        assert_eq!(u64::from(hash.hash), expected["hash"], "{name}");
        assert_eq!(
            hash.compact_revision, expected["compact_revision"],
            "{name}"
        );
        let keys = file.keys(0).unwrap();
        assert_eq!(keys_digest(&keys), probe["keys_digest"], "{name}");
        let before = file.keys(written.revision - 1);
        assert!(
            matches!(before, Err(holdfast_store::Error::Compacted)),
            "{name}"
        );
        assert_eq!(
            file.survey(|_pair| ()).content.unwrap().leases,
            source(name).survey(|_pair| ()).content.unwrap().leases,
            "{name}"
        );
        assert_eq!(file.auth().unwrap(), source(name).auth().unwrap(), "{name}");
        assert_eq!(
            file.alarms().unwrap(),
            source(name).alarms().unwrap(),
            "{name}"
        );
    }
}

/// Real etcd was asked for the hash after one more write, of `after`, which its answers place at
/// the next revision; counted behind the rows of the directory it gives the number etcd gave.
#[test]
fn the_first_write_after_a_bump_hashes_as_it_did_on_real_etcd() {
    for name in BASIC {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("new.etcd");
        let plan = DataDirPlan {
            name: "m0".into(),
            cluster: NewCluster::parse("m0=http://127.0.0.1:23791", "restored").unwrap(),
            bump_revision: 1_000_000,
            ..plan(&target)
        };
        let written = write_etcd_datadir(&source(name), &plan).unwrap();
        let told = &json(name)["restored"];
        assert_eq!(written.cluster_id.0, told["header"]["cluster_id"], "{name}");
        assert_eq!(written.member_id.0, told["header"]["member_id"], "{name}");
        assert_eq!(written.revision, told["header"]["revision"], "{name}");

        let file = database(&target);
        let mut live: BTreeMap<Vec<u8>, Revision> = BTreeMap::new();
        file.for_each_row(|row, _, value| {
            let pair = kv::KeyValue::decode(value).unwrap();
            if row.is_tombstone {
                live.remove(&pair.key[..]);
            } else {
                live.insert(pair.key.to_vec(), row.revision);
            }
            Ok(())
        })
        .unwrap();
        let keep = Keep::new(live.into_values().collect());
        let next = written.revision + 1;
        let mut hasher = KvHasher::new(written.revision, next, &keep);
        file.for_each_row(|row, key, value| {
            hasher.write(row, key, value);
            Ok(())
        })
        .unwrap();
        let row = RowKey {
            revision: Revision { main: next, sub: 0 },
            is_tombstone: false,
        };
        let pair = kv::KeyValue {
            key: "after".into(),
            create_revision: next,
            mod_revision: next,
            version: 1,
            value: "restore".into(),
            lease: 0,
        };
        hasher.write(row, &row.revision.encode(), &pair.encode_to_vec());
        let hash = &told["hashkv"]["hash"];
        assert_eq!(u64::from(hasher.finish()), *hash, "{name}");
    }
}

#[test]
fn without_a_bump_the_content_hashes_as_the_backup() {
    for name in ALL {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("new.etcd");
        let plan = DataDirPlan {
            bump_revision: 0,
            mark_compacted: false,
            ..plan(&target)
        };
        let written = write_etcd_datadir(&source(name), &plan).unwrap();
        let original = source(name).hash_kv(0).unwrap();
        assert_eq!(written.revision, original.current_revision, "{name}");
        assert_eq!(database(&target).hash_kv(0).unwrap(), original, "{name}");
    }
}

#[test]
fn only_the_new_members_are_left() {
    let folder = tempfile::tempdir().unwrap();
    let urls = "m0=http://a:2380,m1=http://b:2380,m1=http://b:2381,m2=https://[::1]:2380";
    let cluster = NewCluster::parse(urls, "token").unwrap();
    let mut members = Vec::new();
    for name in ["m0", "m1", "m2"] {
        let target = folder.path().join(name);
        let plan = DataDirPlan {
            name: name.into(),
            cluster: cluster.clone(),
            ..plan(&target)
        };
        members.push(
            write_etcd_datadir(&source("v3.7.3/basic"), &plan)
                .unwrap()
                .member_id
                .0,
        );
        let file = database(&target);
        let stored = file.members().unwrap();
        assert_eq!(stored.len(), 3);
        assert!(stored.iter().all(|member| member.client_urls.is_empty()));
        let two = stored.iter().find(|member| member.name == "m1").unwrap();
        assert_eq!(two.peer_urls, ["http://b:2380", "http://b:2381"]);
        let voters = file.conf_state().unwrap().unwrap().voters;
        assert_eq!(
            voters,
            stored.iter().map(|member| member.id).collect::<Vec<_>>()
        );
        assert_eq!(file.consistent_index().unwrap(), Some(3));
        assert_eq!(file.term().unwrap(), Some(1));
        let removed = file.bolt().bucket(b"members_removed").unwrap().unwrap();
        assert_eq!(removed.iter().count(), 0);
    }
    let stored = database(&folder.path().join("m0")).members().unwrap();
    for member in &stored {
        assert!(members.contains(&member.id));
    }
    assert_eq!(members.len(), 3);
}

#[test]
fn the_log_adds_the_members_and_ends_in_a_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("new.etcd");
    let cluster = NewCluster::parse("a=http://a:1,b=http://b:1", "t").unwrap();
    let plan = DataDirPlan {
        name: "b".into(),
        cluster,
        ..plan(&target)
    };
    let written = write_etcd_datadir(&source("v3.7.3/empty"), &plan).unwrap();
    let log = target.join("member/wal/0000000000000000-0000000000000000.wal");
    let records = records(&log);
    let kinds: Vec<i64> = records.iter().map(wal::Record::r#type).collect();
    assert_eq!(kinds, [4, 1, 5, 2, 2, 3, 5]);

    let changes: Vec<raft::ConfChange> = records[3..5]
        .iter()
        .map(|record| raft::Entry::decode(record.data()).unwrap())
        .map(|entry| raft::ConfChange::decode(entry.data()).unwrap())
        .collect();
    let ids: Vec<u64> = changes.iter().map(raft::ConfChange::node_id).collect();
    assert!(ids.is_sorted() && ids.contains(&written.member_id.0));
    let context: serde_json::Value = serde_json::from_slice(changes[0].context()).unwrap();
    assert_eq!(context["id"], ids[0]);
    let state = raft::HardState::decode(records[5].data()).unwrap();
    assert_eq!((state.term(), state.vote(), state.commit()), (1, ids[0], 2));
    let last = wal::Snapshot::decode(records[6].data()).unwrap();
    assert_eq!((last.index(), last.term()), (2, 1));
    assert_eq!(last.conf_state.unwrap().voters, ids);

    let file = fs::read(target.join("member/snap/0000000000000001-0000000000000002.snap")).unwrap();
    let wrapper = snap::Snapshot::decode(file.as_slice()).unwrap();
    assert_eq!(crc32c::crc32c(wrapper.data()), wrapper.crc());
    let snapshot = raft::Snapshot::decode(wrapper.data()).unwrap();
    let metadata = snapshot.metadata.clone().unwrap();
    assert_eq!((metadata.index(), metadata.term()), (2, 1));
    let store: serde_json::Value = serde_json::from_slice(snapshot.data()).unwrap();
    let members = &store["Root"]["Children"]["0"]["Children"]["members"]["Children"];
    assert_eq!(members.as_object().unwrap().len(), 2);
}

#[test]
fn folders_and_files_are_for_their_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("deep/er/new.etcd");
    let wal_dir = folder.path().join("log");
    let plan = DataDirPlan {
        wal_dir: Some(wal_dir.clone()),
        ..plan(&target)
    };
    write_etcd_datadir(&source("v3.7.3/empty"), &plan).unwrap();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for part in ["", "member", "member/snap"] {
        assert_eq!(mode(target.join(part)), 0o700, "{part}");
    }
    assert_eq!(mode(target.join("member/snap/db")), 0o600);
    assert_eq!(names(&target.join("member")), ["snap"]);
    assert_eq!(names(&wal_dir), ["0000000000000000-0000000000000000.wal"]);
    assert_eq!(names(folder.path()), ["deep", "log"]);
}

#[test]
fn an_existing_target_is_never_touched() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"mine").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path().join("nowhere"), &link).unwrap();
    for target in [&empty, &file, &link] {
        let refused = write_etcd_datadir(&source("v3.7.3/empty"), &plan(target));
        assert!(
            matches!(refused, Err(Error::TargetExists { .. })),
            "{refused:?}"
        );
        let fresh = folder.path().join("fresh");
        let plan = DataDirPlan {
            wal_dir: Some(target.clone()),
            ..plan(&fresh)
        };
        let refused = write_etcd_datadir(&source("v3.7.3/empty"), &plan);
        assert!(
            matches!(refused, Err(Error::TargetExists { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    assert_eq!(names(folder.path()), ["empty", "file", "link"]);
}

#[test]
fn a_leftover_is_removed_and_work_in_progress_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("new.etcd");
    let leftover = folder.path().join("new.etcd.partial-0123");
    fs::create_dir_all(leftover.join("member/snap")).unwrap();
    fs::write(leftover.join("member/snap/db"), b"half").unwrap();
    let busy = folder.path().join("new.etcd.partial-4567");
    fs::create_dir(&busy).unwrap();
    let lock = fs::File::open(&busy).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let other = folder.path().join("other.partial-89");
    fs::create_dir(&other).unwrap();

    write_etcd_datadir(&source("v3.7.3/empty"), &plan(&target)).unwrap();
    assert_eq!(
        names(folder.path()),
        ["new.etcd", "new.etcd.partial-4567", "other.partial-89"]
    );
}

#[test]
fn a_failed_restore_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("new.etcd");
    let mut content = fs::read(path("v3.7.3/k8s")).unwrap();
    // Damage every leaf of the key bucket but keep the first pages.
    for page in 3..content.len() / 4096 {
        content[page * 4096 + 8] ^= 0x40;
    }
    if let Ok(file) = EtcdFile::open(content) {
        assert!(write_etcd_datadir(&file, &plan(&target)).is_err());
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_bump_that_leaves_no_room_is_refused() {
    assert_eq!(bumped_revision(160, 1_000_000).unwrap(), 1_000_160);
    assert_eq!(bumped_revision(160, 0).unwrap(), 160);
    let highest = u64::try_from(plan::REVISION_MAX).unwrap();
    assert_eq!(bumped_revision(0, highest).unwrap(), plan::REVISION_MAX);
    for bump in [highest, highest + 1, i64::MAX.unsigned_abs(), u64::MAX] {
        let refused = bumped_revision(160, bump);
        assert!(matches!(refused, Err(Error::BumpOverflow { .. })), "{bump}");
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("new.etcd");
        let plan = DataDirPlan {
            bump_revision: bump,
            ..plan(&target)
        };
        assert!(write_etcd_datadir(&source("v3.7.3/basic"), &plan).is_err());
        assert!(names(folder.path()).is_empty());
    }
}

#[test]
fn alarms_are_cleared_on_request_only() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, cleared) = (folder.path().join("kept"), folder.path().join("cleared"));
    write_etcd_datadir(&source("v3.7.3/alarm"), &plan(&kept)).unwrap();
    let plan = DataDirPlan {
        clear_alarms: true,
        ..plan(&cleared)
    };
    write_etcd_datadir(&source("v3.7.3/alarm"), &plan).unwrap();
    assert_eq!(database(&kept).alarms().unwrap().len(), 1);
    assert_eq!(database(&cleared).alarms().unwrap(), []);
}

#[test]
fn clusters_that_etcd_would_refuse_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("new.etcd");
    for cluster in [
        "other=http://a:1",
        "",
        "default=http://a:1,b=http://a:1",
        "default=http://a",
        "default=http://a:1/path",
        "default=ftp://a:1",
        "default=",
    ] {
        let cluster = NewCluster::parse(cluster, "t").unwrap();
        let plan = DataDirPlan {
            cluster: cluster.clone(),
            ..plan(&target)
        };
        let refused = write_etcd_datadir(&source("v3.7.3/empty"), &plan);
        assert!(
            matches!(refused, Err(Error::Refused { .. })),
            "{cluster:?}: {refused:?}"
        );
    }
    assert!(NewCluster::parse("no-equals-sign", "t").is_err());
    assert!(names(folder.path()).is_empty());
}
