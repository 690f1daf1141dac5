//! What can be wrong with a bbolt file.

use std::io;

/// Why a file was refused, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source could not be read.
    #[error("cannot read at byte {offset}")]
    Read {
        /// Byte offset in the source.
        offset: u64,
        /// What the source said.
        #[source]
        source: io::Error,
    },
    /// Neither meta page is valid, so nothing else can be found.
    #[error("not a bbolt database: {fault}")]
    NotADatabase {
        /// What is wrong with the first meta page.
        fault: Fault,
    },
    /// One page is wrong.
    #[error("page {page}: {fault}")]
    Page {
        /// The page's id, counted from 0 in units of the page size.
        page: u64,
        /// What is wrong with it.
        fault: Fault,
    },
}

impl Error {
    pub(crate) fn page(page: u64, fault: Fault) -> Self {
        Self::Page { page, fault }
    }

    /// Whether the content is wrong, as opposed to unreadable.
    pub fn is_corrupt(&self) -> bool {
        !matches!(self, Self::Read { .. })
    }
}

/// One reason for refusing a page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The source ends before the page does.
    #[error("the file ends inside it")]
    Truncated,
    /// The meta page does not start with bbolt's magic number.
    #[error("no magic number")]
    Magic,
    /// The format version is not one this reader knows.
    #[error("unknown format version {0}")]
    Version(u32),
    /// The meta page's checksum does not match its content.
    #[error("meta checksum does not match")]
    MetaChecksum,
    /// The page size is not a power of two within the limits.
    #[error("impossible page size {0}")]
    PageSize(u64),
    /// The meta page claims more pages than the file holds.
    #[error("{pages} pages claimed, the file holds {held}")]
    HighWater {
        /// Pages claimed.
        pages: u64,
        /// Whole pages in the file.
        held: u64,
    },
    /// The page id lies outside the file or points to a meta page.
    #[error("no such page, ids go from 2 to below {0}")]
    OutOfBounds(u64),
    /// The header names another page.
    #[error("its header says page {0}")]
    WrongId(u64),
    /// The page has another type than its place asks for.
    #[error("flags {0:#06x} are not a branch or a leaf")]
    WrongType(u16),
    /// The page with its overflow reaches past the end.
    #[error("overflow of {0} pages reaches past the end")]
    Overflow(u32),
    /// One page with its overflow is larger than this reader accepts.
    #[error("{0} bytes in one page, the limit is {max}", max = super::PAGE_BYTES_MAX)]
    TooLarge(u64),
    /// The element table does not fit into the page.
    #[error("{0} elements do not fit")]
    ElementTable(u16),
    /// An element's key or value lies outside the page's data.
    #[error("element {0} points outside the page")]
    ElementBounds(u16),
    /// Unknown flags on a leaf element.
    #[error("element {0} has unknown flags")]
    ElementFlags(u16),
    /// Keys are not strictly ascending.
    #[error("element {0} is not above the key before it")]
    KeyOrder(u16),
    /// A key lies outside the range its parent page gives.
    #[error("element {0} is outside the range of its parent")]
    KeyRange(u16),
    /// A branch page without children.
    #[error("a branch without children")]
    EmptyBranch,
    /// Two paths lead to the page.
    #[error("reached twice")]
    ReachedTwice,
    /// The tree is deeper than any real one.
    #[error("more than {0} levels deep")]
    TooDeep(usize),
    /// A bucket record is too short for its header.
    #[error("element {0} is not a bucket record")]
    BucketRecord(u16),
    /// The freelist names an id twice, a meta page or one past the end.
    #[error("the freelist names page {0}, which cannot be free")]
    FreeId(u64),
    /// The page is reachable and also on the freelist.
    #[error("reachable and free")]
    ReachableAndFree,
    /// The page is neither reachable nor on the freelist.
    #[error("neither reachable nor free")]
    Lost,
    /// The freelist is longer than its page.
    #[error("a freelist of {0} ids does not fit")]
    FreelistLength(u64),
    /// The page where the freelist should be has another type.
    #[error("flags {0:#06x} are not a freelist")]
    NotAFreelist(u16),
}
