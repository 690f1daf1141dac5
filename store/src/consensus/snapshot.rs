//! Raft snapshots: how a member that is far behind gets the state.
//!
//! The state is durable by itself, so what openraft calls building a snapshot is a checkpoint
//! here: it lets the log be purged. The bytes, a bbolt file as every other export, are made only
//! when another member needs them: from one view, whose position and membership go with them.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::RaftSnapshotBuilder;
use openraft::storage::Snapshot;
use openraft::type_config::alias::SnapshotOf;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::apply_thread::ApplyHandle;
use super::membership::decode_membership;
use super::outbox::Outbox;
use super::types::{SnapshotMeta, StoredMembership, TypeConfig};
use crate::consensus::machine::to_log_id;
use crate::datadir::durable;
use crate::error::Error;
use crate::export::Export;
use crate::failpoint::{self, Point};
use crate::state::State;

/// The bytes of a raft snapshot.
#[derive(Debug)]
pub(crate) enum RaftSnapshot {
    /// Of this member, pinned and not written yet.
    Here(Pinned),
    /// Of this member, on its way to another one.
    Made(Arc<Made>),
    /// A file received from a peer.
    File(SnapshotFile),
}

/// One view of this member's state.
#[derive(Debug)]
pub(crate) struct Pinned {
    export: Export,
    dir: PathBuf,
    outbox: Arc<Outbox>,
}

/// A snapshot as a file that is sent.
#[derive(Debug)]
pub(crate) struct Made {
    /// What the file holds.
    pub(super) meta: SnapshotMeta,
    /// Names the bytes to the receiver.
    pub(super) id: u64,
    pub(super) file: SnapshotFile,
    pub(super) size: u64,
    pub(super) digest: [u8; 32],
}

impl Pinned {
    /// Pins what the state is now.
    pub(super) fn new(state: &State, dir: &Path, outbox: &Arc<Outbox>) -> Result<Self, Error> {
        Ok(Self {
            export: state.export()?,
            dir: dir.to_owned(),
            outbox: Arc::clone(outbox),
        })
    }

    /// What the view holds.
    pub(super) fn meta(&self) -> io::Result<SnapshotMeta> {
        let last_membership = match self.export.membership() {
            Some(membership) => decode_membership(&membership.encoded)?,
            None => StoredMembership::default(),
        };
        Ok(SnapshotMeta {
            last_log_id: self.export.applied().map(to_log_id),
            last_membership,
        })
    }

    /// Writes the view to a file that is kept as long as it is sent, and a while longer; all that
    /// time the log goes on from it. A view from before the log's begin is not worth it.
    pub(super) async fn make(self, meta: SnapshotMeta) -> Result<Arc<Made>, Error> {
        let outbox = Arc::clone(&self.outbox);
        let _held = outbox.hold();
        if let Some(last) = &meta.last_log_id
            && !outbox.reaches_back(last)
        {
            let text = format!("the log no longer reaches back to {last}: another view is taken");
            return Err(failed(io::Error::other(text)));
        }
        let made = blocking(move || {
            let (file, size, digest) = self.write()?;
            Ok(Made {
                meta,
                id: rand::random(),
                file,
                size,
                digest,
            })
        });
        let made = Arc::new(made.await?);
        outbox.keep(&made);
        Ok(made)
    }

    fn write(mut self) -> Result<(SnapshotFile, u64, [u8; 32]), Error> {
        durable::private_dir_all(&self.dir).map_err(failed)?;
        // Removed on every way out of here.
        let file = SnapshotFile::new(self.dir.join(format!("{:016x}.db", rand::random::<u64>())));
        let created = File::create_new(file.path()).map_err(failed)?;
        let mut sink = Hashing {
            sink: BufWriter::new(created),
            digest: Sha256::new(),
        };
        let size = self.export.write_to(&mut sink)?;
        sink.flush().map_err(failed)?;
        Ok((file, size, sink.digest.finalize().into()))
    }
}

struct Hashing {
    sink: BufWriter<File>,
    digest: Sha256,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.digest.update(bytes.get(..written).unwrap_or(bytes));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| failed(io::Error::other(error)))?
}

fn failed(source: io::Error) -> Error {
    Error::Io {
        doing: "write a raft snapshot",
        source,
    }
}

impl RaftSnapshot {
    /// The snapshot as a file to install; written when there is none yet.
    pub(crate) async fn into_file(self) -> Result<SnapshotFile, Error> {
        match self {
            Self::File(file) => Ok(file),
            Self::Here(pinned) => blocking(move || Ok(pinned.write()?.0)).await,
            Self::Made(_) => Err(failed(io::Error::other("it is of this member itself"))),
        }
    }
}

/// A snapshot file in use; removed when dropped.
#[derive(Debug)]
pub(crate) struct SnapshotFile {
    path: PathBuf,
}

impl SnapshotFile {
    /// Takes the file at `path`, which may not be there yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
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

/// Removes what an earlier run of the member left in `dir`.
pub(crate) fn remove_leftovers(dir: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let is_ours = path
            .extension()
            .is_some_and(|kind| kind == "db" || kind == "part");
        if is_ours {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Makes the state durable and says up to where.
#[derive(Debug)]
pub(crate) struct SnapshotBuilder {
    pub(super) apply: ApplyHandle,
    pub(super) state: Arc<State>,
    pub(super) dir: PathBuf,
    pub(super) outbox: Arc<Outbox>,
    pub(super) current: Arc<Mutex<Option<SnapshotMeta>>>,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = RaftSnapshot;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<TypeConfig, RaftSnapshot>> {
        self.apply.checkpoint().await.map_err(io::Error::other)?;
        failpoint::pause(Point::RaftBeforeWalSaveSnapshot).await;
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
        let pinned = Pinned::new(&self.state, &self.dir, &self.outbox);
        let snapshot = RaftSnapshot::Here(pinned.map_err(io::Error::other)?);
        Ok(Snapshot { meta, snapshot })
    }
}
