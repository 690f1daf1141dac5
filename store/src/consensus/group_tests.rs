//! A member that is not in step with its group yet.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_proto::etcd::kv;
use holdfast_proto::peer::v1 as proto;
use openraft::storage::{RaftLogStorage as _, RaftLogStorageExt as _, Snapshot};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::watch;

use super::log::{LogIdentity, LogOptions, RaftLog, RaftLogReader};
use super::peer::{Dialers, Identity, TcpDialer};
use super::snapshot::{RaftSnapshot, SnapshotFile};
use super::types::{LogEntry, Membership, Payload, SnapshotMeta, StoredMembership, Vote, log_id};
use super::{Group, GroupOptions, Machine, found};
use crate::apply::{Applier, Entry, EntryPayload, EventSink, LogPosition, StateOptions};
use crate::datadir::identity::{ClusterId, MemberId};
use crate::error::Error;
use crate::lease::LeaseChange;
use crate::state::State;

/// The member, and the leader that sends the snapshot.
const OWN: u64 = 1;
const LEADER: u64 = 2;
/// The last entry of the tail that was never committed.
const TAIL: u64 = 5;
/// The last entry in the snapshot.
const COVERED: u64 = 9;

/// What is on the disk at the moment the state has been replaced and raft does not know it yet.
struct Witness {
    dir: PathBuf,
    copy: PathBuf,
    log: OnceLock<RaftLogReader>,
    /// The term of the last entry of the log then, and the log's end.
    seen: Mutex<Option<(u64, u64)>>,
}

impl EventSink for Witness {
    fn publish(&self, _revision: i64, _events: &[kv::Event]) {}
    fn compacted(&self, _revision: i64) {}
    fn lease_changed(&self, _change: LeaseChange) {}

    fn replaced(&self, _revision: i64) {
        let Some(log) = self.log.get() else { return };
        let tail = log.fingerprint(TAIL).unwrap().expect("the tail is there");
        *self.seen.lock() = Some((tail.term, log.range().end));
        copy(&self.dir, &self.copy);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for item in std::fs::read_dir(from).unwrap() {
        let path = item.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

fn members() -> Membership {
    let urls = || vec!["http://127.0.0.1:1".to_owned()];
    let nodes = found::nodes(&[(MemberId(OWN), urls()), (MemberId(LEADER), urls())]);
    Membership::new(vec![[OWN, LEADER].into()], nodes).unwrap()
}

fn open_log(dir: &Path) -> RaftLog {
    let identity = LogIdentity {
        cluster: 7,
        member: OWN,
    };
    RaftLog::open(&LogOptions::new(dir.join("raft"), identity)).unwrap()
}

/// A log with entries of term 2 that only this member has.
async fn log_with_a_tail(dir: &Path) -> RaftLog {
    let mut log = open_log(dir);
    log.save_vote(&Vote::new(2, OWN)).await.unwrap();
    let founded = LogEntry {
        log_id: log_id(0, 0),
        payload: Payload::Membership(members()),
    };
    let tail = (1..=TAIL).map(|index| LogEntry {
        log_id: log_id(2, index),
        payload: Payload::Blank,
    });
    log.blocking_append(std::iter::once(founded).chain(tail))
        .await
        .unwrap();
    log
}

async fn start(dir: &Path, log: RaftLog, events: Arc<dyn EventSink>) -> (Group, Arc<State>) {
    let (applier, state) =
        Applier::open(&dir.join("state.redb"), &StateOptions::default(), events).unwrap();
    let space = Arc::new(super::Space::new(dir, 0));
    // The thread ends with the last handle, which the machine holds.
    let (apply, _thread) = super::spawn_apply(
        applier,
        space,
        watch::Sender::new(None),
        None,
        super::Workers::Threads,
    )
    .unwrap();
    let reader = log.reader();
    let machine = Machine::new(apply, Arc::clone(&state), dir.join("snapshots"), reader);
    let options = GroupOptions {
        heartbeat: Duration::from_millis(100),
        // It is never to stand for election here.
        election_timeout: Duration::from_hours(1),
        snapshot_count: 1000,
        catch_up_entries: 100,
        pre_vote: true,
        dialers: Dialers {
            plain: Arc::new(TcpDialer),
            tls: None,
        },
        snapshot_bytes_per_s: None,
    };
    let own = Identity {
        member: MemberId(OWN),
        cluster: ClusterId(7),
    };
    let group = Group::start(own, &options, log, machine).await.unwrap();
    (group, state)
}

/// A snapshot up to an entry of term 3, which another leader committed.
fn snapshot(dir: &Path) -> (SnapshotMeta, RaftSnapshot) {
    let (mut applier, state) = Applier::open(
        &dir.join("leader.redb"),
        &StateOptions::default(),
        Arc::new(crate::apply::NoEvents),
    )
    .unwrap();
    let at = LogPosition {
        term: 3,
        node: 0,
        index: COVERED,
    };
    let entry = Entry {
        position: at,
        payload: EntryPayload::Blank,
    };
    applier.apply(vec![entry]).unwrap();
    let path = dir.join("snapshot.db");
    let mut file = std::fs::File::create_new(&path).unwrap();
    state.export().unwrap().write_to(&mut file).unwrap();
    let meta = SnapshotMeta {
        last_log_id: Some(log_id(3, COVERED)),
        last_membership: StoredMembership::new(Some(log_id(0, 0)), members()),
    };
    (meta, RaftSnapshot::File(SnapshotFile::new(path)))
}

async fn purged(log: &RaftLogReader) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while log.range() != (COVERED + 1..COVERED + 1) {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", log.range());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_shorter_than_a_snapshot_stands_under_it_until_the_purge_and_is_never_applied() {
    let root = TempDir::new().unwrap();
    let (dir, copied) = (root.path().join("member"), root.path().join("crashed"));
    std::fs::create_dir(&dir).unwrap();
    let log = log_with_a_tail(&dir).await;
    let witness = Arc::new(Witness {
        dir: dir.clone(),
        copy: copied.clone(),
        log: OnceLock::new(),
        seen: Mutex::default(),
    });
    let reader = log.reader();
    witness.log.get_or_init(|| reader.clone());
    let events: Arc<dyn EventSink> = Arc::<Witness>::clone(&witness);
    let (group, state) = start(&dir, log, events).await;
    let (meta, snapshot) = snapshot(root.path());
    let sent = Snapshot { meta, snapshot };
    let vote = Vote::new_committed(3, LEADER);
    let installed = group.raft.install_full_snapshot(vote, sent).await;
    installed.unwrap();
    // The state is at term 3 while the log ends with what nobody committed, of term 2.
    assert_eq!(*witness.seen.lock(), Some((2, TAIL + 1)));
    assert_eq!(
        state.applied().map(|at| (at.term, at.index)),
        Some((3, COVERED))
    );
    purged(&reader).await;
    group.stop().await;

    // A crash at that moment: the tail goes at the start, and is not replayed.
    let log = open_log(&copied);
    let reader = log.reader();
    assert_eq!(reader.range(), 0..TAIL + 1);
    let (group, state) = start(&copied, log, Arc::new(crate::apply::NoEvents)).await;
    assert_eq!(
        state.applied().map(|at| (at.term, at.index)),
        Some((3, COVERED))
    );
    purged(&reader).await;
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_heard_before_its_address_is_known_is_none_to_call_yet() {
    let root = TempDir::new().unwrap();
    let log = open_log(root.path());
    let (group, _state) = start(root.path(), log, Arc::new(crate::apply::NoEvents)).await;
    let vote = proto::Vote {
        term: 3,
        member: LEADER,
        committed: true,
    };
    let heartbeat = proto::AppendRequest {
        vote: Some(vote),
        ..proto::AppendRequest::default()
    };
    let answer = group.peer_calls().probe(LEADER, heartbeat).await;
    answer.unwrap();
    // Raft publishes who leads a moment after it answers.
    let known = async {
        while group.status().leader != Some(LEADER) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), known)
        .await
        .unwrap();
    // Anything else is an error to whoever asks, and to one who waits a reason to ask at once.
    let asked = group.read_index(Duration::from_secs(1)).await;
    assert!(matches!(asked, Err(Error::NoLeader)), "{asked:?}");
    group.stop().await;
}
