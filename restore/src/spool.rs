//! A sealed copy of a snapshot on local disk, for the random access its format needs.
//!
//! One file for each part, each an age file sealed to a key that lives in this process only:
//! nothing is in clear on disk, and what a killed process leaves behind is noise. The folder is
//! removed when the spool is dropped, and by the next process when this one was killed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use holdfast_store::bolt::ReadAt;
use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, Result};
use crate::part::PART_BYTES_UNIT;
use crate::unique::UniqueId;

const PREFIX: &str = "holdfast-spool-";

/// Bytes decrypted at once: age's own unit. Parts are a whole number of blocks.
const BLOCK_BYTES: usize = PART_BYTES_UNIT;

/// Decrypted blocks kept in memory.
const BLOCKS_KEPT: usize = 512;

/// Part files kept open.
const READERS_KEPT: usize = 64;

/// A folder of sealed parts being written.
pub(crate) struct Spool {
    folder: PathBuf,
    key: age::x25519::Identity,
    _lock: File,
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Spool {
    /// Makes a new spool below `work_dir`, and removes those of processes that are gone.
    pub(crate) fn create(work_dir: &Path) -> Result<Self> {
        fs::create_dir_all(work_dir).map_err(Error::io("create", work_dir))?;
        sweep(work_dir)?;
        let folder = work_dir.join(format!("{PREFIX}{}", UniqueId::generate()));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(Error::io("create", &folder))?;
        let lock_path = folder.join("lock");
        let lock = File::create_new(&lock_path).map_err(Error::io("create", &lock_path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| Error::io("lock", &lock_path)(error.into()))?;
        Ok(Self {
            folder,
            key: age::x25519::Identity::generate(),
            _lock: lock,
        })
    }

    /// Writes one part. Parts may be written in any order and at the same time.
    pub(crate) fn write(&self, index: usize, plain: &[u8]) -> Result<()> {
        let path = self.path(index);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::io("create", &path))?;
        let public = self.key.to_public();
        let recipient: &dyn age::Recipient = &public;
        let encryptor =
            age::Encryptor::with_recipients(std::iter::once(recipient)).map_err(|error| {
                Error::Seal {
                    reason: error.to_string(),
                }
            })?;
        let seal = || -> io::Result<()> {
            let mut writer = encryptor.wrap_output(BufWriter::new(file))?;
            writer.write_all(plain)?;
            writer.finish()?.flush()
        };
        seal().map_err(Error::io("write", &path))
    }

    /// Reads one part back as it was written, and removes it.
    pub(crate) fn take(&self, index: usize) -> Result<Vec<u8>> {
        let path = self.path(index);
        let failed = |error: age::DecryptError| Error::Decrypt {
            object: path.display().to_string(),
            reason: error.to_string(),
        };
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        let identity: &dyn age::Identity = &self.key;
        let mut plain = Vec::new();
        age::Decryptor::new_buffered(BufReader::new(file))
            .and_then(|decryptor| decryptor.decrypt(std::iter::once(identity)))
            .map_err(failed)?
            .read_to_end(&mut plain)
            .map_err(Error::io("read", &path))?;
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        Ok(plain)
    }

    /// The whole, for reading: `bytes` in all, cut into parts of `part_bytes`.
    pub(crate) fn into_reader(self, bytes: u64, part_bytes: u64) -> SpoolReader {
        let state = State {
            readers: Vec::new(),
            blocks: vec![None; BLOCKS_KEPT],
        };
        let blocks_in_part = (part_bytes / wide(BLOCK_BYTES)).max(1);
        SpoolReader {
            spool: self,
            bytes,
            blocks_in_part,
            state: Mutex::new(state),
        }
    }

    fn path(&self, index: usize) -> PathBuf {
        self.folder.join(format!("{index:06}"))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), %error, "spool could not be removed");
        }
    }
}

/// Removes spools whose process is gone: their lock is free.
fn sweep(work_dir: &Path) -> Result<()> {
    let entries = fs::read_dir(work_dir).map_err(Error::io("list", work_dir))?;
    for entry in entries {
        let entry = entry.map_err(Error::io("list", work_dir))?;
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // No lock file: another process is making it at this moment, or was killed doing so; an
        // empty folder is left for the next sweep that finds it locked or not.
        let Ok(lock) = File::open(entry.path().join("lock")) else {
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let path = entry.path();
            fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(())
}

type PartReader = age::stream::StreamReader<BufReader<File>>;

/// Random access to a spooled snapshot.
pub(crate) struct SpoolReader {
    spool: Spool,
    bytes: u64,
    blocks_in_part: u64,
    state: Mutex<State>,
}

struct State {
    readers: Vec<(u64, PartReader)>,
    blocks: Vec<Option<(u64, Vec<u8>)>>,
}

impl std::fmt::Debug for SpoolReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpoolReader")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl SpoolReader {
    fn open(&self, part: u64) -> io::Result<PartReader> {
        let invalid = |error: age::DecryptError| io::Error::new(io::ErrorKind::InvalidData, error);
        let index = usize::try_from(part).map_err(|_wide| io::ErrorKind::InvalidInput)?;
        let file = File::open(self.spool.path(index))?;
        let identity: &dyn age::Identity = &self.spool.key;
        age::Decryptor::new_buffered(BufReader::new(file))
            .and_then(|decryptor| decryptor.decrypt(std::iter::once(identity)))
            .map_err(invalid)
    }

    /// Decrypts a block; blocks never cross parts, since a part is a whole number of them.
    fn load(&self, state: &mut State, block: u64) -> io::Result<Vec<u8>> {
        let part = block / self.blocks_in_part;
        let start = (block % self.blocks_in_part).saturating_mul(wide(BLOCK_BYTES));
        let mut reader = match state.readers.iter().position(|(open, _)| *open == part) {
            Some(position) => state.readers.remove(position).1,
            None => self.open(part)?,
        };
        reader.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        (&mut reader)
            .take(wide(BLOCK_BYTES))
            .read_to_end(&mut bytes)?;
        if state.readers.len() >= READERS_KEPT {
            state.readers.remove(0);
        }
        state.readers.push((part, reader));
        Ok(bytes)
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

impl ReadAt for SpoolReader {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut offset = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let block = offset / wide(BLOCK_BYTES);
            let within = usize::try_from(offset % wide(BLOCK_BYTES)).unwrap_or(0);
            let slot = usize::try_from(block % wide(BLOCKS_KEPT)).unwrap_or(0);
            let is_cached =
                matches!(state.blocks.get(slot), Some(Some((kept, _))) if *kept == block);
            if !is_cached {
                let bytes = self.load(&mut state, block)?;
                if let Some(place) = state.blocks.get_mut(slot) {
                    *place = Some((block, bytes));
                }
            }
            let available = match state.blocks.get(slot) {
                Some(Some((_, bytes))) => bytes.get(within..).unwrap_or_default(),
                _ => &[],
            };
            let length = available.len().min(rest.len());
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (filled, after) = rest.split_at_mut(length);
            filled.copy_from_slice(available.get(..length).unwrap_or_default());
            rest = after;
            offset = offset.saturating_add(wide(length));
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(len: usize) -> Vec<u8> {
        (0..len)
            .map(|n| u8::try_from(n * 7 % 251).unwrap())
            .collect()
    }

    #[test]
    fn any_range_of_a_spool_reads_back_and_nothing_is_left_on_disk() {
        let work = tempfile::tempdir().unwrap();
        let part_bytes = 3 * BLOCK_BYTES;
        let plain = sample(part_bytes + 100_000);
        let spool = Spool::create(work.path()).unwrap();
        let (first, second) = plain.split_at(part_bytes);
        spool.write(1, second).unwrap();
        spool.write(0, first).unwrap();
        let reader = spool.into_reader(wide(plain.len()), wide(part_bytes));
        let mut starts: Vec<usize> = (0..200).map(|n| n * 7919 * 31 % plain.len()).collect();
        starts.extend([
            0,
            BLOCK_BYTES - 1,
            part_bytes - 3,
            part_bytes,
            plain.len() - 10,
        ]);
        for start in starts {
            let mut buffer = vec![0; 10.min(plain.len() - start)];
            reader.read_exact_at(wide(start), &mut buffer).unwrap();
            assert_eq!(buffer, plain[start..start + buffer.len()], "from {start}");
        }
        let mut beyond = [0; 2];
        assert!(
            reader
                .read_exact_at(wide(plain.len() - 1), &mut beyond)
                .is_err()
        );
        drop(reader);
        assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
    }

    #[test]
    fn nothing_readable_is_on_disk() {
        let work = tempfile::tempdir().unwrap();
        let spool = Spool::create(work.path()).unwrap();
        spool
            .write(0, &b"a very secret value ".repeat(100))
            .unwrap();
        let stored = fs::read(spool.path(0)).unwrap();
        assert!(!stored.windows(11).any(|window| window == b"very secret"));
    }

    #[test]
    fn the_spool_of_a_living_process_is_not_swept_and_a_dead_ones_is() {
        let work = tempfile::tempdir().unwrap();
        let living = Spool::create(work.path()).unwrap();
        let dead = work.path().join(format!("{PREFIX}dead"));
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("lock"), b"").unwrap();
        fs::write(dead.join("000000"), b"x").unwrap();
        let other = Spool::create(work.path()).unwrap();
        assert!(living.folder.exists());
        assert!(other.folder.exists());
        assert!(!dead.exists());
    }
}
