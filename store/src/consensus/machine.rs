//! The state machine as openraft sees it: batches of committed entries to the apply thread.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::{FutureExt as _, Stream, StreamExt as _};
use openraft::OptionalSend;
use openraft::storage::{EntryResponder, RaftStateMachine, Snapshot};
use parking_lot::Mutex;

use super::apply_thread::{ApplyHandle, Batch};
use super::log::RaftLogReader;
use super::membership::{decode_membership, encode_membership};
use super::outbox::Outbox;
use super::snapshot::{Pinned, RaftSnapshot, SnapshotBuilder};
use super::types::{
    LogEntry, LogId, Membership, Payload, SnapshotMeta, StoredMembership, TypeConfig, log_id,
    term_of,
};
use crate::apply::{self, Entry, EntryPayload, LogPosition};
use crate::error::Error;
use crate::failpoint::{self, Point};
use crate::state::State;

/// Entries applied in one transaction.
const BATCH_ENTRIES_MAX: usize = 4096;
/// Bytes of commands after which no more are added to a transaction.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// The state machine of one member.
#[derive(Debug)]
pub(crate) struct Machine {
    apply: ApplyHandle,
    state: Arc<State>,
    /// Where snapshots received or made for a peer are kept while they are in use.
    snapshot_dir: PathBuf,
    outbox: Arc<Outbox>,
    current: Arc<Mutex<Option<SnapshotMeta>>>,
}

impl Machine {
    /// A machine over the apply thread and the state it changes.
    pub(crate) fn new(
        apply: ApplyHandle,
        state: Arc<State>,
        snapshot_dir: PathBuf,
        log: RaftLogReader,
    ) -> Self {
        Self {
            apply,
            state,
            snapshot_dir,
            outbox: Arc::new(Outbox::new(log)),
            current: Arc::default(),
        }
    }

    /// The snapshots on their way to other members.
    pub(super) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// Where snapshots lie.
    pub(super) fn snapshot_dir(&self) -> &Path {
        &self.snapshot_dir
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = RaftSnapshot;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let position = self.apply.position();
        let membership = match &position.membership {
            Some(membership) => decode_membership(&membership.encoded)?,
            None => StoredMembership::default(),
        };
        Ok((position.applied.map(to_log_id), membership))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let mut next = entries.next().await;
        while let Some(item) = next {
            let mut batch = Batch::default();
            let mut bytes = push(&mut batch, item?)?;
            next = loop {
                if batch.entries.len() >= BATCH_ENTRIES_MAX || bytes >= BATCH_BYTES_MAX {
                    break entries.next().await;
                }
                // What the stream has ready joins this transaction; what it must wait for is
                // the next one's.
                match entries.next().now_or_never() {
                    Some(Some(item)) => bytes += push(&mut batch, item?)?,
                    Some(None) => break None,
                    None => {
                        self.apply
                            .apply(std::mem::take(&mut batch))
                            .await
                            .map_err(other)?;
                        break entries.next().await;
                    }
                }
            };
            if !batch.entries.is_empty() {
                self.apply.apply(batch).await.map_err(other)?;
            }
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<SnapshotBuilder> {
        if self.outbox.holds_log() {
            return None;
        }
        Some(self.get_snapshot_builder().await)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder {
            apply: self.apply.clone(),
            state: Arc::clone(&self.state),
            dir: self.snapshot_dir.clone(),
            outbox: Arc::clone(&self.outbox),
            current: Arc::clone(&self.current),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: RaftSnapshot,
    ) -> io::Result<()> {
        let Some(last) = meta.last_log_id else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the snapshot is of nothing",
            ));
        };
        let membership = to_membership(&meta.last_membership)?;
        let file = snapshot.into_file().await.map_err(other)?;
        failpoint::pause(Point::RaftBeforeApplySnap).await;
        self.apply
            .install(file.path().to_owned(), to_position(&last), membership)
            .await
            .map_err(other)?;
        failpoint::pause(Point::RaftAfterApplySnap).await;
        *self.current.lock() = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<Snapshot<LeaderTerm, u64, super::types::PeerNode, RaftSnapshot>>> {
        if self.current.lock().is_none() {
            return Ok(None);
        }
        if let Some(made) = self.outbox.usable() {
            return Ok(Some(Snapshot {
                meta: made.meta.clone(),
                snapshot: RaftSnapshot::Made(made),
            }));
        }
        let pinned = Pinned::new(&self.state, &self.snapshot_dir, &self.outbox).map_err(other)?;
        Ok(Some(Snapshot {
            meta: pinned.meta()?,
            snapshot: RaftSnapshot::Here(pinned),
        }))
    }
}

type LeaderTerm = openraft::type_config::alias::CommittedLeaderIdOf<TypeConfig>;

fn push(batch: &mut Batch, item: EntryResponder<TypeConfig>) -> io::Result<usize> {
    let (entry, responder) = item;
    let LogEntry { log_id, payload } = entry;
    let (payload, bytes) = match payload {
        Payload::Blank => (EntryPayload::Blank, 0),
        Payload::Normal(proposal) => (
            EntryPayload::Command(proposal.command),
            proposal.encoded.len(),
        ),
        Payload::Membership(membership) => {
            let stored = StoredMembership::new(Some(log_id), membership);
            (EntryPayload::Membership(to_membership(&stored)?), 0)
        }
    };
    batch.entries.push(Entry {
        position: to_position(&log_id),
        payload,
    });
    batch.responders.push(responder);
    Ok(bytes)
}

/// The membership as the state keeps it.
pub(crate) fn to_membership(stored: &StoredMembership) -> io::Result<apply::Membership> {
    let membership: &Membership = stored.membership();
    let voters: Vec<u64> = membership.voter_ids().collect();
    let seats = membership
        .nodes()
        .map(|(id, node)| apply::Seat {
            id: *id,
            peer_urls: node.peer_urls.clone(),
            // To clients a member that is to vote is a voter at once, as in etcd.
            is_learner: !voters.contains(id) && !node.is_wanted_voter(),
        })
        .collect();
    Ok(apply::Membership {
        encoded: encode_membership(stored)?,
        seats,
    })
}

/// One leader a term: the term says who proposed it, so the node stays 0.
pub(crate) fn to_position(id: &LogId) -> LogPosition {
    LogPosition {
        term: term_of(id),
        node: 0,
        index: id.index,
    }
}

pub(crate) fn to_log_id(position: LogPosition) -> LogId {
    log_id(position.term, position.index)
}

fn other(error: Error) -> io::Error {
    io::Error::other(error)
}
