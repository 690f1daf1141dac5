//! openraft's own storage suite, on our log and machine, and the traps of its defaults.

use std::io;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use openraft::storage::{EntryResponder, RaftStateMachine, Snapshot};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::alias::SnapshotOf;
use openraft::{OptionalSend, RaftSnapshotBuilder, StorageError};
use tempfile::TempDir;

use tokio::sync::watch;

use super::Machine;
use super::log::{LogIdentity, LogOptions, RaftLog, RaftLogReader};
use super::peer::{Dialers, Identity, Peers, TcpDialer};
use super::types::{
    LogId, Payload, PeerNode, SnapshotMeta, StoredMembership, TypeConfig, Vote, log_id,
};
use crate::apply::{Applier, NoEvents, Response, StateOptions};
use crate::datadir::identity::{ClusterId, MemberId};

/// A state machine that only counts: the suite is about the log here.
#[derive(Debug, Clone, Default)]
struct Counter {
    applied: Option<LogId>,
    membership: StoredMembership,
    snapshot: Option<SnapshotMeta>,
}

impl RaftStateMachine<TypeConfig> for Shared {
    type SnapshotData = ();
    type SnapshotBuilder = SharedBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let counter = self.0.lock();
        Ok((counter.applied, counter.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            {
                let mut counter = self.0.lock();
                counter.applied = Some(entry.log_id);
                if let Payload::Membership(membership) = entry.payload {
                    counter.membership = StoredMembership::new(Some(entry.log_id), membership);
                }
            }
            if let Some(responder) = responder {
                responder.send(Ok(Response::Empty));
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SharedBuilder {
        SharedBuilder(Arc::clone(&self.0))
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, (): ()) -> io::Result<()> {
        let mut counter = self.0.lock();
        counter.applied = meta.last_log_id;
        counter.membership = meta.last_membership.clone();
        counter.snapshot = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<TypeConfig, ()>>> {
        let meta = self.0.lock().snapshot.clone();
        Ok(meta.map(|meta| Snapshot { meta, snapshot: () }))
    }
}

#[derive(Debug, Clone, Default)]
struct Shared(Arc<parking_lot::Mutex<Counter>>);

#[derive(Debug)]
struct SharedBuilder(Arc<parking_lot::Mutex<Counter>>);

impl RaftSnapshotBuilder<TypeConfig> for SharedBuilder {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<TypeConfig, ()>> {
        let mut counter = self.0.lock();
        let meta = SnapshotMeta {
            last_log_id: counter.applied,
            last_membership: counter.membership.clone(),
        };
        counter.snapshot = Some(meta.clone());
        Ok(Snapshot { meta, snapshot: () })
    }
}

struct LogOnly;

impl StoreBuilder<TypeConfig, RaftLog, Shared, TempDir> for LogOnly {
    async fn build(&self) -> Result<(TempDir, RaftLog, Shared), StorageError<TypeConfig>> {
        let dir = TempDir::new().expect("a temporary folder");
        let log = open_log(dir.path());
        Ok((dir, log, Shared::default()))
    }
}

fn open_log(dir: &std::path::Path) -> RaftLog {
    let identity = LogIdentity {
        cluster: 1,
        member: 0,
    };
    let options = LogOptions {
        segment_bytes: 64 << 10,
        ..LogOptions::new(dir, identity)
    };
    RaftLog::open(&options).expect("the log opens")
}

#[tokio::test]
async fn the_log_passes_the_suite_of_openraft() {
    Suite::test_all(LogOnly).await.expect("the suite passes");
}

/// The log and the real state machine, as a member has them.
struct WholeStore;

impl StoreBuilder<TypeConfig, RaftLog, Machine, TempDir> for WholeStore {
    async fn build(&self) -> Result<(TempDir, RaftLog, Machine), StorageError<TypeConfig>> {
        let dir = TempDir::new().expect("a temporary folder");
        let log = open_log(&dir.path().join("raft"));
        let machine = open_machine(dir.path(), log.reader());
        Ok((dir, log, machine))
    }
}

fn open_machine(dir: &std::path::Path, log: RaftLogReader) -> Machine {
    let path = dir.join("state.redb");
    let (applier, state) =
        Applier::open(&path, &StateOptions::default(), Arc::new(NoEvents)).expect("it opens");
    let space = Arc::new(super::Space::new(dir, 0));
    // The thread ends with the last handle, which the machine holds.
    let (apply, _thread) = super::spawn_apply(
        applier,
        space,
        watch::Sender::new(None),
        None,
        super::Workers::Threads,
    )
    .expect("the thread starts");
    Machine::new(apply, state, dir.join("snapshots"), log)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_and_the_state_machine_pass_the_suite_of_openraft() {
    Suite::test_all(WholeStore).await.expect("the suite passes");
}

#[test]
fn two_candidates_of_one_term_cannot_both_be_its_leader() {
    // openraft's other mode orders them and lets both lead; clients would see one term twice.
    let (one, other) = (Vote::new(5, 1), Vote::new(5, 2));
    assert_eq!(one.partial_cmp(&other), None);
    assert_eq!(log_id(5, 9), log_id(5, 9));
}

#[tokio::test]
async fn a_peer_that_is_not_reached_grants_nothing_and_takes_no_lead() {
    use openraft::network::RPCOption;
    use openraft::raft::{TransferLeaderRequest, VoteRequest};
    use openraft::{RaftNetworkFactory as _, RaftNetworkV2 as _};
    let node = PeerNode {
        peer_urls: vec!["http://127.0.0.1:1".to_owned()],
        ..PeerNode::default()
    };
    let own = Identity {
        member: MemberId(1),
        cluster: ClusterId(2),
    };
    let second = std::time::Duration::from_secs(1);
    let dialers = Dialers {
        plain: Arc::new(TcpDialer),
        tls: None,
    };
    let mut peer = Peers::new(own, dialers, second).new_client(7, &node).await;
    let option = || RPCOption::new(second);
    let ask = VoteRequest::new(Vote::new(2, 1), None);
    // The trait's default grants every pre-vote.
    assert!(peer.pre_vote(ask.clone(), option()).await.is_err());
    assert!(peer.vote(ask, option()).await.is_err());
    let transfer = TransferLeaderRequest::new(Vote::new_committed(2, 1), 7, None);
    assert!(peer.transfer_leader(transfer, option()).await.is_err());
}
