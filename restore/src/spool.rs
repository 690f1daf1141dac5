//! A sealed copy of a snapshot on local disk, for the random access its format needs.
//!
//! One file for each part, in blocks sealed with AES-256-GCM under a key that lives in this process
//! only: nothing is in clear on disk, and what a killed process leaves behind is noise. A block is
//! bound to its place, and each place is written once. The folder is removed when the spool is
//! dropped, and by the next process when this one was killed.
//!
//! Not age as in the vault: nobody else ever reads these files, every byte of a backup goes through
//! them several times, and this cipher is many times as fast.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use bytes::Bytes;
use holdfast_store::bolt::ReadAt;
use rustix::fs::{FlockOperation, flock};
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::part::{PART_BYTES_UNIT, length_of};
use crate::staging::{private_dir, private_file};
use crate::unique::UniqueId;

const PREFIX: &str = "holdfast-spool-";

/// Bytes sealed together. Parts are a whole number of blocks, and a page is at most as large.
const BLOCK_BYTES: usize = PART_BYTES_UNIT / 4;

/// Bytes of the tag behind a block.
const TAG_BYTES: usize = 16;

/// Opened blocks kept in memory.
const BLOCKS_KEPT: usize = 2048;

/// Part files kept open.
const FILES_KEPT: usize = 64;

/// Bytes written to disk at once.
const WRITE_BYTES: usize = 1 << 20;

/// A folder of sealed parts being written.
pub(crate) struct Spool {
    folder: PathBuf,
    key: LessSafeKey,
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
        private_dir(&folder)?;
        let lock_path = folder.join("lock");
        let lock = File::create_new(&lock_path).map_err(Error::io("create", &lock_path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| Error::io("lock", &lock_path)(error.into()))?;
        Ok(Self {
            folder,
            key: fresh_key()?,
            _lock: lock,
        })
    }

    /// Writes one part. Parts may be written in any order and at the same time.
    pub(crate) fn write(&self, index: usize, plain: &[u8]) -> Result<()> {
        let path = self.path(index);
        let file = private_file(&path)?;
        let write = || -> io::Result<()> {
            let mut file = BufWriter::with_capacity(WRITE_BYTES, file);
            let mut sealed = Vec::with_capacity(BLOCK_BYTES + TAG_BYTES);
            let mut blocks = plain.chunks(BLOCK_BYTES).enumerate().peekable();
            while let Some((block, plain)) = blocks.next() {
                sealed.clear();
                sealed.extend_from_slice(plain);
                let place = nonce(index, block)?;
                let end = Aad::from(ending(blocks.peek().is_none()));
                self.key
                    .seal_in_place_append_tag(place, end, &mut sealed)
                    .map_err(|_unspecified| io::Error::other("a block cannot be sealed"))?;
                file.write_all(&sealed)?;
            }
            file.flush()
        };
        write().map_err(Error::io("write", &path))
    }

    /// Reads one part back as it was written, and removes it.
    pub(crate) fn take(&self, index: usize) -> Result<Vec<u8>> {
        let plain = self.read(index)?;
        let path = self.path(index);
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        Ok(plain)
    }

    /// Reads one part back as it was written.
    pub(crate) fn read(&self, index: usize) -> Result<Vec<u8>> {
        let path = self.path(index);
        let sealed = fs::read(&path).map_err(Error::io("read", &path))?;
        let mut plain = Vec::with_capacity(sealed.len());
        let mut blocks = sealed
            .chunks(BLOCK_BYTES + TAG_BYTES)
            .enumerate()
            .peekable();
        while let Some((block, sealed)) = blocks.next() {
            let is_last = blocks.peek().is_none();
            let opened = self.open(sealed.to_vec(), (index, block), is_last);
            plain.extend_from_slice(&opened.map_err(Error::io("open", &path))?);
        }
        Ok(plain)
    }

    /// Opens a block: in its place, and at the end of its part or not.
    fn open(
        &self,
        mut sealed: Vec<u8>,
        (part, block): (usize, usize),
        is_last: bool,
    ) -> io::Result<Bytes> {
        let place = nonce(part, block)?;
        let end = Aad::from(ending(is_last));
        let opened = self.key.open_in_place(place, end, &mut sealed);
        let damaged =
            |_unspecified| io::Error::new(io::ErrorKind::InvalidData, "a block is damaged");
        let plain = opened.map_err(damaged)?.len();
        sealed.truncate(plain);
        Ok(sealed.into())
    }

    /// The whole, for reading: `bytes` in all, cut into parts of `part_bytes`.
    pub(crate) fn into_reader(self, bytes: u64, part_bytes: u64) -> SpoolReader {
        SpoolReader {
            spool: self,
            bytes,
            blocks_in_part: (part_bytes / length_of(BLOCK_BYTES)).max(1),
            state: Mutex::new(State {
                files: Vec::new(),
                blocks: vec![None; BLOCKS_KEPT],
            }),
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

fn fresh_key() -> Result<LessSafeKey> {
    let mut bytes = Zeroizing::new([0_u8; 32]);
    let failed = |_unspecified| Error::Seal {
        reason: "no key for the spool".to_owned(),
    };
    aws_lc_rs::rand::fill(bytes.as_mut()).map_err(failed)?;
    let key = UnboundKey::new(&AES_256_GCM, bytes.as_ref()).map_err(failed)?;
    Ok(LessSafeKey::new(key))
}

/// What a block is sealed with beside its place: a part cannot be cut short.
const fn ending(is_last: bool) -> [u8; 1] {
    if is_last { *b"." } else { *b"," }
}

/// The place of a block, which no other block of this spool has.
fn nonce(part: usize, block: usize) -> io::Result<Nonce> {
    let too_large = |_wide| io::Error::from(io::ErrorKind::InvalidInput);
    let part = u32::try_from(part).map_err(too_large)?;
    let block = u64::try_from(block).map_err(too_large)?;
    let mut bytes = [0; 12];
    let (head, tail) = bytes.split_at_mut(4);
    head.copy_from_slice(&part.to_be_bytes());
    tail.copy_from_slice(&block.to_be_bytes());
    Ok(Nonce::assume_unique_for_key(bytes))
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

/// Random access to a spooled snapshot.
pub(crate) struct SpoolReader {
    spool: Spool,
    bytes: u64,
    blocks_in_part: u64,
    state: Mutex<State>,
}

struct State {
    files: Vec<(u64, Arc<File>)>,
    blocks: Vec<Option<(u64, Bytes)>>,
}

impl std::fmt::Debug for SpoolReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpoolReader")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl SpoolReader {
    /// The block with this number. It is opened without the lock, so that two threads can.
    fn block(&self, block: u64) -> io::Result<Bytes> {
        let slot = usize::try_from(block % length_of(BLOCKS_KEPT)).unwrap_or(0);
        let part = block / self.blocks_in_part;
        let file = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match state.blocks.get(slot) {
                Some(Some((kept, bytes))) if *kept == block => return Ok(bytes.clone()),
                _ => self.file(&mut state, part)?,
            }
        };
        let bytes = self.open(&file, part, block % self.blocks_in_part)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = state.blocks.get_mut(slot) {
            *place = Some((block, bytes.clone()));
        }
        Ok(bytes)
    }

    fn file(&self, state: &mut State, part: u64) -> io::Result<Arc<File>> {
        if let Some((_, file)) = state.files.iter().find(|(open, _)| *open == part) {
            return Ok(Arc::clone(file));
        }
        let index = usize::try_from(part).map_err(|_wide| io::ErrorKind::InvalidInput)?;
        let file = Arc::new(File::open(self.spool.path(index))?);
        if state.files.len() >= FILES_KEPT {
            state.files.remove(0);
        }
        state.files.push((part, Arc::clone(&file)));
        Ok(file)
    }

    /// Reads and opens a block of a part; the last one of the last part is shorter.
    fn open(&self, file: &File, part: u64, block: u64) -> io::Result<Bytes> {
        let wide = |_narrow| io::Error::from(io::ErrorKind::InvalidInput);
        let number = part
            .saturating_mul(self.blocks_in_part)
            .saturating_add(block);
        let before = number.saturating_mul(length_of(BLOCK_BYTES));
        let left = self.bytes.checked_sub(before).filter(|left| *left > 0);
        let left = left.ok_or(io::ErrorKind::UnexpectedEof)?;
        let plain = usize::try_from(left).map_or(BLOCK_BYTES, |left| left.min(BLOCK_BYTES));
        let mut sealed = vec![0; plain + TAG_BYTES];
        let start = block.saturating_mul(length_of(BLOCK_BYTES + TAG_BYTES));
        file.read_exact_at(&mut sealed, start)?;
        let is_last = block + 1 == self.blocks_in_part || left <= length_of(BLOCK_BYTES);
        let place = (
            usize::try_from(part).map_err(wide)?,
            usize::try_from(block).map_err(wide)?,
        );
        self.spool.open(sealed, place, is_last)
    }
}

impl ReadAt for SpoolReader {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut offset = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let block = self.block(offset / length_of(BLOCK_BYTES))?;
            let within = usize::try_from(offset % length_of(BLOCK_BYTES)).unwrap_or(0);
            let available = block.get(within..).unwrap_or_default();
            let length = available.len().min(rest.len());
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (filled, after) = rest.split_at_mut(length);
            filled.copy_from_slice(available.get(..length).unwrap_or_default());
            rest = after;
            offset = offset.saturating_add(length_of(length));
        }
        Ok(())
    }

    fn shared_at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let within = usize::try_from(offset % length_of(BLOCK_BYTES)).unwrap_or(0);
        if within + length <= BLOCK_BYTES {
            let block = self.block(offset / length_of(BLOCK_BYTES))?;
            if within + length <= block.len() {
                return Ok(block.slice(within..within + length));
            }
        }
        let mut bytes = vec![0; length];
        self.read_exact_at(offset, &mut bytes)?;
        Ok(bytes.into())
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
        let part_bytes = 8 * BLOCK_BYTES;
        let plain = sample(part_bytes + 100_000);
        let spool = Spool::create(work.path()).unwrap();
        let (first, second) = plain.split_at(part_bytes);
        spool.write(1, second).unwrap();
        spool.write(0, first).unwrap();
        let reader = spool.into_reader(length_of(plain.len()), length_of(part_bytes));
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
            reader.read_exact_at(length_of(start), &mut buffer).unwrap();
            assert_eq!(buffer, plain[start..start + buffer.len()], "from {start}");
        }
        let mut beyond = [0; 2];
        assert!(
            reader
                .read_exact_at(length_of(plain.len() - 1), &mut beyond)
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
    fn a_block_that_is_changed_cut_or_in_another_place_is_an_error() {
        let work = tempfile::tempdir().unwrap();
        let part_bytes = PART_BYTES_UNIT;
        let plain = sample(2 * part_bytes);
        let spool = Spool::create(work.path()).unwrap();
        let (first, second) = plain.split_at(part_bytes);
        spool.write(0, first).unwrap();
        spool.write(1, second).unwrap();
        let paths = [spool.path(0), spool.path(1)];
        let whole = paths.clone().map(|path| fs::read(path).unwrap());
        let reader = spool.into_reader(length_of(plain.len()), length_of(part_bytes));
        let mut flipped = whole[0].clone();
        flipped[100] ^= 1;
        let mut exchanged = whole[0].clone();
        exchanged.rotate_left(BLOCK_BYTES + TAG_BYTES);
        let cut = whole[0][..100].to_vec();
        for damaged in [flipped, exchanged, cut, whole[1].clone()] {
            fs::write(&paths[0], damaged).unwrap();
            assert!(reader.read_exact_at(0, &mut [0; 10]).is_err());
        }
        fs::write(&paths[0], &whole[0]).unwrap();
        assert_eq!(reader.shared_at(5, 20).unwrap(), plain[5..25]);
        let spool = reader.spool;
        let shortened = whole[0].len() - BLOCK_BYTES - TAG_BYTES;
        fs::write(&paths[0], &whole[0][..shortened]).unwrap();
        assert!(spool.take(0).is_err());
        assert_eq!(spool.take(1).unwrap(), second);
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
