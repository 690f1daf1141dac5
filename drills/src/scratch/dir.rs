//! The scratch directory of one drill: `drill-ID` in a folder of the operator's choice.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_policies::DrillId;
use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, Result};

const PREFIX: &str = "drill-";
const LOCK: &str = "lock";

/// Times a directory is tried to be removed while something still writes into it.
const REMOVALS_MAX: usize = 20;

/// How often the budget is looked at.
const BUDGET_INTERVAL: Duration = Duration::from_millis(500);

/// A directory that is locked while it is used and removed when it is dropped.
#[derive(Debug)]
pub(crate) struct ScratchDir {
    path: PathBuf,
    lock: File,
}

impl ScratchDir {
    /// Makes the directory of drill `id` below `root`, readable by its owner only.
    pub(crate) fn create(root: &Path, id: DrillId) -> Result<Self> {
        fs::create_dir_all(root).map_err(Error::io("create", root))?;
        let path = root.join(format!("{PREFIX}{id}"));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(Error::io("create", &path))?;
        let lock = File::create_new(path.join(LOCK)).map_err(Error::io("create", &path))?;
        lock.try_lock()
            .map_err(|_held| Error::Busy { path: path.clone() })?;
        Ok(Self { path, lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directory. What cannot be removed is named.
    pub(crate) async fn remove(self) -> std::result::Result<(), String> {
        for _ in 0..REMOVALS_MAX {
            match fs::remove_dir_all(&self.path) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                // Something was still writing; it has been told to stop.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        Err(format!("{} could not be removed", self.path.display()))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "scratch directory is left");
        }
        if let Err(error) = self.lock.unlock() {
            tracing::debug!(%error, "scratch lock is left");
        }
    }
}

/// Removes what drills that were killed have left below `root`: processes that work in their
/// directories, and the directories. A drill that is running is not touched.
///
/// Returns the drills cleaned up after. Blocks for a few seconds at most.
pub async fn clean_leftovers(root: &Path) -> Result<Vec<DrillId>> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::io("list", root))?,
    };
    let mut cleaned = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::io("list", root))?;
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let Some(id) = id.and_then(|id| id.parse::<DrillId>().ok()) else {
            continue;
        };
        let path = entry.path();
        if is_in_use(&path)? {
            continue;
        }
        end_processes_in(&path).await;
        fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
        cleaned.push(id);
    }
    Ok(cleaned)
}

fn is_in_use(path: &Path) -> Result<bool> {
    match File::open(path.join(LOCK)) {
        // Killed between making the directory and its lock, or doing so at this moment: either
        // way there is nothing in it yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(fs::read_dir(path)
            .map_err(Error::io("list", path))?
            .next()
            .is_none()),
        Err(error) => Err(Error::io("open", path)(error)),
        Ok(lock) => match lock.try_lock() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
        },
    }
}

/// Ends every process whose working directory is inside `path`, and waits until they are gone.
async fn end_processes_in(path: &Path) {
    for _ in 0..50 {
        let found = processes_in(path);
        if found.is_empty() {
            return;
        }
        for process in found {
            if let Err(error) = kill_process(process, Signal::KILL) {
                tracing::debug!(%error, "a process of an earlier drill is left");
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Processes whose working directory is inside `path`: a drill's members, and nothing else.
pub(super) fn processes_in(path: &Path) -> Vec<Pid> {
    let Ok(path) = path.canonicalize() else {
        return Vec::new();
    };
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let in_path = |entry: fs::DirEntry| {
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        let cwd = fs::read_link(entry.path().join("cwd")).ok()?;
        if cwd.starts_with(&path) {
            Pid::from_raw(number)
        } else {
            None
        }
    };
    entries.filter_map(|entry| in_path(entry.ok()?)).collect()
}

/// Returns when the files below `path` take more than `budget` bytes.
pub(crate) async fn watch_budget(path: &Path, budget: u64) -> Error {
    loop {
        if bytes_below(path) > budget {
            return Error::Budget { budget };
        }
        tokio::time::sleep(BUDGET_INTERVAL).await;
    }
}

/// Disk space taken by files below `path`; what vanishes meanwhile does not count.
fn bytes_below(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let mut total = 0_u64;
    let mut open = vec![path.to_owned()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                open.push(entry.path());
            } else {
                total = total.saturating_add(metadata.blocks().saturating_mul(512));
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> DrillId {
        DrillId::new(chrono::DateTime::UNIX_EPOCH, [number; 10])
    }

    #[tokio::test]
    async fn a_dropped_directory_is_gone_and_a_leftover_is_cleaned_by_the_next_start() {
        let root = tempfile::tempdir().unwrap();
        let used = ScratchDir::create(root.path(), id(1)).unwrap();
        let killed = root.path().join(format!("drill-{}", id(2)));
        fs::create_dir_all(killed.join("data/member")).unwrap();
        fs::write(killed.join(LOCK), "").unwrap();
        fs::write(root.path().join("drill-of-somebody"), "").unwrap();
        let mut orphan = std::process::Command::new("sleep")
            .arg("600")
            .current_dir(killed.join("data"))
            .spawn()
            .unwrap();

        assert_eq!(clean_leftovers(root.path()).await.unwrap(), [id(2)]);
        assert!(!killed.exists());
        assert!(
            !orphan.wait().unwrap().success(),
            "the orphan was not ended"
        );
        assert!(used.path().exists(), "a drill in progress was touched");
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
        assert!(root.path().join("drill-of-somebody").exists());
    }

    #[tokio::test]
    async fn a_directory_that_outgrows_its_budget_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("large"), vec![1; 300_000]).unwrap();
        let noticed = watch_budget(root.path(), 200_000).await;
        assert!(matches!(noticed, Error::Budget { budget: 200_000 }));
        let within = watch_budget(root.path(), 1_000_000);
        let waited = tokio::time::timeout(Duration::from_millis(50), within).await;
        assert!(waited.is_err(), "it was noticed too early");
    }
}
