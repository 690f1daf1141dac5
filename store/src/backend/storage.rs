//! How the store file is reached.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use redb::{Database, StorageBackend};

use crate::error::Error;

use super::file::{backend_error, panic_safe};

/// Opens (creating it if need be) the storage of a path. A rewritten state is made beside the old
/// one and renamed over it, so this is called more than once.
pub type OpenStorage = dyn Fn(&Path) -> Result<Box<dyn StorageBackend>, Error> + Send + Sync;

/// redb's storage behind a pointer.
pub(crate) struct Boxed(pub(crate) Box<dyn StorageBackend>);

impl fmt::Debug for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StorageBackend for Boxed {
    fn len(&self) -> Result<u64, io::Error> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.0.write(offset, data)
    }

    fn close(&self) -> Result<(), io::Error> {
        self.0.close()
    }
}

/// A database whose closing cannot panic: over a damaged file, redb's may.
#[derive(Debug)]
pub(crate) struct SafeDatabase(Option<Database>);

impl SafeDatabase {
    pub(crate) fn new(database: Database) -> Self {
        Self(Some(database))
    }

    pub(crate) fn get(&self) -> &Database {
        self.0.as_ref().expect("it is taken by drop alone")
    }
}

impl Drop for SafeDatabase {
    fn drop(&mut self) {
        let Some(database) = self.0.take() else {
            return;
        };
        let closed = panic_safe("close", || {
            database
                .close()
                .map_err(|source| backend_error("close", source))
        });
        if let Err(error) = closed {
            tracing::warn!(%error, "the store file was not closed cleanly");
        }
    }
}

/// A file as storage, under a lock.
pub(crate) fn open_file(path: &Path) -> Result<Box<dyn StorageBackend>, Error> {
    let failed = |source| Error::Io {
        doing: "open the store file",
        source,
    };
    let file = crate::datadir::durable::open_or_create(path).map_err(failed)?;
    file.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => Error::Locked {
            path: path.to_owned(),
            holder: None,
        },
        std::fs::TryLockError::Error(source) => failed(source),
    })?;
    Ok(Box::new(LockedFile(file)))
}

/// A file under a lock that ends with it.
#[derive(Debug)]
struct LockedFile(std::fs::File);

impl StorageBackend for LockedFile {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        use std::os::unix::fs::FileExt as _;
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        crate::datadir::durable::sync_data(&self.0)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        use std::os::unix::fs::FileExt as _;
        self.0.write_all_at(data, offset)
    }

    fn close(&self) -> Result<(), io::Error> {
        self.0.unlock()
    }
}

/// Where the database lives.
#[derive(Clone)]
pub(crate) enum Home {
    /// At a path, where it can be replaced by a rewritten one.
    Path(std::path::PathBuf, Arc<OpenStorage>),
    /// On storage handed in; a rewritten state moves to memory (tests only).
    Detached,
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path, _) => path.fmt(f),
            Self::Detached => f.write_str("detached"),
        }
    }
}
