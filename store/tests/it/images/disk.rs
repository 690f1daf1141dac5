//! A member's disk whose power fails at any write or sync, and what is on it then.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use holdfast_store::Error;
use holdfast_store::consensus::log::LogIo;
use holdfast_store::member::StateStorage;
use parking_lot::Mutex;
use redb::StorageBackend;

use crate::crash::disk::Dice;

/// Smallest piece a disk writes whole.
const SECTOR: usize = 512;

#[derive(Debug, Default)]
struct Power {
    /// Writes and syncs so far.
    passed: u64,
    fails_at: Option<u64>,
    is_off: bool,
    /// What is durable of each file that was written to, by inode.
    durable: BTreeMap<u64, Vec<u8>>,
}

/// The disk under one run of a member; shared by its clones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<Power>>);

impl Disk {
    /// The disk that holds what is in `folder`, all of it durable.
    pub(crate) fn of(folder: &Path) -> Self {
        let disk = Self::default();
        if folder.exists() {
            for_each_file(folder, &mut |path| {
                let inode = std::fs::metadata(path).unwrap().ino();
                let bytes = std::fs::read(path).unwrap();
                disk.0.lock().durable.insert(inode, bytes);
            });
        }
        disk
    }

    /// Lets the power fail at the write or sync after so many more.
    pub(crate) fn fail_after(&self, operations: u64) {
        let mut power = self.0.lock();
        power.fails_at = Some(power.passed + operations);
    }

    /// Takes [`Disk::fail_after`] back; whether it was in time.
    pub(crate) fn keep_on(&self) -> bool {
        let mut power = self.0.lock();
        power.fails_at = None;
        !power.is_off
    }

    pub(crate) fn is_off(&self) -> bool {
        self.0.lock().is_off
    }

    /// Ends the power and makes, in `to`, what is then on the disk that had its files in `from`:
    /// what was synced, and any sectors of what was not.
    pub(crate) fn image(&self, from: &Path, to: &Path, dice: &mut Dice) {
        let mut power = self.0.lock();
        power.is_off = true;
        // Of all that is not durable: nothing, a part, or everything.
        let chance = [0, 30, 70, 95, 100][dice.below(5)];
        for_each_file(from, &mut |path| {
            let inside = path.strip_prefix(from).unwrap();
            let target = to.join(inside);
            std::fs::create_dir_all(target.parent().unwrap()).unwrap();
            let written = std::fs::read(path).unwrap();
            let inode = std::fs::metadata(path).unwrap().ino();
            let is_segment = inside.extension().is_some_and(|end| end == "log");
            let durable = match power.durable.get(&inode) {
                Some(durable) => durable.clone(),
                // A segment is made of zeros that are durable before it has its name.
                None if is_segment => vec![0; written.len()],
                // Everything else is durable before it has its name.
                None => written.clone(),
            };
            std::fs::write(target, partly(durable, &written, chance, dice)).unwrap();
        });
    }

    /// How a member reaches its state on this disk.
    pub(crate) fn state_storage(&self) -> StateStorage {
        let disk = self.clone();
        StateStorage(Arc::new(move |path: &Path| {
            let opened = StateFile::open(path, disk.clone());
            let file = opened.map_err(|source| Error::Io {
                doing: "open the state on a disk that fails",
                source,
            })?;
            let file: Box<dyn StorageBackend> = Box::new(file);
            Ok(file)
        }))
    }

    /// One write or sync.
    fn pass(&self) -> io::Result<()> {
        let mut power = self.0.lock();
        power.passed += 1;
        power.is_off |= power.fails_at.is_some_and(|at| power.passed > at);
        if power.is_off {
            return Err(io::Error::other("the power failed"));
        }
        Ok(())
    }

    fn make_durable(&self, file: &File) -> io::Result<()> {
        self.pass()?;
        let metadata = file.metadata()?;
        let mut bytes = vec![0; usize::try_from(metadata.len()).unwrap()];
        file.read_exact_at(&mut bytes, 0)?;
        self.0.lock().durable.insert(metadata.ino(), bytes);
        Ok(())
    }
}

/// The log writes by itself: of a batch the disk may have a part when its sync fails.
impl LogIo for Disk {
    fn sync(&self, file: &File) -> io::Result<()> {
        self.make_durable(file)
    }
}

/// The state's file. A write is there when the power is; at a sync all of them are durable.
#[derive(Debug)]
struct StateFile {
    file: File,
    disk: Disk,
}

impl StateFile {
    fn open(path: &Path, disk: Disk) -> io::Result<Self> {
        disk.pass()?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path)?;
        let inode = file.metadata()?.ino();
        disk.0.lock().durable.entry(inode).or_default();
        Ok(Self { file, disk })
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
        self.disk.pass()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.make_durable(&self.file)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.pass()?;
        self.file.write_all_at(data, offset)
    }
}

fn partly(mut durable: Vec<u8>, written: &[u8], chance: usize, dice: &mut Dice) -> Vec<u8> {
    let mut arrives = || dice.below(100) < chance;
    if durable.len() != written.len() && arrives() {
        durable.resize(written.len(), 0);
    }
    for (to, from) in durable.chunks_mut(SECTOR).zip(written.chunks(SECTOR)) {
        if to != from && arrives() {
            let length = to.len().min(from.len());
            to[..length].copy_from_slice(&from[..length]);
        }
    }
    durable
}

fn for_each_file(folder: &Path, visit: &mut impl FnMut(&Path)) {
    let items = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = items.map(|item| item.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            for_each_file(&path, visit);
        } else {
            visit(&path);
        }
    }
}
