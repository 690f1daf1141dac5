//! One process for one data directory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::{FlockOperation, flock};

use super::Layout;
use crate::error::Error;

/// Holds a data directory for this process; given back when dropped.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

impl DirLock {
    /// Takes the directory, which must exist; refused with the holder's process id when another
    /// process has it.
    pub fn take(layout: &Layout) -> Result<Self, Error> {
        let path = layout.lock();
        let failed = |source| Error::Io {
            doing: "lock the data directory",
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => {
                let mut holder = String::new();
                let holder = file
                    .read_to_string(&mut holder)
                    .ok()
                    .and_then(|_| holder.trim().parse().ok());
                return Err(Error::Locked {
                    path: layout.root().to_owned(),
                    holder,
                });
            }
            Err(error) => return Err(failed(error.into())),
        }
        let note = format!("{}\n", std::process::id());
        match write_note(&mut file, &note) {
            // The lock holds without the note; only the other process's message is poorer.
            Err(error) if error.kind() != io::ErrorKind::StorageFull => Err(failed(error)),
            _ => Ok(Self { _file: file }),
        }
    }
}

fn write_note(file: &mut File, note: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(note.as_bytes())
}
