//! The single writer.

use std::path::Path;
use std::sync::Arc;

use crate::error::Error;
use crate::state::State;

use super::{Entry, EventSink, LogPosition, Membership, Outcome};

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
            cache_bytes: 128 << 20,
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
#[derive(Debug)]
pub struct Applier {}

#[expect(
    clippy::todo,
    clippy::unused_self,
    reason = "signatures first; bodies follow in hours"
)]
impl Applier {
    /// Opens or creates the store file at `path`.
    pub fn open(
        _path: &Path,
        _options: &StateOptions,
        _events: Arc<dyn EventSink>,
    ) -> Result<(Self, Arc<State>), Error> {
        todo!()
    }

    /// Opens or creates a store on any storage; for tests with faults.
    pub fn open_with_backend(
        _backend: impl redb::StorageBackend,
        _options: &StateOptions,
        _events: Arc<dyn EventSink>,
    ) -> Result<(Self, Arc<State>), Error> {
        todo!()
    }

    /// Applies committed entries in order, in one transaction. An error is fatal to the member:
    /// nothing of the batch may be answered, and the handle accepts nothing more.
    pub fn apply(&mut self, _entries: Vec<Entry>) -> Result<Vec<Outcome>, Error> {
        todo!()
    }

    /// The last entry that is part of the state.
    pub fn applied(&self) -> Option<LogPosition> {
        todo!()
    }

    /// The last entry that would be there after a loss of power.
    pub fn durable(&self) -> Option<LogPosition> {
        todo!()
    }

    /// The newest membership applied.
    pub fn membership(&self) -> Option<Membership> {
        todo!()
    }

    /// Makes everything applied so far durable (two-phase commit).
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        todo!()
    }

    /// Bytes applied since the last checkpoint.
    pub fn dirty_bytes(&self) -> u64 {
        todo!()
    }

    /// Does a bounded piece of a scheduled compaction.
    pub fn compact_step(&mut self) -> Result<CompactionProgress, Error> {
        todo!()
    }

    /// Replaces the state by that of an etcd database file (a raft snapshot, a restore), durably.
    /// Killed at any point, the file holds the old state or the new one.
    pub fn install(
        &mut self,
        _file: &Path,
        _at: LogPosition,
        _membership: Membership,
    ) -> Result<(), Error> {
        todo!()
    }

    /// Rewrites the store file without its holes. Readers go on; killed at any point, the file
    /// holds the same state.
    pub fn defragment(&mut self) -> Result<(), Error> {
        todo!()
    }
}
