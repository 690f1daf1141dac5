//! The state file under redb, on a disk that may be full.
//!
//! redb takes any error of its file as final. A full disk is not: a write that does not fit waits
//! for space, on the apply thread, while readers go on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use redb::StorageBackend;

use super::space::Space;
use crate::datadir::durable;
use crate::error::Error;
use crate::failpoint::{self, Point};

/// The file of the state. The data directory's lock keeps other processes away.
#[derive(Debug)]
pub(crate) struct StateFile {
    file: File,
    space: Arc<Space>,
}

impl StateFile {
    /// Opens the file at `path`, or makes an empty one, durably named.
    pub(crate) fn open(path: &Path, space: Arc<Space>) -> Result<Self, Error> {
        let failed = |source| Error::Io {
            doing: "open the state file",
            source,
        };
        let file = durable::open_or_create(path).map_err(failed)?;
        Ok(Self { file, space })
    }
}

impl StorageBackend for StateFile {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        failpoint::failure(Point::ResizeFileError, io::ErrorKind::Other)?;
        self.space.until_it_fits(|| {
            failpoint::failure(Point::LackOfDiskSpace, io::ErrorKind::StorageFull)?;
            self.file.set_len(len)
        })
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        failpoint::failure(Point::BeforeSyncDataPages, io::ErrorKind::Other)?;
        durable::sync_data(&self.file)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.space.write((offset, data.len()), || {
            self.file.write_all_at(data, offset)
        })
    }
}
