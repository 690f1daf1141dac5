//! openraft's own storage suite, on our log.

use std::io;

use futures::{Stream, StreamExt as _};
use openraft::storage::{EntryResponder, RaftStateMachine, Snapshot};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::alias::SnapshotOf;
use openraft::{OptionalSend, RaftSnapshotBuilder, StorageError};
use tempfile::TempDir;

use super::log::{LogIdentity, LogOptions, RaftLog};
use super::types::{LogId, Payload, SnapshotMeta, StoredMembership, TypeConfig};
use crate::apply::Response;

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
        SharedBuilder(std::sync::Arc::clone(&self.0))
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
struct Shared(std::sync::Arc<parking_lot::Mutex<Counter>>);

#[derive(Debug)]
struct SharedBuilder(std::sync::Arc<parking_lot::Mutex<Counter>>);

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
