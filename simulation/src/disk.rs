//! One member's disk: files that remember what of them is durable, and the loss of power.
//!
//! The files are real ones, in memory if there is a place for it. What was written and not synced
//! may be lost at a loss of power, each sector for itself.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_store::Error;
use holdfast_store::consensus::log::LogIo;
use holdfast_store::member::StateStorage;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use redb::StorageBackend;

/// The smallest piece a disk writes whole.
const SECTOR: usize = 512;
/// The largest file a simulation makes.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// The longest a batch of the log takes on a good day, in milliseconds.
const LATENCY_MS_MAX: u64 = 4;
/// The longest it takes on a bad one.
const SLOW_LATENCY_MS_MAX: u64 = 200;

/// What is durable, and how long that goes well.
#[derive(Debug)]
struct Content {
    /// The durable bytes of each file, by inode.
    durable: BTreeMap<u64, Vec<u8>>,
    random: StdRng,
    /// Syncs that still succeed before the power fails; `None`: it does not.
    syncs_left: Option<u64>,
    is_off: bool,
    /// Whether the syncs of the log are acknowledged and not done, and nothing unsynced is kept.
    is_lying: bool,
}

/// A member's disk from one start to the next crash; cheap to clone.
#[derive(Debug, Clone)]
pub struct Disk(Arc<Mutex<Content>>);

fn power_is_off() -> io::Error {
    io::Error::other("the power failed")
}

impl Disk {
    /// The disk that holds what is in `folder`, all of it durable.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn new(folder: &Path, seed: u64) -> io::Result<Self> {
        let mut durable = BTreeMap::new();
        for_each_file(folder, &mut |path| {
            durable.insert(std::fs::metadata(path)?.ino(), std::fs::read(path)?);
            Ok(())
        })?;
        let content = Content {
            durable,
            random: StdRng::seed_from_u64(seed),
            syncs_left: None,
            is_off: false,
            is_lying: false,
        };
        Ok(Self(Arc::new(Mutex::new(content))))
    }

    /// Lets the power fail in the midst of a sync, after so many more.
    pub fn fail_after(&self, syncs: u64) {
        self.0.lock().syncs_left = Some(syncs);
    }

    /// From now on the syncs of the log are acknowledged and not done: a control, that must not
    /// go unnoticed.
    pub fn lie(&self) {
        self.0.lock().is_lying = true;
    }

    /// Takes [`Self::fail_after`] back.
    pub fn never_fail(&self) {
        self.0.lock().syncs_left = None;
    }

    /// Whether the power failed.
    pub fn is_off(&self) -> bool {
        self.0.lock().is_off
    }

    /// Ends the power and makes, in `to`, what is on the disk of `from` then.
    ///
    /// # Errors
    /// When the files cannot be read or written.
    pub fn crash(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut content = self.0.lock();
        content.is_off = true;
        std::fs::create_dir_all(to)?;
        for_each_file(from, &mut |path| {
            let inside = path.strip_prefix(from).map_err(io::Error::other)?;
            let target = to.join(inside);
            if let Some(folder) = target.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let written = std::fs::read(path)?;
            let inode = std::fs::metadata(path)?.ino();
            let is_segment = inside.extension().is_some_and(|end| end == "log");
            let durable = match content.durable.get(&inode) {
                Some(durable) => durable.clone(),
                // A segment is made of zeros that are durable before it is used.
                None if is_segment => vec![0; written.len()],
                // Everything else is durable before it has its name.
                None => written.clone(),
            };
            let left = if content.is_lying {
                durable
            } else {
                partly(durable, &written, &mut content.random)
            };
            std::fs::write(target, left)
        })
    }

    /// How a member reaches its state on this disk.
    pub fn state_storage(&self) -> StateStorage {
        let disk = self.clone();
        StateStorage(Arc::new(move |path: &Path| {
            let file = StateFile::open(path, disk.clone());
            let file = file.map_err(|source| Error::Io {
                doing: "open the simulated state",
                source,
            })?;
            let file: Box<dyn StorageBackend> = Box::new(file);
            Ok(file)
        }))
    }

    fn check_power(&self) -> io::Result<()> {
        if self.is_off() {
            return Err(power_is_off());
        }
        Ok(())
    }

    /// Makes a file durable, unless the power fails just now.
    fn make_durable(
        &self,
        inode: u64,
        change: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut content = self.0.lock();
        match &mut content.syncs_left {
            Some(0) => content.is_off = true,
            Some(left) => *left -= 1,
            None => {}
        }
        if content.is_off {
            return Err(power_is_off());
        }
        change(content.durable.entry(inode).or_default())
    }
}

impl LogIo for Disk {
    fn sync(&self, file: &File) -> io::Result<()> {
        let metadata = file.metadata()?;
        if self.0.lock().is_lying {
            return self.check_power();
        }
        self.make_durable(metadata.ino(), |durable| {
            durable.resize(
                usize::try_from(metadata.len()).map_err(io::Error::other)?,
                0,
            );
            file.read_exact_at(durable, 0)
        })
    }

    fn latency(&self) -> Duration {
        let random = &mut self.0.lock().random;
        let most = if random.random_bool(0.01) {
            SLOW_LATENCY_MS_MAX
        } else {
            LATENCY_MS_MAX
        };
        Duration::from_millis(random.random_range(0..=most))
    }
}

/// The file of the state: its writes are remembered until they are synced.
#[derive(Debug)]
struct StateFile {
    file: File,
    inode: u64,
    disk: Disk,
    unsynced: Mutex<Vec<Change>>,
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    Length(usize),
}

impl Change {
    fn perform(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(length) => bytes.resize(length, 0),
            Self::Write { offset, data } => {
                let end = offset.saturating_add(data.len());
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                if let Some(place) = bytes.get_mut(offset..end) {
                    place.copy_from_slice(&data);
                }
            }
        }
    }
}

impl StateFile {
    fn open(path: &Path, disk: Disk) -> io::Result<Self> {
        disk.check_power()?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path)?;
        let metadata = file.metadata()?;
        let inode = metadata.ino();
        let mut content = disk.0.lock();
        let durable = content.durable.entry(inode).or_default();
        if metadata.len() == 0 {
            // A new file may have the number of one that is gone.
            durable.clear();
        }
        drop(content);
        Ok(Self {
            file,
            inode,
            disk,
            unsynced: Mutex::default(),
        })
    }
}

impl StorageBackend for StateFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.check_power()?;
        if len > FILE_BYTES_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let length = usize::try_from(len).map_err(io::Error::other)?;
        self.unsynced.lock().push(Change::Length(length));
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut unsynced = self.unsynced.lock();
        self.disk.make_durable(self.inode, |durable| {
            for change in unsynced.drain(..) {
                change.perform(durable);
            }
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.check_power()?;
        let change = Change::Write {
            offset: usize::try_from(offset).map_err(io::Error::other)?,
            data: data.to_vec(),
        };
        self.unsynced.lock().push(change);
        self.file.write_all_at(data, offset)
    }
}

/// `durable` with a part of what was written since: some of its sectors.
fn partly(mut durable: Vec<u8>, written: &[u8], random: &mut StdRng) -> Vec<u8> {
    if durable == written {
        return durable;
    }
    let chances = [0.0, 0.3, 0.7, 0.95, 1.0];
    let chance = chances
        .get(random.random_range(0..chances.len()))
        .copied()
        .unwrap_or(0.0);
    if durable.len() != written.len() && random.random_bool(chance) {
        durable.resize(written.len(), 0);
    }
    for (to, from) in durable.chunks_mut(SECTOR).zip(written.chunks(SECTOR)) {
        if to != from && random.random_bool(chance) {
            let length = to.len().min(from.len());
            if let (Some(to), Some(from)) = (to.get_mut(..length), from.get(..length)) {
                to.copy_from_slice(from);
            }
        }
    }
    durable
}

/// Calls `visit` for every file in `folder` and below, in the order of their names.
fn for_each_file(folder: &Path, visit: &mut impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut paths = Vec::new();
    for item in std::fs::read_dir(folder)? {
        paths.push(item?.path());
    }
    paths.sort();
    for path in paths {
        if path.is_dir() {
            for_each_file(&path, visit)?;
        } else {
            visit(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_keeps_what_was_synced_and_loses_some_of_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let mut partial = 0;
        for seed in 0..20 {
            let (from, to) = (
                dir.path().join(format!("{seed}a")),
                dir.path().join(format!("{seed}b")),
            );
            std::fs::create_dir(&from).unwrap();
            let path = from.join("state");
            let disk = Disk::new(&from, seed).unwrap();
            let storage = disk.state_storage();
            let file = (storage.0)(&path).unwrap();
            file.set_len(8192).unwrap();
            file.write(0, &[1; 4096]).unwrap();
            file.sync_data().unwrap();
            file.write(4096, &[2; 4096]).unwrap();
            disk.crash(&from, &to).unwrap();
            assert!(file.write(0, &[3; 1]).is_err(), "the power is off");
            assert!(file.sync_data().is_err());
            let left = std::fs::read(to.join("state")).unwrap();
            assert_eq!(left[..4096], [1; 4096]);
            let arrived = left[4096..]
                .iter()
                .map(|byte| usize::from(*byte) / 2)
                .sum::<usize>();
            assert_eq!(arrived % SECTOR, 0);
            partial += u32::from(arrived > 0 && arrived < 4096);
        }
        assert!(partial > 3, "{partial}");
    }

    #[test]
    fn a_disk_that_lies_loses_what_it_said_was_synced() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::create_dir(&from).unwrap();
        let path = from.join("0000000000000001.log");
        std::fs::write(&path, [0; 128]).unwrap();
        let disk = Disk::new(&from, 1).unwrap();
        let file = OpenOptions::new().write(true).read(true).open(&path);
        let file = file.unwrap();
        file.write_all_at(&[1; 64], 0).unwrap();
        disk.sync(&file).unwrap();
        disk.lie();
        file.write_all_at(&[2; 64], 64).unwrap();
        disk.sync(&file).unwrap();
        disk.crash(&from, &to).unwrap();
        let left = std::fs::read(to.join("0000000000000001.log")).unwrap();
        assert_eq!(left, [[1; 64], [0; 64]].concat());
    }

    #[test]
    fn the_power_fails_in_the_midst_of_a_sync() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0000000000000001.log");
        let file = File::create_new(&path).unwrap();
        let disk = Disk::new(dir.path(), 1).unwrap();
        disk.fail_after(1);
        let file = {
            drop(file);
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .unwrap()
        };
        file.write_all_at(&[1; 64], 0).unwrap();
        disk.sync(&file).unwrap();
        file.write_all_at(&[2; 64], 0).unwrap();
        assert!(disk.sync(&file).is_err());
        assert!(disk.is_off());
        assert!(disk.sync(&file).is_err(), "it does not come back");
    }
}
