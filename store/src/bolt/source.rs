//! Where the bytes of a file come from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Random read access to bytes of a fixed length. There is no way to write through it.
pub trait ReadAt {
    /// Fills `buffer` from `offset`, or fails: a short read is `UnexpectedEof`.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// As [`ReadAt::read_exact_at`], for small pieces that lie close together: a source may read
    /// more than it is asked for, and hands out parts of that.
    fn shared_at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; length];
        self.read_exact_at(offset, &mut bytes)?;
        Ok(bytes.into())
    }

    /// Length in bytes; does not change while the source is open.
    fn len(&self) -> u64;

    /// Whether there is nothing to read.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes read at once where reads follow each other.
const AHEAD: usize = 64 * 1024;

/// A file opened for reading only.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    length: u64,
    recent: Mutex<Recent>,
}

/// What was read last.
#[derive(Debug, Default)]
struct Recent {
    offset: u64,
    bytes: Bytes,
}

impl Recent {
    /// The piece, when it was read already.
    fn piece(&self, offset: u64, length: usize) -> Option<Bytes> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        let end = start.checked_add(length)?;
        (end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }

    fn end(&self) -> u64 {
        let length = u64::try_from(self.bytes.len()).unwrap_or(u64::MAX);
        self.offset.saturating_add(length)
    }
}

impl FileSource {
    /// Opens `path` without write access; the length is taken once.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        Ok(Self {
            file,
            length: metadata.len(),
            recent: Mutex::default(),
        })
    }
}

impl ReadAt for FileSource {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn shared_at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(piece) = recent.piece(offset, length) {
            return Ok(piece);
        }
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        // Pages of a scattered file follow no order, and reading ahead would only cost.
        let ahead = if offset == recent.end() { AHEAD } else { 0 };
        let mut bytes = vec![0; ahead.min(left).max(length)];
        self.file.read_exact_at(&mut bytes, offset)?;
        *recent = Recent {
            offset,
            bytes: bytes.into(),
        };
        Ok(recent.bytes.slice(..length))
    }

    fn len(&self) -> u64 {
        self.length
    }
}

impl ReadAt for [u8] {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..))
            .and_then(|rest| rest.get(..buffer.len()))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn len(&self) -> u64 {
        u64::try_from(<[u8]>::len(self)).unwrap_or(u64::MAX)
    }
}

impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_exact_at(offset, buffer)
    }

    fn len(&self) -> u64 {
        ReadAt::len(self.as_slice())
    }
}

impl ReadAt for Bytes {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.as_ref().read_exact_at(offset, buffer)
    }

    fn len(&self) -> u64 {
        ReadAt::len(self.as_ref())
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn shared_at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        (**self).shared_at(offset, length)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_exact_at(offset, buffer)
    }

    fn len(&self) -> u64 {
        (**self).len()
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Box<T> {
    fn shared_at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        (**self).shared_at(offset, length)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_exact_at(offset, buffer)
    }

    fn len(&self) -> u64 {
        (**self).len()
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Arc<T> {
    fn shared_at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        (**self).shared_at(offset, length)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_exact_at(offset, buffer)
    }

    fn len(&self) -> u64 {
        (**self).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_same_bytes_in_whatever_order_they_are_asked_for() {
        let bytes: Vec<u8> = (0..300_000_u32)
            .map(|n| u8::try_from(n * 7 % 251).unwrap())
            .collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, &bytes).unwrap();
        let source = FileSource::open(&path).unwrap();
        let ascending = (0..290_000).step_by(4096);
        let scattered = (0..100).map(|n| n * 7919 * 31 % 290_000);
        for start in ascending.chain(scattered).chain([299_999, 299_000]) {
            let length = 4096.min(bytes.len() - start);
            let piece = source
                .shared_at(u64::try_from(start).unwrap(), length)
                .unwrap();
            assert_eq!(piece, bytes[start..start + length], "from {start}");
        }
        assert!(source.shared_at(299_990, 11).is_err());
    }
}
