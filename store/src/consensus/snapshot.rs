//! Raft snapshots: how a member that is far behind gets the state.
//!
//! The state is durable by itself, so what openraft calls building a snapshot is a checkpoint
//! here: it lets the log be purged. The bytes, a bbolt file as every other export, are made only
//! when another member needs them.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::RaftSnapshotBuilder;
use openraft::storage::Snapshot;
use openraft::type_config::alias::SnapshotOf;
use parking_lot::Mutex;

use super::apply_thread::ApplyHandle;
use super::membership::decode_membership;
use super::types::{SnapshotMeta, StoredMembership, TypeConfig};
use crate::consensus::machine::to_log_id;
use crate::datadir::durable;
use crate::error::Error;
use crate::state::State;

/// The bytes of a raft snapshot.
#[derive(Debug)]
pub(crate) enum RaftSnapshot {
    /// Of this member, not written yet.
    Here {
        /// The state to export.
        state: Arc<State>,
        /// Where the file goes.
        dir: PathBuf,
    },
    /// A file received from a peer.
    #[expect(
        dead_code,
        reason = "received once there is a transport between members"
    )]
    File(SnapshotFile),
}

impl RaftSnapshot {
    /// The snapshot as a file; writes it when there is none yet.
    pub(crate) async fn into_file(self) -> Result<SnapshotFile, Error> {
        match self {
            Self::File(file) => Ok(file),
            Self::Here { state, dir } => {
                let written =
                    tokio::task::spawn_blocking(move || SnapshotFile::write(&state, &dir)).await;
                written.map_err(|error| Error::Io {
                    doing: "write a raft snapshot",
                    source: io::Error::other(error),
                })?
            }
        }
    }
}

/// A snapshot file in use; removed when dropped.
#[derive(Debug)]
pub(crate) struct SnapshotFile {
    path: PathBuf,
}

impl SnapshotFile {
    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn write(state: &State, dir: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Io {
            doing: "write a raft snapshot",
            source,
        };
        durable::private_dir_all(dir).map_err(failed)?;
        let name = format!("{:016x}.db", rand::random::<u64>());
        // Removed on every way out of here.
        let file = Self {
            path: dir.join(name),
        };
        let mut sink = BufWriter::new(File::create_new(&file.path).map_err(failed)?);
        state.export()?.write_to(&mut sink)?;
        sink.flush().map_err(failed)?;
        Ok(file)
    }
}

impl Drop for SnapshotFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %self.path.display(), "cannot remove a raft snapshot");
        }
    }
}

/// Makes the state durable and says up to where.
#[derive(Debug)]
pub(crate) struct SnapshotBuilder {
    pub(super) apply: ApplyHandle,
    pub(super) data: RaftSnapshot,
    pub(super) current: Arc<Mutex<Option<SnapshotMeta>>>,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = RaftSnapshot;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<TypeConfig, RaftSnapshot>> {
        self.apply.checkpoint().await.map_err(io::Error::other)?;
        let position = self.apply.position();
        let last_membership = match &position.membership {
            Some(membership) => decode_membership(&membership.encoded)?,
            None => StoredMembership::default(),
        };
        let meta = SnapshotMeta {
            last_log_id: position.durable.map(to_log_id),
            last_membership,
        };
        *self.current.lock() = Some(meta.clone());
        let snapshot = match &self.data {
            RaftSnapshot::Here { state, dir } => RaftSnapshot::Here {
                state: Arc::clone(state),
                dir: dir.clone(),
            },
            RaftSnapshot::File(_) => {
                return Err(io::Error::other("a builder has no file of its own"));
            }
        };
        Ok(Snapshot { meta, snapshot })
    }
}
