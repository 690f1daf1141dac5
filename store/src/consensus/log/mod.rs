//! The durable raft log: entries, vote, committed position.
//!
//! Zero-filled segment files, CRC-32C records, one writer thread, one sync per batch. Format page:
//! `docs/formats/raft-log.md`.
//!
//! - An entry, a vote, a truncation or a purge is acknowledged once it is durable.
//! - The committed position is written without a sync of its own.
//! - A torn end of the newest batch is cut at start; damage before it is refused.
//! - After one failed write or sync nothing is acknowledged any more.

mod index;
mod record;
mod recovery;
mod segment;
mod spare;
mod store;
mod writer;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod power_tests;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

pub use segment::{LogIdentity, SEGMENT_VERSION};
pub use store::{Fingerprint, RaftLog, RaftLogReader};

use super::space::Space;
use super::workers::Workers;
use crate::apply::Operation;
use crate::datadir::durable;

/// How a log is opened.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// The folder of the segments; created when absent.
    pub dir: PathBuf,
    /// Whose log it is.
    pub identity: LogIdentity,
    /// Bytes of a segment. Default 64 MiB; small ones are for tests.
    pub segment_bytes: u64,
    /// How a segment is made durable.
    pub io: Arc<dyn LogIo>,
    /// Told of every sync.
    pub observer: Option<Arc<dyn LogObserver>>,
    /// Who writes.
    pub workers: Workers,
    pub(crate) space: Arc<Space>,
}

/// The default size of a segment.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;

impl LogOptions {
    /// The defaults for `dir`.
    pub fn new(dir: impl Into<PathBuf>, identity: LogIdentity) -> Self {
        let dir = dir.into();
        Self {
            space: Arc::new(Space::new(&dir, 0)),
            dir,
            identity,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            io: Arc::new(DiskIo),
            observer: None,
            workers: Workers::default(),
        }
    }
}

/// How a segment is made durable; another one than [`DiskIo`] is for tests of failures.
pub trait LogIo: fmt::Debug + Send + Sync {
    /// Returns once the bytes written to `file` are durable.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// How long a writer that is a task waits before a batch: a simulated disk takes its time.
    fn latency(&self) -> Duration {
        Duration::ZERO
    }
}

/// The real disk.
#[derive(Debug, Clone, Copy)]
pub struct DiskIo;

impl LogIo for DiskIo {
    fn sync(&self, file: &File) -> io::Result<()> {
        durable::sync_data(file)
    }
}

/// Sees how long the log's writes and syncs, and the state's changes and checkpoints take.
pub trait LogObserver: fmt::Debug + Send + Sync {
    /// A batch of `bytes` was written and became durable after `elapsed`.
    fn synced(&self, elapsed: Duration, bytes: usize);

    /// A batch was handed to the system within `elapsed`; a sync may follow.
    fn written(&self, _elapsed: Duration) {}

    /// An entry was applied, as one of its batch, within `elapsed`.
    fn applied(&self, _operation: Operation, _is_success: bool, _elapsed: Duration) {}

    /// The state became durable after `elapsed`, so that the log before it can go.
    fn checkpointed(&self, _elapsed: Duration) {}
}

/// Why a log cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// Reading or writing failed.
    #[error("raft log input or output failed")]
    Io(#[from] io::Error),
    /// Acknowledged data is damaged.
    #[error("raft log damaged: {what}, offset {offset}, segment {}", segment.display())]
    Damaged {
        /// The segment file.
        segment: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// A segment is not there.
    #[error(
        "raft log segment missing: {}; it holds acknowledged writes: put the file back, or restore \
         a backup into a new data directory",
        segment.display()
    )]
    Missing {
        /// The file that should be there.
        segment: PathBuf,
    },
    /// The log was written by a newer version.
    #[error("raft log format {version} is not known to this version, segment {}", segment.display())]
    Version {
        /// The segment file.
        segment: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The log belongs to another member.
    #[error(
        "raft log belongs to member {:x} of cluster {:x}, this is member {:x} of cluster {:x}",
        found.member, found.cluster, expected.member, expected.cluster
    )]
    Identity {
        /// Who opens it.
        expected: LogIdentity,
        /// Who wrote it.
        found: LogIdentity,
    },
}

impl From<LogError> for crate::error::Error {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Io(source) => Self::Io {
                doing: "open the raft log",
                source,
            },
            damage => Self::Format {
                what: "the raft log",
                reason: damage.to_string(),
            },
        }
    }
}
