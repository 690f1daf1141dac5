//! Carrying out a retention plan.
//!
//! In two steps that are safe to stop anywhere: a signed release record lets a backup go, and from
//! then on it is not offered; after a time of grace, when nobody reads it, the manifest is removed,
//! then parts and what belongs to them. So a backup in the list is whole, a gap in the chain is
//! explained, whoever reads a backup can read it to its end, and a run that was cut short is
//! finished by the next.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use holdfast_policies::{ClusterName, Level, RetentionPlan, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::in_use;
use crate::key::{Signer, Trust};
use crate::ledger::{self, Ledger, RECORDS_KEPT};
use crate::manifest::Link;
use crate::sign::{self, Record};
use crate::vault::{Backup, Catalog, Folder, ReadWrite, Vault, layout};

/// Largest release record read, in bytes.
pub const RELEASE_BYTES_MAX: u64 = 64 * 1024;

/// Version of the format.
pub const RELEASE_VERSION: u64 = 1;

/// The tombstone of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Its cluster.
    pub cluster: ClusterName,
    /// Names its manifest.
    pub link: Link,
    /// When it was let go, by the appliance's clock.
    pub at: DateTime<Utc>,
}

impl Record for Release {
    const FORMAT: &'static str = "holdfast.release";
    const VERSION: u64 = RELEASE_VERSION;
}

/// Who prunes and when.
#[derive(Debug, Clone, Copy)]
pub struct PruneOptions<'a> {
    /// Signs the release records.
    pub signer: &'a Signer,
    /// Whose signatures count when the vault is read again.
    pub trust: &'a Trust,
    /// The appliance's own ledger.
    pub local: Option<&'a Ledger>,
    /// The time to write into the records.
    pub now: DateTime<Utc>,
    /// How long what was let go stays in the vault: a reader that cannot mark what it reads has
    /// that long to finish.
    pub grace: TimeDelta,
}

/// What a prune did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Backups let go now; no longer offered.
    pub released: Vec<SnapshotId>,
    /// Those of them whose bytes were removed at once.
    pub removed: Vec<SnapshotId>,
    /// Backups let go earlier whose bytes were removed now.
    pub finished: Vec<SnapshotId>,
    /// Backups whose bytes stay for now, with the reason; a later prune removes them.
    pub waiting: Vec<(SnapshotId, String)>,
    /// Backups that could not be removed (an object lock, a missing permission), with the reason.
    pub refused: Vec<(SnapshotId, String)>,
}

/// Lets go of what `plan` releases, and removes what was let go long enough ago and is not being
/// read. The vault is read again first: the plan must fit what is there now, and something proven
/// must remain.
pub async fn execute_prune(
    vault: &Vault<ReadWrite>,
    cluster: &ClusterName,
    plan: &RetentionPlan,
    options: PruneOptions<'_>,
) -> Result<Pruned> {
    let catalog = Catalog::load(vault, cluster, options.trust, options.local).await?;
    check(&catalog, plan)?;
    let mut pruned = Pruned::default();
    let earlier = catalog.released.iter().filter(|one| one.is_present);
    let mut gone: Vec<Release> = earlier.map(|one| one.release.clone()).collect();
    for id in &plan.release {
        let backup = catalog.get(*id)?;
        if let Some(reader) = backup.reader(options.now) {
            pruned.waiting.push((*id, format!("in use by a {reader}")));
            continue;
        }
        match release(vault, cluster, backup, options).await {
            Ok(release) => {
                pruned.released.push(*id);
                gone.push(release);
            }
            Err(error) => pruned.refused.push((*id, error.to_string())),
        }
    }
    for release in &gone {
        let id = release.link.id;
        match remove_when_due(vault, release, options).await {
            Ok(None) if pruned.released.contains(&id) => pruned.removed.push(id),
            Ok(None) => pruned.finished.push(id),
            Ok(Some(reason)) => pruned.waiting.push((id, reason)),
            Err(error) => pruned.refused.push((id, error.to_string())),
        }
    }
    sweep_marks(vault, &catalog, options.now).await?;
    sweep_leftovers(vault, &catalog, &pruned).await?;
    prune_ledger(vault, cluster, options.trust).await?;
    Ok(pruned)
}

/// The rules that hold whatever the plan says.
fn check(catalog: &Catalog, plan: &RetentionPlan) -> Result<()> {
    let refuse = |reason: String| Err(Error::Refused { reason });
    let release: BTreeSet<SnapshotId> = plan.release.iter().copied().collect();
    let decided: BTreeSet<SnapshotId> = plan.decisions.iter().map(|one| one.id).collect();
    for id in &release {
        let backup = catalog.get(*id)?;
        if backup.is_pinned {
            return refuse(format!("{id} is pinned"));
        }
    }
    if let Some(unknown) = catalog
        .backups
        .iter()
        .find(|backup| !decided.contains(&backup.id()))
    {
        return refuse(format!(
            "the plan does not know {}; make a new plan",
            unknown.id()
        ));
    }
    if release.is_empty() {
        return Ok(());
    }
    let sound = |backup: &&Backup| !backup.is_damaged();
    let best = catalog
        .backups
        .iter()
        .filter(sound)
        .map(|one| one.level().min(Some(Level::L3)))
        .max();
    let Some(best) = best.flatten() else {
        return refuse("no sound backup is in the vault".to_owned());
    };
    let remaining = catalog
        .backups
        .iter()
        .filter(sound)
        .filter(|one| !release.contains(&one.id()));
    if remaining
        .map(|one| one.level().min(Some(Level::L3)))
        .max()
        .flatten()
        < Some(best)
    {
        return refuse(format!(
            "the plan would remove the last backup proven to {best}"
        ));
    }
    Ok(())
}

/// Lets a backup go. Nobody who comes later reads it.
async fn release(
    vault: &Vault<ReadWrite>,
    cluster: &ClusterName,
    backup: &Backup,
    options: PruneOptions<'_>,
) -> Result<Release> {
    let record = Release {
        cluster: cluster.clone(),
        link: backup.link.clone(),
        at: options.now,
    };
    let name = layout::release(cluster, backup.id());
    vault
        .put_new(&name, sign::sign(&record, options.signer)?)
        .await?;
    Ok(record)
}

/// Removes what was let go; says why it has to wait otherwise. Marks are looked for after the
/// release is stored, so none can be overlooked.
async fn remove_when_due(
    vault: &Vault<ReadWrite>,
    release: &Release,
    options: PruneOptions<'_>,
) -> Result<Option<String>> {
    let due = release.at + options.grace;
    if due > options.now {
        return Ok(Some(format!("let go, removed after {due}")));
    }
    let id = release.link.id;
    if let Some(reader) = in_use::reader_now(vault, &release.cluster, id, options.now).await? {
        return Ok(Some(format!("let go, still in use by a {reader}")));
    }
    remove(vault, &release.cluster, &release.link).await?;
    Ok(None)
}

/// Marks that no longer count.
async fn sweep_marks(
    vault: &Vault<ReadWrite>,
    catalog: &Catalog,
    now: DateTime<Utc>,
) -> Result<()> {
    let marks = catalog.backups.iter().flat_map(|backup| &backup.uses);
    for mark in marks.filter(|mark| !in_use::is_live(mark, now)) {
        vault.remove(&mark.name).await?;
    }
    Ok(())
}

/// Manifest first: from then on the backup is not there.
async fn remove(vault: &Vault<ReadWrite>, cluster: &ClusterName, link: &Link) -> Result<()> {
    vault
        .remove(&layout::manifest(cluster, link.sequence))
        .await?;
    remove_belongings(vault, cluster, link.id).await
}

async fn remove_belongings(
    vault: &Vault<ReadWrite>,
    cluster: &ClusterName,
    id: SnapshotId,
) -> Result<()> {
    for folder in [
        Folder::Parts,
        Folder::Envelopes,
        Folder::Proofs,
        Folder::Pins,
        Folder::Uses,
    ] {
        for listed in vault.list(&folder.of_backup(cluster, id)).await? {
            vault.remove(&listed.name).await?;
        }
    }
    Ok(())
}

/// Parts of released backups that an earlier run left behind its manifest's removal. Those of
/// backups whose manifest is there are not among the orphans.
async fn sweep_leftovers(
    vault: &Vault<ReadWrite>,
    catalog: &Catalog,
    pruned: &Pruned,
) -> Result<()> {
    let gone: BTreeSet<String> = catalog
        .released
        .iter()
        .map(|one| one.release.link.id.to_string())
        .collect();
    let refused: BTreeSet<String> = pruned
        .refused
        .iter()
        .map(|(id, _)| id.to_string())
        .collect();
    for orphan in &catalog.orphans {
        let folder = orphan.name.folder_name();
        if gone.contains(folder) && !refused.contains(folder) {
            vault.remove(&orphan.name).await?;
        }
    }
    Ok(())
}

/// The records that count and are highest stay; what cannot be believed is left for people to see.
async fn prune_ledger(
    vault: &Vault<ReadWrite>,
    cluster: &ClusterName,
    trust: &Trust,
) -> Result<()> {
    let (mut records, _flaws) = ledger::read_records(vault, cluster, trust).await?;
    let newest_head = records
        .iter()
        .filter_map(|(_, seen)| seen.head.as_ref())
        .map(|head| head.sequence)
        .max();
    records.sort_by_key(|(_, seen)| std::cmp::Reverse(seen.revision));
    for (name, seen) in records.into_iter().skip(RECORDS_KEPT) {
        let holds_head = seen.head.as_ref().map(|head| head.sequence) == newest_head;
        if !(holds_head && newest_head.is_some()) {
            vault.remove(&name).await?;
        }
    }
    Ok(())
}

/// Removes parts that belong to no backup and were stored before `older_than`, by the vault's
/// clock: a run in progress is younger. Returns how many were removed.
///
/// Refuses while any manifest cannot be believed: its parts look like nobody's, and it may only be
/// that the right key is missing here.
pub async fn sweep_orphans(
    vault: &Vault<ReadWrite>,
    catalog: &Catalog,
    older_than: DateTime<Utc>,
) -> Result<usize> {
    if let Some(place) = catalog.chain.unsound().next() {
        let object = layout::manifest(&catalog.cluster, place);
        return Err(Error::HistoryDamaged {
            reason: format!("{object} cannot be believed"),
        });
    }
    let mut removed = 0;
    for orphan in catalog
        .orphans
        .iter()
        .filter(|orphan| orphan.modified < older_than)
    {
        vault.remove(&orphan.name).await?;
        removed += 1;
    }
    Ok(removed)
}
