//! The files of a data directory under construction.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use holdfast_store::bolt::WriteError;
use holdfast_store::datadir::durable;

use crate::error::{Error, Result};
use crate::staging::{private_dir, private_file};

/// Bytes written before their sync is begun.
const SYNC_BYTES: usize = 64 << 20;

/// A new file, not synced yet.
#[derive(Debug)]
pub(super) struct NewFile {
    path: PathBuf,
    file: File,
}

impl NewFile {
    /// Creates `name` below `root`, with the folders above it.
    pub(super) fn create(root: &Path, name: &str) -> Result<Self> {
        let path = root.join(name);
        let mut folder = root.to_path_buf();
        for part in Path::new(name)
            .parent()
            .into_iter()
            .flat_map(Path::components)
        {
            folder.push(part);
            if !folder.is_dir() {
                private_dir(&folder)?;
            }
        }
        let file = private_file(&path)?;
        Ok(Self { path, file })
    }

    /// Writes a whole file: `bytes`, then nothing up to `length` bytes if it is to be longer.
    pub(super) fn write(root: &Path, name: &str, bytes: &[u8], length: Option<u64>) -> Result<()> {
        let new = Self::create(root, name)?;
        (&new.file)
            .write_all(bytes)
            .map_err(Error::io("write", &new.path))?;
        if let Some(length) = length {
            new.file
                .set_len(length)
                .map_err(Error::io("extend", &new.path))?;
        }
        new.sync()
    }

    /// Lets `write` fill the file, and syncs it: what is long is on its way to the disk while the
    /// rest is still being made.
    pub(super) fn fill<T>(&self, write: impl FnOnce(SyncingFile<'_>) -> Result<T>) -> Result<T> {
        let (due, syncs) = sync_channel(1);
        let (written, synced) = thread::scope(|scope| {
            let synced = scope.spawn(move || self.sync_when_due(&syncs));
            let file = SyncingFile {
                file: &self.file,
                since: 0,
                due,
            };
            (write(file), synced.join())
        });
        let written = written?;
        synced.map_err(|_panic| Error::Worker {
            reason: "the syncing thread panicked".to_owned(),
        })??;
        self.sync()?;
        Ok(written)
    }

    fn sync_when_due(&self, syncs: &Receiver<()>) -> Result<()> {
        while let Ok(()) = syncs.recv() {
            durable::sync_data(&self.file).map_err(Error::io("sync", &self.path))?;
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(Error::io("sync", &self.path))
    }

    /// An error of the database writer, as one of this file.
    pub(super) fn failed(&self, error: WriteError) -> Error {
        match error {
            WriteError::Sink(source) => Error::Io {
                action: "write",
                path: self.path.clone(),
                source,
            },
            other => Error::Content {
                reason: other.to_string(),
            },
        }
    }
}

/// A file that is synced from time to time on another thread.
#[derive(Debug)]
pub(super) struct SyncingFile<'a> {
    file: &'a File,
    /// Bytes written since the last sync began.
    since: usize,
    due: SyncSender<()>,
}

impl Write for SyncingFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.since = self.since.saturating_add(count);
        // A sync that takes longer than writing covers what was written meanwhile the next time;
        // one that failed is told at the end.
        if self.since >= SYNC_BYTES && self.due.try_send(()).is_ok() {
            self.since = 0;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
