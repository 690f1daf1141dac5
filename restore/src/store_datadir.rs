//! Writing a data directory that our store starts from.

use std::path::Path;

use holdfast_store::Error as StoreError;
use holdfast_store::bolt::ReadAt;
use holdfast_store::datadir::bootstrap::{Changes, NewCluster, WrittenDir, write_data_dir};
use holdfast_store::etcd_file::EtcdFile;

use crate::error::{Error, Result};
use crate::inspect;
use crate::staging::Staging;

/// The directory in the staging folder.
const MEMBER: &str = "member";

/// Writes the directory of one member of a new cluster: built beside the target, which must not
/// exist, synced and renamed at the end. The source is not checked here: do that first.
pub fn write_store_datadir<R: ReadAt>(
    target: &Path,
    source: &EtcdFile<R>,
    cluster: &NewCluster,
    changes: Changes,
) -> Result<WrittenDir> {
    let staging = Staging::create(target)?;
    let written = build(&staging.path().join(MEMBER), source, cluster, changes)?;
    staging.publish_only(MEMBER)?;
    Ok(written)
}

/// As [`write_store_datadir`], at `folder`, in a staging folder of the caller's.
pub(crate) fn build<R: ReadAt>(
    folder: &Path,
    source: &EtcdFile<R>,
    cluster: &NewCluster,
    changes: Changes,
) -> Result<WrittenDir> {
    write_data_dir(folder, source, cluster, changes).map_err(|error| unwritten(error, folder))
}

/// What the store says of a directory it could not write: the disk's fault, or the content's.
fn unwritten(error: StoreError, folder: &Path) -> Error {
    match error {
        StoreError::Io { source, .. } => Error::io("write", folder)(source),
        error => inspect::unreadable(&error),
    }
}
