//! Snapshots of real etcd become the state, and the snapshot that state makes says the same.
#![expect(
    clippy::unwrap_used,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::etcd::rpc;
use holdfast_store::apply::{
    Applier, Entry, EntryPayload, LogPosition, Membership, NoEvents, Seat, StateOptions,
};
use holdfast_store::bolt::FileSource;
use holdfast_store::etcd_file::EtcdFile;
use holdfast_store::state::State;

use crate::golden_fixture::{ALL, open, path};

const AT: LogPosition = LogPosition {
    term: 3,
    node: 9,
    index: 77,
};

fn membership() -> Membership {
    let seat = Seat {
        id: 9,
        peer_urls: vec!["http://127.0.0.1:2380".to_owned()],
        is_learner: false,
    };
    Membership {
        encoded: Bytes::from_static(b"who votes"),
        seats: vec![seat],
    }
}

fn install(name: &str, folder: &tempfile::TempDir) -> (Applier, Arc<State>) {
    let options = StateOptions::default();
    let file = folder.path().join("state");
    let (mut applier, state) = Applier::open(&file, &options, Arc::new(NoEvents)).unwrap();
    applier.install(&path(name), AT, membership()).unwrap();
    (applier, state)
}

fn assert_same(state: &State, source: &EtcdFile<FileSource>, name: &str) {
    assert_eq!(
        state.revision(),
        source.revision().unwrap().max(1),
        "{name}"
    );
    let hash = source.hash_kv(0).unwrap();
    assert_eq!(state.hash_kv(0).unwrap().hash, hash.hash, "{name}");
    let all = rpc::RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        ..rpc::RangeRequest::default()
    };
    let mut expected = source.keys(0).unwrap();
    expected.sort_by(|left, right| left.key.cmp(&right.key));
    assert_eq!(state.range(&all).unwrap().kvs, expected, "{name}");
    let leases = source.survey(|_pair| ()).content.unwrap().leases;
    assert_eq!(state.leases().len(), leases.len(), "{name}");
    assert_eq!(state.alarms(), source.alarms().unwrap(), "{name}");
    assert_eq!(
        state.cluster_version(),
        source.cluster_version().unwrap(),
        "{name}"
    );
    assert_eq!(
        state.is_auth_enabled(),
        source.auth().unwrap().is_enabled,
        "{name}"
    );
}

#[test]
fn every_golden_snapshot_becomes_the_state_and_comes_out_again() {
    for name in ALL {
        let folder = tempfile::TempDir::new().unwrap();
        let (mut applier, state) = install(name, &folder);
        assert_same(&state, &open(name), name);
        applier.defragment().unwrap();
        assert_same(&state, &open(name), name);
        let written = folder.path().join("snapshot.db");
        let mut sink = std::fs::File::create(&written).unwrap();
        state.export().unwrap().write_to(&mut sink).unwrap();
        let exported = EtcdFile::open(FileSource::open(&written).unwrap()).unwrap();
        assert!(
            exported.check().is_clean(),
            "{name}: {:?}",
            exported.check()
        );
        assert_same(&state, &exported, name);
        assert_eq!(exported.consistent_index().unwrap(), Some(77), "{name}");
        assert_eq!(exported.term().unwrap(), Some(3), "{name}");
        assert_eq!(
            exported.conf_state().unwrap().unwrap().voters,
            [9],
            "{name}"
        );
        let members = exported.members().unwrap();
        assert_eq!(members.len(), 1, "{name}");
        assert_eq!(members[0].id, 9, "{name}");
    }
}

#[test]
fn a_snapshot_of_the_same_state_has_the_same_bytes() {
    let folder = tempfile::TempDir::new().unwrap();
    let (_applier, state) = install("v3.7.3/small", &folder);
    let snapshot = || {
        let mut bytes = Vec::new();
        state.export().unwrap().write_to(&mut bytes).unwrap();
        bytes
    };
    assert!(snapshot() == snapshot());
}

#[test]
fn an_installed_state_is_there_after_a_restart_and_goes_on() {
    let folder = tempfile::TempDir::new().unwrap();
    let (applier, state) = install("v3.7.3/basic", &folder);
    let revision = state.revision();
    drop((applier, state));
    let file = folder.path().join("state");
    let options = StateOptions::default();
    let (mut applier, state) = Applier::open(&file, &options, Arc::new(NoEvents)).unwrap();
    assert_same(&state, &open("v3.7.3/basic"), "reopened");
    assert_eq!(applier.applied(), Some(AT));
    assert_eq!(applier.membership(), Some(membership()));
    let entry = Entry {
        position: LogPosition { index: 78, ..AT },
        payload: EntryPayload::Command(holdfast_proto::store::v1::Command {
            id: 1,
            request: Some(holdfast_proto::store::v1::command::Request::Put(
                rpc::PutRequest {
                    key: Bytes::from_static(b"after"),
                    ..rpc::PutRequest::default()
                },
            )),
        }),
    };
    applier.apply(vec![entry]).unwrap().pop().unwrap().unwrap();
    assert_eq!(state.revision(), revision + 1);
}

#[test]
fn a_defragmentation_keeps_what_is_applied_through_a_restart() {
    let folder = tempfile::TempDir::new().unwrap();
    let (mut applier, state) = install("v3.7.3/basic", &folder);
    applier.defragment().unwrap();
    assert_eq!(applier.applied(), Some(AT));
    assert_eq!(state.applied(), Some(AT));
    drop((applier, state));
    let file = folder.path().join("state");
    let (applier, state) =
        Applier::open(&file, &StateOptions::default(), Arc::new(NoEvents)).unwrap();
    assert_same(&state, &open("v3.7.3/basic"), "rewritten");
    assert_eq!(applier.applied(), Some(AT));
}

#[test]
fn a_file_that_is_no_snapshot_leaves_the_state_as_it_was() {
    let folder = tempfile::TempDir::new().unwrap();
    let (mut applier, state) = install("v3.7.3/small", &folder);
    let before = state.hash().unwrap();
    let bad = folder.path().join("bad.db");
    std::fs::write(&bad, vec![7; 100_000]).unwrap();
    assert!(applier.install(&bad, AT, membership()).is_err());
    assert_eq!(state.hash().unwrap(), before);
    applier.checkpoint().unwrap();
}
