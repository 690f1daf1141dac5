//! Parts: fixed cuts of a snapshot's bytes, each compressed, sealed and digested on its own.
//!
//! Cutting by offset lets capture and restore use every core and retry one part instead of the
//! whole. A part is bound to its place by the manifest alone: number, sizes and both digests.

use std::io::{Read as _, Write as _};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::seal::{AGE_OVERHEAD_MAX, PartKey};

/// Plain bytes in every part but the last, unless a manifest says otherwise.
pub const PART_BYTES: usize = 32 * 1024 * 1024;

/// Least plain bytes in a part that is not the last; part sizes are multiples of it.
pub const PART_BYTES_UNIT: usize = 64 * 1024;

/// Most plain bytes in a part.
pub const PART_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most parts in one backup: 2 TiB of plain bytes.
pub const PARTS_MAX: usize = 65_536;

/// The zstd level. Level 1 is faster than the level below and packs pod-like data better than 3.
const ZSTD_LEVEL: i32 = 1;

/// Largest zstd window accepted when opening, as a power of two.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// What the manifest says of one part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRecord {
    /// Bytes before compression.
    pub plain_bytes: u64,
    /// Digest of them.
    pub plain_digest: Digest,
    /// Bytes of the object in the vault.
    pub stored_bytes: u64,
    /// Digest of them.
    pub stored_digest: Digest,
}

/// A part ready to be stored.
#[derive(Debug, Clone)]
pub(crate) struct SealedPart {
    pub(crate) record: PartRecord,
    pub(crate) stored: Bytes,
}

/// Largest object a part of `plain` bytes may become, in bytes.
pub fn stored_bytes_max(plain: u64) -> u64 {
    let overhead = u64::try_from(AGE_OVERHEAD_MAX).unwrap_or(u64::MAX);
    plain.saturating_add(plain / 64).saturating_add(overhead)
}

/// Compresses, seals and digests one part.
pub(crate) fn seal_part(plain: &[u8], key: &PartKey) -> Result<SealedPart> {
    let failed = |error: std::io::Error| Error::Seal {
        reason: error.to_string(),
    };
    let stored = key.seal_with(plain.len() / 4, |output| {
        let mut encoder = zstd::Encoder::new(output, ZSTD_LEVEL).map_err(failed)?;
        encoder
            .set_pledged_src_size(u64::try_from(plain.len()).ok())
            .map_err(failed)?;
        encoder.include_contentsize(true).map_err(failed)?;
        encoder.write_all(plain).map_err(failed)?;
        encoder.finish().map_err(failed)?;
        Ok(())
    })?;
    let record = PartRecord {
        plain_bytes: length(plain),
        plain_digest: Digest::of(plain),
        stored_bytes: length(&stored),
        stored_digest: Digest::of(&stored),
    };
    Ok(SealedPart {
        record,
        stored: stored.into(),
    })
}

/// Checks size and digest of a stored part. Needs no identity.
pub(crate) fn check_stored(object: &str, stored: &[u8], record: &PartRecord) -> Result<()> {
    let actual = length(stored);
    if actual != record.stored_bytes {
        return Err(Error::SizeMismatch {
            object: object.to_owned(),
            expected: record.stored_bytes,
            actual,
        });
    }
    let actual = Digest::of(stored);
    if actual != record.stored_digest {
        return Err(Error::DigestMismatch {
            object: object.to_owned(),
            expected: record.stored_digest,
            actual,
        });
    }
    Ok(())
}

/// Opens a stored part. The bytes returned have the manifest's size and digest.
pub(crate) fn open_part(
    object: &str,
    stored: &[u8],
    record: &PartRecord,
    key: &PartKey,
) -> Result<Vec<u8>> {
    check_stored(object, stored, record)?;
    let packed = key.open(object, stored)?;
    let plain = decompress(object, &packed, record.plain_bytes)?;
    let actual = Digest::of(&plain);
    if actual != record.plain_digest {
        return Err(Error::DigestMismatch {
            object: format!("{object} (opened)"),
            expected: record.plain_digest,
            actual,
        });
    }
    Ok(plain)
}

/// Decompresses exactly `expected` bytes; one more is an error, and so is anything after them.
fn decompress(object: &str, packed: &[u8], expected: u64) -> Result<Vec<u8>> {
    let malformed = |error: std::io::Error| Error::malformed(object, format!("zstd: {error}"));
    let limit = u64::try_from(PART_BYTES_MAX).unwrap_or(u64::MAX);
    if expected > limit {
        return Err(Error::TooLarge {
            object: object.to_owned(),
            limit,
        });
    }
    let mut decoder = zstd::Decoder::with_buffer(packed)
        .map_err(malformed)?
        .single_frame();
    decoder
        .window_log_max(ZSTD_WINDOW_LOG_MAX)
        .map_err(malformed)?;
    let mut plain = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
    decoder
        .by_ref()
        .take(expected)
        .read_to_end(&mut plain)
        .map_err(malformed)?;
    let mut beyond = [0_u8; 1];
    let more = decoder.read(&mut beyond).map_err(malformed)?;
    if more != 0 || length(&plain) != expected {
        return Err(Error::malformed(
            object,
            "does not decompress to the size in the manifest",
        ));
    }
    if !decoder.finish().is_empty() {
        return Err(Error::malformed(object, "has bytes after its end"));
    }
    Ok(plain)
}

/// Whether parts may be cut to this size.
pub fn is_part_size(bytes: u64) -> bool {
    let unit = u64::try_from(PART_BYTES_UNIT).unwrap_or(u64::MAX);
    let limit = u64::try_from(PART_BYTES_MAX).unwrap_or(u64::MAX);
    bytes >= unit && bytes <= limit && bytes.is_multiple_of(unit)
}

/// A length as the formats write it.
pub(crate) fn length(bytes: &[u8]) -> u64 {
    length_of(bytes.len())
}

/// A count of bytes as the formats write it.
pub(crate) fn length_of(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        (0..200_000_u32)
            .flat_map(|n| (n / 7).to_le_bytes())
            .collect()
    }

    #[test]
    fn a_part_opens_to_the_bytes_it_was_made_of() {
        for key in [PartKey::Clear, PartKey::ephemeral()] {
            for plain in [&b""[..], &b"x"[..], &sample()] {
                let part = seal_part(plain, &key).unwrap();
                assert!(part.record.stored_bytes <= stored_bytes_max(part.record.plain_bytes));
                let opened = open_part("p", &part.stored, &part.record, &key).unwrap();
                assert_eq!(opened, plain);
            }
        }
    }

    #[test]
    fn equal_parts_are_sealed_differently() {
        let key = PartKey::ephemeral();
        let (one, two) = (
            seal_part(b"x", &key).unwrap(),
            seal_part(b"x", &key).unwrap(),
        );
        assert_ne!(one.stored, two.stored);
        assert_eq!(one.record.plain_digest, two.record.plain_digest);
    }

    #[test]
    fn a_part_that_decompresses_to_more_or_less_than_declared_is_refused() {
        let part = seal_part(&sample(), &PartKey::Clear).unwrap();
        for wrong in [
            0,
            1,
            part.record.plain_bytes - 1,
            part.record.plain_bytes + 1,
            u64::MAX,
        ] {
            let record = PartRecord {
                plain_bytes: wrong,
                ..part.record.clone()
            };
            assert!(
                open_part("p", &part.stored, &record, &PartKey::Clear).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn bytes_after_the_frame_are_refused_even_with_a_matching_digest() {
        let part = seal_part(b"hello", &PartKey::Clear).unwrap();
        let mut longer = part.stored.to_vec();
        longer.extend_from_slice(&part.stored);
        let record = PartRecord {
            stored_bytes: length(&longer),
            stored_digest: Digest::of(&longer),
            ..part.record
        };
        let refused = open_part("p", &longer, &record, &PartKey::Clear).unwrap_err();
        assert!(refused.to_string().contains("after its end"), "{refused}");
    }

    #[test]
    fn another_backups_key_opens_nothing() {
        let part = seal_part(b"hello", &PartKey::ephemeral()).unwrap();
        let refused =
            open_part("p", &part.stored, &part.record, &PartKey::ephemeral()).unwrap_err();
        assert!(matches!(refused, Error::Decrypt { .. }), "{refused}");
    }
}
