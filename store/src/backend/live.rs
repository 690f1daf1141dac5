//! Which pages of the store file hold anything.
//!
//! A compaction frees pages inside the file, and redb takes new ones wherever it likes: on a full
//! disk that may be where the file has no space on the disk yet, while it has plenty elsewhere. So
//! the pages that hold nothing are given back to the disk.
//!
//! redb does not tell which those are, but its integrity check reads all others: the file is
//! opened a second time, beside the running database and without changing it, and what is read
//! is noted.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Builder, Database, StorageBackend};

use crate::error::Error;

use super::file::{backend_error, panic_safe};

/// Memory for pages while they are read once.
const CACHE_BYTES: usize = 4 << 20;
/// The file's head, which is never given back: more than redb's own.
const HEAD_BYTES: u64 = 64 << 10;
/// What is given back begins and ends at a multiple of this.
const GRAIN_BYTES: u64 = 4096;

/// Parts of the store file that hold something, as length by offset; they may overlap.
#[derive(Debug, Default)]
pub(crate) struct LivePages {
    lens: BTreeMap<u64, u64>,
}

impl LivePages {
    /// Adds `len` bytes at `offset`.
    pub(crate) fn add(&mut self, offset: u64, len: u64) {
        let known = self.lens.entry(offset).or_default();
        *known = len.max(*known);
    }

    /// What lies between them in a file of `file_len` bytes, as offset and length.
    pub(crate) fn gaps(&self, file_len: u64) -> Vec<(u64, u64)> {
        let end = (file_len, 0);
        let mut gaps = Vec::new();
        let mut covered = HEAD_BYTES;
        let parts = self.lens.iter().map(|(offset, len)| (*offset, *len));
        for (offset, len) in parts.chain([end]) {
            let from = covered.next_multiple_of(GRAIN_BYTES);
            let to = offset - offset % GRAIN_BYTES;
            if from < to {
                gaps.push((from, to - from));
            }
            covered = covered.max(offset.saturating_add(len));
        }
        gaps
    }
}

/// Finds the pages of the file at `path` as its last durable commit left it, which no one writes
/// to meanwhile. `None` when redb finds that what it recorded of free pages does not agree.
pub(super) fn find(path: &Path) -> Result<Option<LivePages>, Error> {
    let failed = |source| Error::Io {
        doing: "read the store file",
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    let seen = Arc::new(Mutex::new(Seen {
        len,
        ..Seen::default()
    }));
    let storage = Onlooker {
        file,
        seen: Arc::clone(&seen),
    };
    let is_consistent = panic_safe("check", || {
        let mut database: Database = Builder::new()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(storage)
            .map_err(|source| backend_error("check", source))?;
        let answer = database
            .check_integrity()
            .map_err(|source| backend_error("check", source))?;
        database
            .close()
            .map_err(|source| backend_error("check", source))?;
        Ok(answer)
    })?;
    let read = std::mem::take(&mut seen.lock().read);
    Ok(is_consistent.then_some(read))
}

#[derive(Default)]
struct Seen {
    read: LivePages,
    /// What was written stays in memory.
    written: Vec<(u64, Vec<u8>)>,
    len: u64,
}

/// A file that is only read, and notes where.
struct Onlooker {
    file: File,
    seen: Arc<Mutex<Seen>>,
}

impl fmt::Debug for Onlooker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Onlooker").finish_non_exhaustive()
    }
}

impl StorageBackend for Onlooker {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.seen.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let mut seen = self.seen.lock();
        seen.read.add(offset, bytes(out.len()));
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self
                .file
                .read_at(rest, offset.saturating_add(bytes(done)))?
            {
                0 => {
                    // The file is longer in memory only.
                    rest.fill(0);
                    break;
                }
                read => done += read,
            }
        }
        for (at, data) in &seen.written {
            lay_over(out, offset, *at, data);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.seen.lock().len = len;
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.seen.lock().written.push((offset, data.to_vec()));
        Ok(())
    }
}

fn bytes(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// Lays `data`, which belongs at `at`, over `out`, which begins at `offset`.
fn lay_over(out: &mut [u8], offset: u64, at: u64, data: &[u8]) {
    let skip = |from: u64, to: u64| usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
    let source = data.get(skip(at, offset)..).unwrap_or_default();
    let target = out.get_mut(skip(offset, at)..).unwrap_or_default();
    let len = source.len().min(target.len());
    if let (Some(target), Some(source)) = (target.get_mut(..len), source.get(..len)) {
        target.copy_from_slice(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_whole_grains_between_what_is_live() {
        let mut live = LivePages::default();
        live.add(100 << 10, 4096);
        live.add((100 << 10) + 4096, 100);
        live.add(0, 4096);
        live.add(200 << 10, 64 << 10);
        live.add(210 << 10, 4096);
        let gaps: Vec<_> = live
            .gaps(300 << 10)
            .into_iter()
            .map(|(offset, len)| (offset >> 10, len >> 10))
            .collect();
        assert_eq!(gaps, [(64, 36), (108, 92), (264, 36)]);
    }

    #[test]
    fn what_is_written_beside_the_file_is_read_back() {
        for (at, expected) in [
            (8, "....abcd"),
            (2, "cd......"),
            (6, "..abcd.."),
            (20, "........"),
        ] {
            let mut out = *b"........";
            lay_over(&mut out, 4, at, b"abcd");
            assert_eq!(String::from_utf8_lossy(&out), expected, "{at}");
        }
    }
}
