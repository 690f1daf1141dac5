//! Many versions of each key: the index in memory, the rows in the `key` table.
//!
//! Pure: no clock, no randomness, no iteration over hash maps; the same entries in the same order
//! give the same state on every member.

mod revision;

pub use revision::{Revision, RowKey};
