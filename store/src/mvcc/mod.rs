//! Many versions of each key: the index in memory, the rows in the `key` table.
//!
//! Pure: no clock, no randomness, no iteration over hash maps; the same entries in the same order
//! give the same state on every member.

mod hash;
mod revision;

pub use hash::{Keep, KvHasher};
pub use revision::{Revision, RowKey};
