//! etcd's file format (bbolt), both ways.
//!
//! [`Bolt`] reads any file that etcd 3.4 to 3.7 wrote: a snapshot (`snapshot.db`) or a member's
//! `member/snap/db`. The input is untrusted: nothing here panics on it, follows a page twice or
//! reads past its limits, and every error names the page and the reason. It is only ever read.
//!
//! [`Writer`] writes such a file from sorted input in one pass, after [`Measure`] has seen the
//! lengths: no fragmentation, bounded memory, equal bytes for equal input.
//!
//! The bytes are described in `docs/formats/etcd-snapshot.md`.

mod check;
mod cursor;
mod digest;
mod error;
mod format;
mod page;
mod reader;
mod source;
mod tree;
mod visited;
mod writer;

pub use check::{PROBLEMS_MAX, Report};
pub use cursor::{Cursor, Entry, EntryRef, Iter};
pub use digest::{DIGEST_LEN, DigestWriter};
pub use error::{Error, Fault};
pub use format::{DEFAULT_PAGE_SIZE, PAGE_BYTES_MAX, PAGE_SIZE_MAX, PAGE_SIZE_MIN, VERSION};
pub use reader::{Bolt, Bucket};
pub use source::{FileSource, ReadAt};
pub use writer::{Measure, Plan, WriteError, Writer};
