//! The store file: redb tables named as etcd's buckets, every row behind its own checksum.
//!
//! What always holds:
//! - a row is verified on each read; a damaged one is an error, never a value;
//! - the position in the raft log, the tallies of all tables and the data change in one
//!   transaction, so a file always says which log entries it holds;
//! - commits per batch are not durable; a checkpoint is, in two phases;
//! - after a failed write the handle refuses everything.

mod file;
mod head;
mod live;
mod record;
mod rows;
mod scope;
mod scrub;
mod storage;
mod tables;
mod view;

pub(crate) use file::Backend;
pub(crate) use head::{HEAD_KEY, Head, MEMBERSHIP_KEY};
pub(crate) use live::LivePages;
pub(crate) use rows::Rows;
pub use scope::{InBackend, in_backend};
pub(crate) use scrub::{Piece, Walk};
pub use storage::OpenStorage;
pub(crate) use storage::{Boxed, Home, open_file};
pub(crate) use tables::Table;
pub(crate) use view::View;
