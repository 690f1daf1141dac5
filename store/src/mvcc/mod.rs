//! Many versions of each key: the index in memory, the rows in the `key` table.
//!
//! Pure: no clock, no randomness, no iteration over hash maps; the same entries in the same order
//! give the same state on every member.

mod blocks;
mod compaction;
mod hash;
mod index;
mod key_index;
mod load;
mod read;
mod revision;
pub(crate) mod txn;
mod write;

pub(crate) use compaction::{Compaction, Step, hash_at};
pub use hash::{Keep, KvHasher};
pub(crate) use index::Index;
pub(crate) use load::load;
pub(crate) use read::{Count, Horizon, key_value, range};
pub use revision::{Revision, RowKey};
pub(crate) use write::Writer;
