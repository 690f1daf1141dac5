//! The files of a data directory under construction.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_store::bolt::WriteError;

use crate::error::{Error, Result};
use crate::staging::private_dir;

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
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::io("create", &path))?;
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

    pub(super) fn file(&self) -> &File {
        &self.file
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
