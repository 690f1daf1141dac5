//! Building beside the target and appearing there in one step.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use holdfast_store::bolt::WriteError;
use holdfast_store::datadir::durable;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

use super::wal::FIRST_SEGMENT;
use crate::error::{Error, Result};

const MARK: &str = ".partial-";

/// One directory that is being built beside its target.
///
/// It is locked while this run lives, so that a later run can tell a leftover from work in
/// progress; a leftover is removed.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    target: PathBuf,
    /// Holds the lock.
    _lock: File,
    is_published: bool,
}

/// The data directory under construction, and the log's own directory if it has one.
#[derive(Debug)]
pub(super) struct Staging {
    data: Folder,
    log: Option<Folder>,
}

/// A file in the staging directory.
#[derive(Debug)]
pub(super) struct StagedFile {
    path: PathBuf,
    file: File,
}

impl StagedFile {
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

impl Folder {
    fn create(target: &Path) -> Result<Self> {
        refuse_existing(target)?;
        let parent = durable::parent_of(target);
        let name = target.file_name().ok_or_else(|| Error::BadTarget {
            path: target.to_path_buf(),
            reason: "it has no name".into(),
        })?;
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        remove_leftovers(parent, name)?;
        let mut partial = name.to_os_string();
        partial.push(format!("{MARK}{}", uuid::Uuid::new_v4().simple()));
        let path = parent.join(partial);
        private_dir(&path)?;
        let lock = File::open(&path).map_err(Error::io("open", &path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| Error::io("lock", &path)(errno.into()))?;
        Ok(Self {
            path,
            target: target.to_path_buf(),
            _lock: lock,
            is_published: false,
        })
    }

    fn publish(&mut self) -> Result<()> {
        sync_tree(&self.path)?;
        refuse_existing(&self.target)?;
        match renameat_with(CWD, &self.path, CWD, &self.target, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            // A file system without that flag; the check above has to do.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                durable::rename(&self.path, &self.target)
                    .map_err(Error::io("rename to", &self.target))?;
            }
            Err(rustix::io::Errno::EXIST) => {
                return Err(Error::TargetExists {
                    path: self.target.clone(),
                });
            }
            Err(errno) => return Err(Error::io("rename to", &self.target)(errno.into())),
        }
        self.is_published = true;
        let parent = durable::parent_of(&self.target);
        durable::sync_dir(parent).map_err(Error::io("sync", parent))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_published {
            // A leftover is harmless and the next run removes it.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

impl Staging {
    pub(super) fn create(data_dir: &Path, wal_dir: Option<&Path>) -> Result<Self> {
        let data = Folder::create(data_dir)?;
        let log = wal_dir.map(Folder::create).transpose()?;
        Ok(Self { data, log })
    }

    /// Creates a file that does not exist yet, with the folders above it.
    pub(super) fn file(&self, name: &str) -> Result<StagedFile> {
        create_file(&self.data.path, name)
    }

    /// Writes a whole file.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let staged = self.file(name)?;
        (&staged.file)
            .write_all(bytes)
            .map_err(Error::io("write", &staged.path))?;
        staged.sync()
    }

    /// Writes the first file of the log, with an empty tail up to `length` bytes.
    pub(super) fn write_log(&self, bytes: &[u8], length: u64) -> Result<()> {
        let staged = match &self.log {
            None => self.file(&format!("member/wal/{FIRST_SEGMENT}"))?,
            Some(log) => create_file(&log.path, FIRST_SEGMENT)?,
        };
        (&staged.file)
            .write_all(bytes)
            .map_err(Error::io("write", &staged.path))?;
        staged
            .file
            .set_len(length)
            .map_err(Error::io("extend", &staged.path))?;
        staged.sync()
    }

    /// Makes everything durable and renames it into place. The data directory comes last: without
    /// it a log of its own is of no use to any member.
    pub(super) fn publish(mut self) -> Result<()> {
        if let Some(log) = &mut self.log {
            log.publish()?;
        }
        self.data.publish()
    }
}

fn refuse_existing(target: &Path) -> Result<()> {
    match fs::symlink_metadata(target) {
        Ok(_) => Err(Error::TargetExists {
            path: target.to_path_buf(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("inspect", target)(error)),
    }
}

/// Removes what interrupted runs for the same target left, unless one of them is still at work.
fn remove_leftovers(parent: &Path, name: &std::ffi::OsStr) -> Result<()> {
    let mut prefix = OsString::from(name);
    prefix.push(MARK);
    for entry in fs::read_dir(parent).map_err(Error::io("list", parent))? {
        let entry = entry.map_err(Error::io("list", parent))?;
        let is_ours = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_encoded_bytes());
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_ours || !is_dir {
            continue;
        }
        let path = entry.path();
        let lock = File::open(&path).map_err(Error::io("open", &path))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            fs::remove_dir_all(&path).map_err(Error::io("remove the leftover", &path))?;
        }
    }
    Ok(())
}

fn create_file(root: &Path, name: &str) -> Result<StagedFile> {
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
    Ok(StagedFile { path, file })
}

fn private_dir(path: &Path) -> Result<()> {
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(Error::io("create", path))
}

/// Syncs the names in a folder and in all folders below it. Files are synced where written.
fn sync_tree(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            sync_tree(&entry.path())?;
        }
    }
    durable::sync_dir(folder).map_err(Error::io("sync", folder))
}
