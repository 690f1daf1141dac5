//! The folder a restore is built in: beside its target, locked, removed unless published.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use holdfast_store::datadir::durable;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

use crate::error::{Error, Result};
use crate::unique::UniqueId;

const MARK: &str = ".partial-";

/// A folder under construction. Its lock tells work in progress from a leftover.
#[derive(Debug)]
pub(super) struct Staging {
    path: PathBuf,
    target: PathBuf,
    _lock: File,
}

impl Staging {
    /// Makes the folder, and removes what killed runs left beside `target`.
    pub(super) fn create(target: &Path) -> Result<Self> {
        let name = target.file_name().ok_or_else(|| Error::BadTarget {
            path: target.to_path_buf(),
            reason: "has no name".to_owned(),
        })?;
        let parent = parent_of(target);
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        let mut prefix = name.to_os_string();
        prefix.push(MARK);
        remove_leftovers(parent, prefix.as_encoded_bytes())?;
        let mut partial = prefix;
        partial.push(UniqueId::generate().to_string());
        let path = parent.join(partial);
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(Error::io("create", &path))?;
        let lock = File::open(&path).map_err(Error::io("open", &path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| Error::io("lock", &path)(errno.into()))?;
        let staging = Self {
            path,
            target: target.to_path_buf(),
            _lock: lock,
        };
        let members = staging.members();
        DirBuilder::new()
            .mode(0o700)
            .create(&members)
            .map_err(Error::io("create", &members))?;
        Ok(staging)
    }

    /// Where members' data directories are built.
    pub(super) fn members(&self) -> PathBuf {
        self.path.join("members")
    }

    /// The plain copy that the bundled store is fed from.
    pub(super) fn plain_copy(&self) -> PathBuf {
        self.path.join("snapshot.db")
    }

    /// Renames what was built into place: one member's folder, or the folder of several.
    pub(super) fn publish(self, single: Option<&str>) -> Result<()> {
        let built = match single {
            Some(name) => self.members().join(name),
            None => self.members(),
        };
        durable::sync_dir(&self.members()).map_err(Error::io("sync", self.members()))?;
        self.rename(&built)
    }

    /// Renames the plain copy into place.
    pub(super) fn publish_copy(self) -> Result<()> {
        self.rename(&self.plain_copy())
    }

    fn rename(&self, built: &Path) -> Result<()> {
        refuse_existing(&self.target)?;
        match renameat_with(CWD, built, CWD, &self.target, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            // A file system without that flag; the check above has to do.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                durable::rename(built, &self.target)
                    .map_err(Error::io("rename to", &self.target))?;
            }
            Err(rustix::io::Errno::EXIST) => {
                return Err(Error::TargetExists {
                    path: self.target.clone(),
                });
            }
            Err(errno) => return Err(Error::io("rename to", &self.target)(errno.into())),
        }
        let parent = parent_of(&self.target);
        durable::sync_dir(parent).map_err(Error::io("sync", parent))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "staging folder stays; the next restore removes it");
        }
    }
}

/// The folder that holds `path`'s name.
pub(super) fn parent_of(path: &Path) -> &Path {
    durable::parent_of(path)
}

/// A file, a folder or a symbolic link at the target: all are refused.
pub(super) fn refuse_existing(target: &Path) -> Result<()> {
    match fs::symlink_metadata(target) {
        Ok(_) => Err(Error::TargetExists {
            path: target.to_path_buf(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("inspect", target)(error)),
    }
}

fn remove_leftovers(parent: &Path, prefix: &[u8]) -> Result<()> {
    for entry in fs::read_dir(parent).map_err(Error::io("list", parent))? {
        let entry = entry.map_err(Error::io("list", parent))?;
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(prefix);
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
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
