//! Building beside the target and appearing there in one step.
//!
//! What is built stands in `<target>.partial-<id>`, locked while its process lives: that tells work
//! in progress from a leftover, which the next run for the same target removes. A target that is
//! there is never touched, and one that appears is complete.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use holdfast_store::datadir::durable;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

use crate::error::{Error, Result};
use crate::unique::UniqueId;

pub(crate) use durable::parent_of;

const MARK: &str = ".partial-";

/// A folder under construction; removed unless it is published.
#[derive(Debug)]
pub(crate) struct Staging {
    path: PathBuf,
    target: PathBuf,
    /// Holds the lock.
    _lock: File,
    is_moved: bool,
}

impl Staging {
    /// Makes the folder, and removes what killed runs left beside `target`, which must not exist.
    pub(crate) fn create(target: &Path) -> Result<Self> {
        refuse_existing(target)?;
        let name = target.file_name().ok_or_else(|| Error::BadTarget {
            path: target.to_path_buf(),
            reason: "has no name".to_owned(),
        })?;
        let parent = parent_of(target);
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        remove_leftovers(parent, name)?;
        let mut partial = name.to_os_string();
        partial.push(format!("{MARK}{}", UniqueId::generate()));
        let path = parent.join(partial);
        private_dir(&path)?;
        let lock = File::open(&path).map_err(Error::io("open", &path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| Error::io("lock", &path)(errno.into()))?;
        Ok(Self {
            path,
            target: target.to_path_buf(),
            _lock: lock,
            is_moved: false,
        })
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the names in the folder durable and renames it into place. Files are synced where
    /// they are written.
    pub(crate) fn publish(mut self) -> Result<()> {
        sync_tree(&self.path)?;
        self.rename(&self.path)?;
        self.is_moved = true;
        Ok(())
    }

    /// As [`Staging::publish`], for one file or folder in the folder; the rest is removed.
    pub(crate) fn publish_only(self, name: &str) -> Result<()> {
        sync_tree(&self.path)?;
        self.rename(&self.path.join(name))
    }

    fn rename(&self, built: &Path) -> Result<()> {
        refuse_taken(&self.target)?;
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
        if self.is_moved {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "staging folder stays; the next restore removes it");
        }
    }
}

/// What shows that a folder is somebody's already, and whose.
const OWNERS: [(&str, &str); 3] = [
    ("vault.json", "a vault"),
    ("member.json", "the data directory of a store"),
    ("member/snap", "the data directory of an etcd"),
];

/// A file, a folder or a symbolic link at the target: all are refused, and so is a target inside
/// a vault or another member's data.
pub(crate) fn refuse_existing(target: &Path) -> Result<()> {
    refuse_taken(target)?;
    refuse_inside(target)
}

fn refuse_taken(target: &Path) -> Result<()> {
    match fs::symlink_metadata(target) {
        Ok(_) => Err(Error::TargetExists {
            path: target.to_path_buf(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("inspect", target)(error)),
    }
}

fn refuse_inside(target: &Path) -> Result<()> {
    let existing = target.ancestors().skip(1).find_map(|above| {
        let above = if above.as_os_str().is_empty() {
            Path::new(".")
        } else {
            above
        };
        fs::canonicalize(above).ok()
    });
    for folder in existing.iter().flat_map(|folder| folder.ancestors()) {
        for (mark, whose) in OWNERS {
            if folder.join(mark).exists() {
                return Err(Error::BadTarget {
                    path: target.to_path_buf(),
                    reason: format!("is inside {}, {whose}", folder.display()),
                });
            }
        }
    }
    Ok(())
}

/// Makes a folder that only its owner can look into.
pub(crate) fn private_dir(path: &Path) -> Result<()> {
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(Error::io("create", path))
}

/// Makes a file that only its owner can read; one that is there is not touched.
pub(crate) fn private_file(path: &Path) -> Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(Error::io("create", path))
}

/// Removes what killed runs for the same target left, unless one of them is still at work.
pub(crate) fn remove_leftovers(parent: &Path, name: &OsStr) -> Result<()> {
    let mut prefix = name.to_os_string();
    prefix.push(MARK);
    for entry in fs::read_dir(parent).map_err(Error::io("list", parent))? {
        let entry = entry.map_err(Error::io("list", parent))?;
        let is_ours = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_encoded_bytes());
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

/// Syncs the names in a folder and in all folders below it.
fn sync_tree(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            sync_tree(&entry.path())?;
        }
    }
    durable::sync_dir(folder).map_err(Error::io("sync", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_stands_at_the_target_and_nothing_beside_it() {
        let parent = tempfile::tempdir().unwrap();
        let target = parent.path().join("new");
        let staging = Staging::create(&target).unwrap();
        fs::write(staging.path().join("file"), b"whole").unwrap();
        staging.publish().unwrap();
        assert_eq!(fs::read(target.join("file")).unwrap(), b"whole");
        let only = parent.path().join("only");
        let staging = Staging::create(&only).unwrap();
        fs::write(staging.path().join("file"), b"one").unwrap();
        fs::write(staging.path().join("other"), b"two").unwrap();
        staging.publish_only("file").unwrap();
        assert_eq!(fs::read(&only).unwrap(), b"one");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_target_that_appears_meanwhile_is_not_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let target = parent.path().join("new");
        let staging = Staging::create(&target).unwrap();
        fs::create_dir(&target).unwrap();
        let refused = staging.publish().unwrap_err();
        assert!(matches!(refused, Error::TargetExists { .. }), "{refused}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_leftover_is_removed_and_work_in_progress_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let target = parent.path().join("new");
        let living = Staging::create(&target).unwrap();
        let dead = parent.path().join("new.partial-dead");
        fs::create_dir(&dead).unwrap();
        let second = Staging::create(&target).unwrap();
        assert!(living.path().is_dir());
        assert!(second.path().is_dir());
        assert!(!dead.exists());
    }
}
