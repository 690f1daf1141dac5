//! The digest at the end of a snapshot.

use sha2::{Digest as _, Sha256};

use crate::bolt::{DIGEST_LEN, ReadAt};
use crate::error::Error;

/// Pages are multiples of this, so a remainder shows a digest.
const SECTOR: u64 = 512;
const CHUNK: usize = 1 << 20;

/// What the end of a file says about the bytes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trailer {
    /// The digest matches: the file is as the server sent it.
    Valid,
    /// There is none: a file from a data directory, or a snapshot that lost its end.
    Missing,
    /// The digest does not match, or the length is neither that of a database nor of a snapshot.
    Mismatch,
}

/// Reads everything once and compares its SHA-256 digest with the one at the end.
pub fn check_trailer<R: ReadAt + ?Sized>(source: &R) -> Result<Trailer, Error> {
    match source.len() % SECTOR {
        0 => return Ok(Trailer::Missing),
        DIGEST_LEN => {}
        _ => return Ok(Trailer::Mismatch),
    }
    let read = |offset, buffer: &mut [u8]| {
        source
            .read_exact_at(offset, buffer)
            .map_err(|source| Error::Io {
                doing: "read the snapshot",
                source,
            })
    };
    let end = source.len() - DIGEST_LEN;
    let mut digest = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    let mut offset = 0;
    while offset < end {
        let length = usize::try_from(end - offset).map_or(CHUNK, |left| left.min(CHUNK));
        let Some(part) = chunk.get_mut(..length) else {
            break;
        };
        read(offset, part)?;
        digest.update(part);
        offset += u64::try_from(length).unwrap_or(end);
    }
    let mut expected = [0; 32];
    read(end, &mut expected)?;
    Ok(if digest.finalize().as_slice() == expected {
        Trailer::Valid
    } else {
        Trailer::Mismatch
    })
}
