//! The decoded content of a backup, for whoever compares something with it.

use holdfast_store::bolt::ReadAt;
use holdfast_store::etcd_file::EtcdFile;

use crate::spool::SpoolReader;

/// The snapshot a backup was made from: every part verified, in a sealed spool that is removed when
/// this is dropped.
#[derive(Debug)]
pub struct Content {
    pub(crate) file: EtcdFile<SpoolReader>,
    pub(crate) trailer: Result<(), String>,
}

impl Content {
    /// What it holds.
    pub fn file(&self) -> &EtcdFile<impl ReadAt + use<>> {
        &self.file
    }

    /// Whether its bytes end in the digest of all before it.
    pub fn is_trailer_valid(&self) -> bool {
        self.trailer.is_ok()
    }
}
