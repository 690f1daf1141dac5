//! Backups that were let go, as a catalog has them.

use chrono::{DateTime, Utc};
use holdfast_policies::SnapshotId;

use super::catalog::{Backup, Catalog};
use crate::error::{Error, Result};
use crate::release::Release;

/// A backup that retention let go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// The last step on its way out.
    pub release: Release,
    /// When the vault stored that, by the vault's own clock.
    pub stored: DateTime<Utc>,
    /// Its manifest is still there: the removal has not come to its end.
    pub is_present: bool,
}

/// A backup in the trash: whole, not offered, and can be brought back until its time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trashed {
    /// The backup.
    pub backup: Backup,
    /// The record that put it there.
    pub release: Release,
    /// When the vault stored that, by the vault's own clock.
    pub stored: DateTime<Utc>,
}

impl Catalog {
    /// The same, for whoever names one and means it: also in the trash.
    pub fn get_named(&self, id: SnapshotId) -> Result<&Backup> {
        match self.trash.iter().find(|one| one.backup.id() == id) {
            Some(trashed) => Ok(&trashed.backup),
            None => self.get(id),
        }
    }

    /// The backup with this id in the trash.
    pub fn trashed(&self, id: SnapshotId) -> Result<&Trashed> {
        let found = self.trash.iter().find(|one| one.backup.id() == id);
        found.ok_or_else(|| {
            let released = self.released.iter().find(|one| one.release.link.id == id);
            let reason = match released {
                Some(_) => format!("{id} of {} was removed", self.cluster),
                None => format!("{id} of {} is not in the trash", self.cluster),
            };
            Error::NothingToRestore { reason }
        })
    }

    pub(super) fn no_backup(&self, id: SnapshotId) -> Error {
        let (cluster, mut gone) = (&self.cluster, self.released.iter());
        let what = match gone.find(|one| one.release.link.id == id) {
            Some(one) if one.release.is_trashed() => " outside the trash",
            Some(_) => ": it was removed by retention",
            None => "",
        };
        let reason = format!("no backup {id} of {cluster}{what}");
        Error::NothingToRestore { reason }
    }
}
