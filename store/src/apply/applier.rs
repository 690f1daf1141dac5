//! The single writer.

use std::path::Path;
use std::sync::Arc;

use crate::backend::{Backend, Boxed, Home, LivePages, OpenStorage, Table, open_file};
use crate::error::Error;
use crate::failpoint::{self, Point};
use crate::lease::LeaseChange;
use crate::mvcc::{Compaction, Revision, Step};
use crate::state::State;

use super::quota::effective_quota;
use super::records::Records;
use super::step::{Batch, Changes, FINISHED_COMPACT_KEY};
use super::{
    Entry, EntryPayload, EventSink, LogPosition, Membership, Outcome, Rewrite, install, open,
};

/// How the state is kept.
#[derive(Debug, Clone)]
pub struct StateOptions {
    /// Space quota in bytes; 0: etcd's default of 2 GiB; negative: none.
    pub quota_bytes: i64,
    /// Cache of the store file, in bytes.
    pub cache_bytes: usize,
    /// Threads that load the index at start; 0: as many as there are cores.
    pub load_threads: usize,
}

impl Default for StateOptions {
    fn default() -> Self {
        Self {
            quota_bytes: 0,
            cache_bytes: 64 << 20,
            load_threads: 0,
        }
    }
}

/// How far a compaction of rows has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionProgress {
    /// Nothing to do.
    Idle,
    /// A bounded piece was done; call again, soon.
    Working,
    /// The compaction at this revision has just been finished.
    Finished {
        /// Its revision.
        revision: i64,
    },
}

/// The single writer of a state. Lives on one thread; everything it does is in one redb
/// transaction per batch.
pub struct Applier {
    pub(super) backend: Backend,
    pub(super) state: Arc<State>,
    pub(super) events: Arc<dyn EventSink>,
    pub(super) options: StateOptions,
    pub(super) records: Records,
    /// Compactions to do, oldest first.
    pub(super) compactions: std::collections::VecDeque<Compaction>,
    /// The last compaction scheduled; -1: none.
    pub(super) compacted: i64,
    pub(super) epoch: u64,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier")
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

impl Applier {
    /// Opens or creates the store file at `path`, under a lock of its own.
    pub fn open(
        path: &Path,
        options: &StateOptions,
        events: Arc<dyn EventSink>,
    ) -> Result<(Self, Arc<State>), Error> {
        let storage: Arc<OpenStorage> = Arc::new(open_file);
        Self::open_with(path, &storage, options, events)
    }

    /// As [`Applier::open`], on storage that `storage` opens; it is also asked for the storage of
    /// a rewritten state, which is then renamed to `path`.
    pub fn open_with(
        path: &Path,
        storage: &Arc<OpenStorage>,
        options: &StateOptions,
        events: Arc<dyn EventSink>,
    ) -> Result<(Self, Arc<State>), Error> {
        Self::start(
            Backend::open_path(path, storage, options.cache_bytes)?,
            options,
            events,
        )
    }

    /// Opens or creates a store on any storage; for tests with faults. A rewritten state moves to
    /// memory.
    pub fn open_with_backend(
        backend: impl redb::StorageBackend,
        options: &StateOptions,
        events: Arc<dyn EventSink>,
    ) -> Result<(Self, Arc<State>), Error> {
        let storage = Boxed(Box::new(backend));
        Self::start(
            Backend::open(Home::Detached, storage, options.cache_bytes)?,
            options,
            events,
        )
    }

    fn start(
        backend: Backend,
        options: &StateOptions,
        events: Arc<dyn EventSink>,
    ) -> Result<(Self, Arc<State>), Error> {
        let opened = open::read(&backend, options, 0)?;
        let quota = effective_quota(options.quota_bytes);
        let records = opened.records.clone();
        let (compacted, compactions) = (opened.compacted, opened.compaction.into_iter().collect());
        let published = open::published(&backend, &records, opened.revision, compacted, 0)?;
        let state = Arc::new(State::new(opened.index, opened.lessor, published, quota));
        let applier = Self {
            backend,
            state: Arc::clone(&state),
            events,
            options: options.clone(),
            records,
            compactions,
            compacted,
            epoch: 0,
            scratch: Vec::new(),
        };
        Ok((applier, state))
    }

    /// Applies committed entries in order, in one transaction (two, where a compaction is among
    /// them). An error is fatal to the member: nothing of the batch may be answered, and the
    /// handle accepts nothing more.
    pub fn apply(&mut self, entries: Vec<Entry>) -> Result<Vec<Outcome>, Error> {
        if failpoint::is_on(Point::BugIndexBeforeData) {
            self.note_applied(&entries)?;
        }
        let mut outcomes = Vec::with_capacity(entries.len());
        let mut batch = Vec::with_capacity(entries.len());
        for entry in entries {
            // A compaction ends a transaction: the index is compacted once readers know.
            let ends = is_compaction(&entry);
            batch.push(entry);
            if ends {
                self.apply_batch(std::mem::take(&mut batch), &mut outcomes)?;
            }
        }
        if !batch.is_empty() {
            self.apply_batch(batch, &mut outcomes)?;
        }
        Ok(outcomes)
    }

    fn apply_batch(
        &mut self,
        entries: Vec<Entry>,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Error> {
        let mut horizon = self.state.published().horizon;
        horizon.compacted = self.compacted;
        let quota = self.state.quota();
        let (state, records, scratch) = (&self.state, &mut self.records, &mut self.scratch);
        let written = self.backend.write(|rows| {
            let changes = Changes::default();
            let mut batch = Batch {
                state,
                rows,
                records,
                horizon,
                quota,
                changes,
                scratch,
            };
            for entry in entries {
                outcomes.push(batch.apply(entry)?);
            }
            Ok((batch.changes, batch.horizon))
        });
        let (changes, horizon) = written.inspect_err(|error| self.state.note(error))?;
        self.schedule(&changes)?;
        self.publish(horizon.current)?;
        self.tell(&changes);
        Ok(())
    }

    fn schedule(&mut self, changes: &Changes) -> Result<(), Error> {
        if let Some(revision) = changes.compacted {
            let is_whole = self.compactions.is_empty() && self.is_compaction_finished()?;
            self.compactions
                .push_back(Compaction::new(revision, self.compacted, is_whole));
            self.compacted = revision;
            failpoint::hit(Point::CompactAfterCommitScheduledCompact);
        }
        Ok(())
    }

    /// The bug of etcd 3.5.0: the position of entries is durable before what they do.
    #[cold]
    fn note_applied(&mut self, entries: &[Entry]) -> Result<(), Error> {
        let last = entries.last().map(|entry| entry.position);
        self.backend.write(|rows| {
            let head = rows.head_mut();
            head.applied = last.or(head.applied);
            Ok(())
        })?;
        self.backend.checkpoint()
    }

    /// Whether the compaction before the one just scheduled was finished.
    fn is_compaction_finished(&self) -> Result<bool, Error> {
        let finished = open::finished_compaction(&self.backend.view()?)?;
        Ok(finished.unwrap_or(-1) == self.compacted)
    }

    fn tell(&self, changes: &Changes) {
        self.state.count(&changes.events, &changes.leases);
        for (revision, events) in &changes.events {
            self.events.publish(*revision, events);
        }
        for &change in &changes.leases {
            self.events.lease_changed(change);
        }
        if let Some(revision) = changes.compacted {
            self.state.index.write().begin_compaction(revision);
            self.events.compacted(revision);
        }
    }

    /// Lets readers see everything committed.
    pub(super) fn publish(&mut self, revision: i64) -> Result<(), Error> {
        failpoint::hit(Point::BeforeWritebackBuf);
        let published = open::published(
            &self.backend,
            &self.records,
            revision,
            self.compacted,
            self.epoch,
        )?;
        self.state.publish(published);
        failpoint::hit(Point::AfterWritebackBuf);
        Ok(())
    }

    /// The last entry that is part of the state.
    pub fn applied(&self) -> Option<LogPosition> {
        self.backend.head().applied
    }

    /// The last entry that would be there after a loss of power.
    pub fn durable(&self) -> Option<LogPosition> {
        self.backend.durable()
    }

    /// The newest membership applied.
    pub fn membership(&self) -> Option<Membership> {
        self.records.membership.clone()
    }

    /// Makes everything applied so far durable (two-phase commit).
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        self.backend.checkpoint()?;
        let revision = self.state.revision();
        self.publish(revision)
    }

    /// Bytes applied since the last checkpoint.
    pub fn dirty_bytes(&self) -> u64 {
        self.backend.dirty_bytes()
    }

    /// Bytes of data.
    pub fn in_use_bytes(&self) -> u64 {
        super::quota::in_use(self.backend.head())
    }

    /// Whether the store file takes writes; not after one failed.
    pub(crate) fn is_usable(&self) -> bool {
        !self.backend.is_poisoned()
    }

    /// Which parts of the store file hold something, right after a checkpoint; `None` while it
    /// cannot be said.
    pub(crate) fn live_pages(&self) -> Result<Option<LivePages>, Error> {
        self.backend.live_pages()
    }

    /// Does a bounded piece of a scheduled compaction.
    pub fn compact_step(&mut self) -> Result<CompactionProgress, Error> {
        let Some(compaction) = self.compactions.front_mut() else {
            return Ok(CompactionProgress::Idle);
        };
        if !compaction.step_index(&self.state.index) {
            return Ok(CompactionProgress::Working);
        }
        let revision = compaction.revision;
        let previous = compaction.previous();
        let (step, removed) = self
            .backend
            .write(|rows| {
                failpoint::hit(Point::CompactAfterAcquiredBatchTxLock);
                let (step, removed) = compaction.step_rows(rows)?;
                if matches!(step, Step::Finished(_)) {
                    failpoint::hit(Point::CompactBeforeSetFinishedCompact);
                    let finished = Revision::new(revision, 0).encode();
                    rows.put(Table::Meta, FINISHED_COMPACT_KEY, &finished)?;
                    failpoint::hit(Point::CompactAfterSetFinishedCompact);
                } else {
                    failpoint::hit(Point::CompactBeforeCommitBatch);
                }
                Ok((step, removed))
            })
            .inspect_err(|error| self.state.note(error))?;
        if step == Step::Working {
            failpoint::hit(Point::CompactAfterCommitBatch);
        }
        self.state.count_compacted(removed);
        let published = self.state.revision();
        self.publish(published)?;
        match step {
            Step::Working => Ok(CompactionProgress::Working),
            Step::Finished(hash) => {
                if let Some(hash) = hash {
                    self.state.store_hash(hash, previous, revision);
                }
                self.compactions.pop_front();
                Ok(CompactionProgress::Finished { revision })
            }
        }
    }

    /// Replaces the state by that of an etcd database file (a raft snapshot, a restore), durably.
    /// Killed at any point, the file holds the old state or the new one.
    pub fn install(
        &mut self,
        file: &Path,
        at: LogPosition,
        membership: Membership,
    ) -> Result<(), Error> {
        let failed = failpoint::failure(Point::ApplyBeforeOpenSnapshot, std::io::ErrorKind::Other);
        failed.map_err(|source| Error::Io {
            doing: "open the snapshot file",
            source,
        })?;
        let source = install::open_source(file)?;
        failpoint::hit(Point::ApplyAfterOpenSnapshot);
        let (at, membership) = self.as_a_bug_would(at, membership);
        let rewrite = Rewrite::default();
        self.backend.replace(|fresh| {
            install::fill(
                fresh,
                &source,
                at,
                membership,
                &rewrite,
                install::Removed::Kept,
            )
        })?;
        self.reload()?;
        self.events.lease_changed(LeaseChange::Replaced);
        self.events.replaced(self.state.revision());
        Ok(())
    }

    /// What of a received snapshot's position and membership is taken over: all of it.
    fn as_a_bug_would(
        &self,
        mut at: LogPosition,
        mut membership: Membership,
    ) -> (LogPosition, Membership) {
        if failpoint::is_on(Point::BugSnapshotKeepsIndex) {
            at.index = self.applied().map_or(0, |old| old.index);
        }
        if failpoint::is_on(Point::BugSnapshotKeepsMembership) {
            membership = self.membership().unwrap_or_default();
        }
        (at, membership)
    }

    /// Takes over a replaced store file.
    fn reload(&mut self) -> Result<(), Error> {
        let epoch = self.epoch + 1;
        let opened = open::read(&self.backend, &self.options, epoch)?;
        self.epoch = epoch;
        self.records = opened.records;
        self.compacted = opened.compacted;
        self.compactions = opened.compaction.into_iter().collect();
        let published = open::published(
            &self.backend,
            &self.records,
            opened.revision,
            self.compacted,
            epoch,
        )?;
        self.state.replace(opened.index, opened.lessor, published);
        Ok(())
    }

    /// Rewrites the store file without its holes. Readers go on; killed at any point, the file
    /// holds the same state.
    pub fn defragment(&mut self) -> Result<(), Error> {
        let failed = failpoint::failure(Point::DefragOpenFileError, std::io::ErrorKind::Other);
        failed.map_err(|source| Error::Io {
            doing: "make the rewritten store file",
            source,
        })?;
        let view = self.backend.view()?;
        let mut head = *self.backend.head();
        if failpoint::is_on(Point::BugDefragLosesIndex)
            && let Some(applied) = &mut head.applied
        {
            applied.index = applied.index.saturating_sub(1);
        }
        self.backend
            .replace(|fresh| {
                failpoint::hit(Point::DefragBeforeCopy);
                install::copy(fresh, &view, &head)
            })
            .inspect_err(|error| self.state.note(error))?;
        let revision = self.state.revision();
        self.publish(revision)
    }
}

fn is_compaction(entry: &Entry) -> bool {
    use holdfast_proto::store::v1::command::Request;
    match &entry.payload {
        EntryPayload::Command(command) => matches!(command.request, Some(Request::Compact(_))),
        EntryPayload::Blank | EntryPayload::Membership(_) => false,
    }
}
