//! Constants and the meta page of bbolt's format.

use super::error::{Error, Fault};
use super::source::ReadAt;

/// The version of bbolt's format that is read and written.
pub const VERSION: u32 = 2;
/// The page size etcd uses on common machines, and the one written unless told otherwise.
pub const DEFAULT_PAGE_SIZE: u32 = 4096;
/// The smallest page size that is read or written, in bytes.
pub const PAGE_SIZE_MIN: u32 = 512;
/// The largest page size that is read or written, in bytes.
pub const PAGE_SIZE_MAX: u32 = 1 << 20;
/// The largest page with its overflow, in bytes. etcd stores one value per element and refuses
/// requests over 1.5 MiB unless told otherwise.
pub const PAGE_BYTES_MAX: u64 = 256 << 20;

pub(crate) const MAGIC: u32 = 0xED0C_DAED;
pub(crate) const HEADER_LEN: usize = 16;
pub(crate) const ELEMENT_LEN: usize = 16;
pub(crate) const BUCKET_LEN: usize = 16;
pub(crate) const META_LEN: usize = 64;
const META_SUMMED: usize = 56;
/// The freelist id of a file that stores no freelist.
pub(crate) const NO_FREELIST: u64 = u64::MAX;

pub(crate) const FLAG_BRANCH: u16 = 0x01;
pub(crate) const FLAG_LEAF: u16 = 0x02;
pub(crate) const FLAG_META: u16 = 0x04;
pub(crate) const FLAG_FREELIST: u16 = 0x10;
/// The flag of a leaf element whose value is a bucket.
pub(crate) const ELEMENT_BUCKET: u32 = 0x01;

/// Levels of one tree, or of nested ones together: a file of 2^64 pages with two children a page
/// has 64, and etcd nests nothing.
pub(crate) const DEPTH_MAX: usize = 64;

/// What a valid meta page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) page_size: u32,
    pub(crate) root: u64,
    pub(crate) sequence: u64,
    pub(crate) freelist: u64,
    /// One more than the highest page id in use.
    pub(crate) pages: u64,
    pub(crate) txid: u64,
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// FNV-1a with 64 bits, the checksum of a meta page.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Meta {
    /// Decodes the bytes after a meta page's header.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let summed = bytes.get(..META_SUMMED).ok_or(Fault::Truncated)?;
        let field = |at| u64_at(bytes, at).ok_or(Fault::Truncated);
        let half = |at| u32_at(bytes, at).ok_or(Fault::Truncated);
        if half(0)? != MAGIC {
            return Err(Fault::Magic);
        }
        if half(4)? != VERSION {
            return Err(Fault::Version(half(4)?));
        }
        if field(META_SUMMED)? != fnv1a(summed) {
            return Err(Fault::MetaChecksum);
        }
        let page_size = half(8)?;
        if !page_size.is_power_of_two() || !(PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&page_size) {
            return Err(Fault::PageSize(u64::from(page_size)));
        }
        Ok(Self {
            page_size,
            root: field(16)?,
            sequence: field(24)?,
            freelist: field(32)?,
            pages: field(40)?,
            txid: field(48)?,
        })
    }

    /// The whole meta page without padding: header and content.
    pub(crate) fn encode(&self, id: u64) -> [u8; HEADER_LEN + META_LEN] {
        let mut bytes = Vec::with_capacity(HEADER_LEN + META_LEN);
        bytes.extend_from_slice(&header(id, FLAG_META, 0, 0));
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.page_size.to_le_bytes());
        bytes.extend_from_slice(&0_u32.to_le_bytes());
        for field in [
            self.root,
            self.sequence,
            self.freelist,
            self.pages,
            self.txid,
        ] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let sum = fnv1a(bytes.get(HEADER_LEN..).unwrap_or_default());
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
            .first_chunk()
            .copied()
            .expect("the fields above add up to the array's length")
    }

    /// Reads the meta page at `offset`; `id` is the page it must say it is.
    fn read<R: ReadAt>(source: &R, offset: u64, id: u64) -> Result<Result<Self, Fault>, Error> {
        let mut bytes = [0; HEADER_LEN + META_LEN];
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if offset
            .checked_add(length)
            .is_none_or(|end| end > source.len())
        {
            return Ok(Err(Fault::Truncated));
        }
        source
            .read_exact_at(offset, &mut bytes)
            .map_err(|error| Error::Read {
                offset,
                source: error,
            })?;
        let (head, body) = bytes.split_at(HEADER_LEN);
        if u64_at(head, 0) != Some(id) {
            return Ok(Err(Fault::WrongId(u64_at(head, 0).unwrap_or_default())));
        }
        match u16_at(head, 8) {
            Some(FLAG_META) => Ok(Self::decode(body)),
            flags => Ok(Err(Fault::WrongType(flags.unwrap_or_default()))),
        }
    }

    /// Finds the newer valid meta page, and says whether the other one is valid too.
    pub(crate) fn find<R: ReadAt>(source: &R) -> Result<(Self, Option<Error>), Error> {
        let first = Self::read(source, 0, 0)?;
        let second = match &first {
            Ok(meta) => Self::read(source, u64::from(meta.page_size), 1)?,
            Err(_) => Self::search_second(source)?,
        };
        match (first, second) {
            (Ok(first), Ok(second)) if second.page_size == first.page_size => Ok((
                if second.txid > first.txid {
                    second
                } else {
                    first
                },
                None,
            )),
            (Ok(first), Ok(second)) => {
                let fault = Fault::PageSize(u64::from(second.page_size));
                Ok((first, Some(Error::page(1, fault))))
            }
            (Ok(first), Err(fault)) => Ok((first, Some(Error::page(1, fault)))),
            (Err(fault), Ok(second)) => Ok((second, Some(Error::page(0, fault)))),
            (Err(fault), Err(_)) => Err(Error::NotADatabase { fault }),
        }
    }

    /// Looks for page 1 at every page size, for a file whose page 0 is damaged.
    fn search_second<R: ReadAt>(source: &R) -> Result<Result<Self, Fault>, Error> {
        let mut size = PAGE_SIZE_MIN;
        while size <= PAGE_SIZE_MAX {
            if let Ok(meta) = Self::read(source, u64::from(size), 1)?
                && meta.page_size == size
            {
                return Ok(Ok(meta));
            }
            size *= 2;
        }
        Ok(Err(Fault::Magic))
    }
}

/// A page header.
pub(crate) fn header(id: u64, flags: u16, count: u16, overflow: u32) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    for (slot, byte) in bytes.iter_mut().zip(
        id.to_le_bytes()
            .into_iter()
            .chain(flags.to_le_bytes())
            .chain(count.to_le_bytes())
            .chain(overflow.to_le_bytes()),
    ) {
        *slot = byte;
    }
    bytes
}
