//! What lies where in a data directory, and what an existing directory is.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;

const MARKER: &str = "member.json";
const INCOMPLETE: &str = "incomplete";
const LOCK: &str = "lock";
const STATE: &str = "state.redb";
const LOG: &str = "raft";
const SNAPSHOTS: &str = "snapshots";
const RESERVE: &str = "reserve";
/// Names that others put into a fresh file system or directory.
const FOREIGN: [&str; 1] = ["lost+found"];

/// The paths of one data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

/// What a directory is, before it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirState {
    /// Not there, or empty: a member can be founded in it.
    Empty,
    /// A founding was interrupted; what it left can be removed.
    Unfinished,
    /// A complete data directory.
    Complete,
}

impl Layout {
    /// The layout under `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Says whose data it is; written last, so its presence means the directory is complete.
    pub fn marker(&self) -> PathBuf {
        self.root.join(MARKER)
    }

    /// Present while a founding in place is under way.
    pub fn incomplete(&self) -> PathBuf {
        self.root.join(INCOMPLETE)
    }

    /// The file that a running member holds locked.
    pub fn lock(&self) -> PathBuf {
        self.root.join(LOCK)
    }

    /// The state.
    pub fn state(&self) -> PathBuf {
        self.root.join(STATE)
    }

    /// The folder of the raft log.
    pub fn log(&self) -> PathBuf {
        self.root.join(LOG)
    }

    /// The folder of raft snapshots in use.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join(SNAPSHOTS)
    }

    /// Says what the directory is; one that is not ours is refused.
    pub fn inspect(&self) -> Result<DirState, Error> {
        let mut names = Vec::new();
        let entries = match std::fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DirState::Empty),
            Err(source) => return Err(failed(source)),
        };
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            if !FOREIGN.iter().any(|foreign| name == *foreign) && name != LOCK {
                names.push(name);
            }
        }
        if names.iter().any(|name| name == MARKER) {
            return Ok(DirState::Complete);
        }
        if names.is_empty() {
            return Ok(DirState::Empty);
        }
        if names.iter().any(|name| name == INCOMPLETE) {
            return Ok(DirState::Unfinished);
        }
        let reason = if names.iter().any(|name| name == "member") {
            format!(
                "{} is a data directory of etcd; take a snapshot of that member and restore it \
                 into a new directory",
                self.root.display()
            )
        } else {
            format!(
                "{} has no {MARKER}: it is not a complete data directory; restore again, or use \
                 another directory",
                self.root.display()
            )
        };
        Err(Error::Option {
            option: "data-dir",
            reason,
        })
    }

    /// Removes what an interrupted founding left, and nothing else.
    pub fn remove_unfinished(&self) -> Result<(), Error> {
        for folder in [self.log(), self.snapshots()] {
            match std::fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        for file in [
            self.state(),
            self.root.join(RESERVE),
            self.root.join("member.json.tmp"),
        ] {
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        Ok(())
    }
}

fn failed(source: io::Error) -> Error {
    Error::Io {
        doing: "look into the data directory",
        source,
    }
}
