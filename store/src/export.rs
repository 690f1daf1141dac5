//! A consistent view of the whole state, for a snapshot in etcd's file format.

use std::io;

use crate::error::Error;

/// One state, held while it is written out. Holding it for long makes the store file grow under
/// writes.
#[derive(Debug)]
pub struct Export {
    revision: i64,
}

#[expect(
    clippy::todo,
    clippy::unused_self,
    reason = "signatures first; bodies follow in hours"
)]
impl Export {
    /// The revision of the state.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Reads everything once to learn the exact size of the file, in bytes.
    pub fn measure(&mut self) -> Result<u64, Error> {
        todo!()
    }

    /// Writes the database file, byte-identical for the same state; without the digest that
    /// `etcdctl snapshot save` files end in. Measures first if that was not done.
    pub fn write_to(&mut self, _sink: &mut dyn io::Write) -> Result<u64, Error> {
        todo!()
    }
}
