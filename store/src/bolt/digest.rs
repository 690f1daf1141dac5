//! The digest behind a snapshot stream.

use std::io::{self, Write};

use sha2::{Digest as _, Sha256};

/// Bytes of the SHA-256 digest that follows the last page of a snapshot.
pub const DIGEST_LEN: u64 = 32;

/// Passes bytes on and appends their SHA-256 digest at the end, as etcd does with a snapshot.
#[derive(Debug)]
pub struct DigestWriter<W> {
    out: W,
    digest: Sha256,
    written: u64,
}

impl<W: Write> DigestWriter<W> {
    /// Starts with nothing written.
    pub fn new(out: W) -> Self {
        Self {
            out,
            digest: Sha256::new(),
            written: 0,
        }
    }

    /// Bytes passed on so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes the digest and gives the sink back.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&self.digest.finalize())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Write for DigestWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.digest.update(bytes.get(..count).unwrap_or(bytes));
        self.written = self
            .written
            .saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
