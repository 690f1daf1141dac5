//! Object locks in step with retention: what it keeps stays locked, what it lets go is locked no
//! longer than it already was.

use chrono::{DateTime, Utc};
use holdfast_policies::SnapshotId;
use serde::Serialize;

use crate::error::Result;
use crate::vault::{Backup, Catalog, Folder, ReadWrite, Vault, layout};

/// What was done about locks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Locked {
    /// Backups whose lock was set or extended, and until when they are locked now.
    pub extended: Vec<(SnapshotId, DateTime<Utc>)>,
    /// Backups for which that was not possible, with the reason.
    pub refused: Vec<(SnapshotId, String)>,
}

/// Sets and extends the locks of every backup that is offered, where the vault has object lock.
/// Those in the trash keep the lock they have. `now`: the vault's clock.
pub async fn keep_locked(
    vault: &Vault<ReadWrite>,
    catalog: &Catalog,
    now: DateTime<Utc>,
) -> Locked {
    let mut locked = Locked::default();
    let Some(lock) = vault.object_lock() else {
        return locked;
    };
    let until = lock.until(now);
    for backup in &catalog.backups {
        if !lock.is_renewed(backup.locked_until, now) {
            continue;
        }
        match extend(vault, backup, until).await {
            Ok(()) => locked.extended.push((backup.id(), until)),
            Err(error) => locked.refused.push((backup.id(), error.to_string())),
        }
    }
    locked
}

/// The manifest comes last: its lock says that everything else is locked as long.
async fn extend(vault: &Vault<ReadWrite>, backup: &Backup, until: DateTime<Utc>) -> Result<()> {
    let manifest = &backup.manifest;
    let (cluster, id) = (&manifest.cluster, manifest.id);
    for folder in [Folder::Parts, Folder::Envelopes] {
        for listed in vault.list(&folder.of_backup(cluster, id)).await? {
            vault.lock_until(&listed.name, until).await?;
        }
    }
    let manifest = layout::manifest(cluster, manifest.sequence);
    vault.lock_until(&manifest, until).await
}
