//! Backups that wait on this host for their vault: taken while it could not be reached, sealed and
//! signed as ever, in a vault of their own in a local folder, and handed over in order when it is
//! back.
//!
//! They take their places in the chain from the host's own ledger, which knows the newest backup.
//! The hand-over is a copy ([`crate::copy`]): it resumes by part, and a backup leaves this host only
//! when its manifest is in the vault. When the room is used up the oldest of them goes, those that are
//! not proven first; a release record goes in its place, so that the chain says why it is missing.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, Level, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::copy::{Copied, copy_cluster};
use crate::error::{Error, Result, Successor};
use crate::key::{Signer, Trust};
use crate::progress::ProgressFn;
use crate::release::{Release, Step};
use crate::vault::{Backup, Catalog, Folder, ReadWrite, Vault, layout};

/// What waits for a vault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Backups.
    pub backups: usize,
    /// Their bytes.
    pub bytes: u64,
    /// When the oldest was begun.
    pub since: Option<DateTime<Utc>>,
    /// Revision of the newest.
    pub revision: Option<i64>,
}

impl Waiting {
    /// What waits, by the catalog of the folder.
    pub fn of(catalog: &Catalog) -> Self {
        let backups = &catalog.backups;
        Self {
            backups: backups.len(),
            bytes: backups.iter().map(stored).sum(),
            since: backups.first().map(|one| one.manifest.started),
            revision: backups.last().map(|one| one.manifest.content.revision),
        }
    }
}

fn stored(backup: &Backup) -> u64 {
    backup.manifest.stored_bytes()
}

/// Which backups make room, so that `expected` bytes more fit into `limit`. The newest stays
/// whatever happens: without it this host would have nothing newer than the vault. Pure.
pub fn plan_room(
    backups: &[(SnapshotId, u64, bool)],
    limit: u64,
    expected: u64,
) -> Result<Vec<SnapshotId>> {
    let mut used: u64 = backups.iter().map(|(_, bytes, _)| *bytes).sum();
    let older = backups.split_last().map_or(&[][..], |(_, older)| older);
    let unproven = older.iter().filter(|(_, _, is_proven)| !is_proven);
    let proven = older.iter().filter(|(_, _, is_proven)| *is_proven);
    let mut gone = Vec::new();
    for (id, bytes, _) in unproven.chain(proven) {
        if used.saturating_add(expected) <= limit {
            break;
        }
        used = used.saturating_sub(*bytes);
        gone.push(*id);
    }
    if used.saturating_add(expected) <= limit {
        return Ok(gone);
    }
    Err(Error::NoRoomToWait { used, limit })
}

/// Makes room for a backup of about `expected` bytes among those that wait. Returns what had to go.
pub async fn make_room(
    folder: &Vault<ReadWrite>,
    catalog: &Catalog,
    (limit, expected): (u64, u64),
    (signer, now): (&Signer, DateTime<Utc>),
) -> Result<Vec<SnapshotId>> {
    let is_proven = |backup: &Backup| backup.level() >= Some(Level::L2);
    let backups: Vec<(SnapshotId, u64, bool)> = catalog
        .backups
        .iter()
        .map(|one| (one.id(), stored(one), is_proven(one)))
        .collect();
    let gone = plan_room(&backups, limit, expected)?;
    for id in &gone {
        let backup = catalog.get(*id)?;
        // No trash: the room is needed now.
        let of = (&catalog.cluster, &backup.link);
        let removing = Release::after(catalog.returned.get(id), of, Step::Removing, now);
        removing.store(folder, signer).await?;
        remove(folder, &catalog.cluster, backup).await?;
    }
    Ok(gone)
}

/// Hands over what waits in `folder`. What has arrived is removed here; a vault that fails leaves
/// the rest for the next time. Whoever took over the source meanwhile is the writer: then nothing is
/// handed over.
pub async fn hand_over(
    folder: &Vault<ReadWrite>,
    vault: &Vault<ReadWrite>,
    cluster: &ClusterName,
    trust: &Trust,
    progress: ProgressFn<'_>,
) -> Result<Copied> {
    let waiting = Catalog::load(folder, cluster, trust, None).await?;
    let there = Catalog::load(vault, cluster, trust, None).await?;
    refuse_replaced(&waiting, &there)?;
    let copied = copy_cluster(folder, vault, cluster, trust, progress).await?;
    let names = vault.list(&Folder::Manifests.of(cluster)).await?;
    let arrived: BTreeSet<_> = names.iter().map(|one| &one.name).collect();
    let refused: BTreeSet<&str> = copied
        .refused
        .iter()
        .map(|one| one.object.as_str())
        .collect();
    for backup in &waiting.backups {
        let name = layout::manifest(cluster, backup.manifest.sequence);
        if arrived.contains(&name) && !refused.contains(name.as_str()) {
            remove(folder, cluster, backup).await?;
        }
    }
    Ok(copied)
}

/// A generation after that of the waiting backups was claimed.
fn refuse_replaced(waiting: &Catalog, there: &Catalog) -> Result<()> {
    let Some(ours) = waiting.newest().map(|one| one.manifest.generation) else {
        return Ok(());
    };
    match &there.claim {
        Some((claim, by)) if claim.generation > ours => Err(Error::Replaced {
            cluster: there.cluster.clone(),
            ours,
            successor: Box::new(Successor {
                generation: claim.generation,
                id: None,
                started: claim.at,
                writer: claim.writer.clone(),
                key: by.fingerprint(),
            }),
        }),
        _ => Ok(()),
    }
}

/// Removes a backup that waits: the manifest first, so that the others are whole at every moment.
async fn remove(folder: &Vault<ReadWrite>, cluster: &ClusterName, backup: &Backup) -> Result<()> {
    let manifest = layout::manifest(cluster, backup.manifest.sequence);
    folder.remove(&manifest).await?;
    for part in [Folder::Parts, Folder::Envelopes, Folder::Proofs] {
        for listed in folder.list(&part.of_backup(cluster, backup.id())).await? {
            folder.remove(&listed.name).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> SnapshotId {
        let random = [n; holdfast_policies::ID_RANDOM_BYTES];
        SnapshotId::new(DateTime::UNIX_EPOCH, random)
    }

    #[test]
    fn the_oldest_unproven_backup_makes_room_first_and_the_newest_never() {
        let backups = [
            (id(1), 10, true),
            (id(2), 10, false),
            (id(3), 10, false),
            (id(4), 10, false),
        ];
        let room = |limit, expected| plan_room(&backups, limit, expected).ok();
        assert_eq!(room(50, 10), Some(vec![]));
        assert_eq!(room(49, 10), Some(vec![id(2)]));
        assert_eq!(room(30, 10), Some(vec![id(2), id(3)]));
        assert_eq!(room(20, 10), Some(vec![id(2), id(3), id(1)]));
        assert_eq!(room(19, 10), None, "the newest stays");
        assert_eq!(plan_room(&[], 0, 1).ok(), None);
        assert_eq!(plan_room(&[], 5, 5).ok(), Some(vec![]));
    }
}
