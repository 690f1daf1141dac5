//! Carrying out a retention plan.
//!
//! In two steps that are safe to stop anywhere: a signed record puts a backup into the trash, and
//! from then on it is not offered; after a time of grace, when nobody reads it, a second record
//! says that its removal begins, the manifest is removed, then what belongs to it and its parts.
//! So a backup in the list is whole and one in the trash too, a gap in the chain is explained,
//! whoever reads a backup can read it to its end, and a run that was cut short is finished by the
//! next.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use holdfast_policies::retention::{self, Removal, TrashFact, best_level, needed_by};
use holdfast_policies::{BackupFact, ClusterName, RetentionPlan, SnapshotId, Verdict};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::in_use;
use crate::key::{Signer, Trust};
use crate::ledger::{self, Ledger, RECORDS_KEPT};
use crate::release::{Release, Step};
use crate::vault::{Catalog, Folder, ReadWrite, Trashed, Vault, layout};

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
    /// The vault's own clock at the same time: nothing goes before its time is over by that too.
    pub vault_now: Option<DateTime<Utc>>,
    /// How long what is let go stays in the trash. With nothing it is removed at once: it cannot
    /// be brought back, and a reader that cannot mark what it reads may lose it.
    pub trash_grace: TimeDelta,
}

/// What a prune did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Backups put into the trash now; no longer offered.
    pub trashed: Vec<SnapshotId>,
    /// Backups whose bytes were removed now.
    pub removed: Vec<SnapshotId>,
    /// Backups in the trash, and until when they can be brought back for certain.
    pub waiting: Vec<(SnapshotId, DateTime<Utc>)>,
    /// Backups whose time in the trash is over and that an object lock holds until then.
    pub deferred: Vec<(SnapshotId, DateTime<Utc>)>,
    /// Backups that would go and are held back for now, with the reason.
    pub held: Vec<(SnapshotId, String)>,
    /// Backups that could not be let go or removed (a missing permission), with the reason.
    pub refused: Vec<(SnapshotId, String)>,
    /// What else could not be removed, marks and old ledger records, with the reason.
    pub left: Vec<String>,
}

/// Decides what becomes of each backup in the trash by our clock and the vault's. Pure. `grace` is
/// for those that were let go by version 1 of the format, which does not say until when.
pub fn removals(
    catalog: &Catalog,
    (now, vault_now): (DateTime<Utc>, Option<DateTime<Utc>>),
    grace: TimeDelta,
) -> Vec<(SnapshotId, Removal)> {
    let fact = |one: &Trashed| TrashFact {
        backup: one.backup.fact(now),
        at: one.release.at,
        until: one.release.until(grace),
        stored: one.stored,
        locked_until: one.backup.locked_until,
    };
    let trash: Vec<TrashFact> = catalog.trash.iter().map(fact).collect();
    retention::removals(&catalog.facts(now), &trash, (now, vault_now))
}

/// Puts what `plan` releases into the trash, and removes what was there long enough and is not
/// being read. The vault is read again first: the plan must fit what is there now, and something
/// proven must remain.
pub async fn execute_prune(
    vault: &Vault<ReadWrite>,
    cluster: &ClusterName,
    plan: &RetentionPlan,
    options: PruneOptions<'_>,
) -> Result<Pruned> {
    let mut catalog = Catalog::load(vault, cluster, options.trust, options.local).await?;
    check(&catalog, plan, options.now)?;
    let mut pruned = Pruned::default();
    for id in &plan.release {
        if let Some(why) = obstacle(&catalog, *id, options.now)? {
            pruned.held.push((*id, why));
            continue;
        }
        match to_trash(vault, &mut catalog, (*id, plan), options).await {
            Ok(()) => pruned.trashed.push(*id),
            Err(error) => pruned.refused.push((*id, error.to_string())),
        }
    }
    let clocks = (options.now, options.vault_now);
    let decided = removals(&catalog, clocks, options.trash_grace);
    for (id, removal) in decided {
        match removal {
            Removal::Waits(until) => pruned.waiting.push((id, until)),
            Removal::Locked(until) => pruned.deferred.push((id, until)),
            Removal::Held(why) => pruned.held.push((id, why)),
            Removal::Due => {
                let ended = match begin_removal(vault, &catalog, id, options).await {
                    Ok(Some(release)) => end_removal(vault, &release, options).await,
                    Ok(None) => Ok(Some("somebody else decided about it just now".to_owned())),
                    Err(error) => Err(error),
                };
                pruned.note(id, ended);
            }
        }
    }
    // Those whose removal was begun by a run before.
    for one in catalog.released.iter().filter(|one| one.is_present) {
        if one.release.step == Step::Removing {
            let ended = end_removal(vault, &one.release, options).await;
            pruned.note(one.release.link.id, ended);
        }
    }
    sweep_leftovers(vault, &catalog, &mut pruned).await;
    let swept = [
        sweep_marks(vault, &catalog, options.now).await,
        prune_ledger(vault, cluster, options.trust).await,
    ];
    let failed = swept.into_iter().filter_map(Result::err);
    pruned.left.extend(failed.map(|error| error.to_string()));
    Ok(pruned)
}

impl Pruned {
    /// How a removal ended: done, held back, or not possible.
    fn note(&mut self, id: SnapshotId, ended: Result<Option<String>>) {
        match ended {
            Ok(None) => self.removed.push(id),
            Ok(Some(why)) => self.held.push((id, why)),
            Err(error) => self.refused.push((id, error.to_string())),
        }
    }
}

/// The rules that hold whatever the plan says.
fn check(catalog: &Catalog, plan: &RetentionPlan, now: DateTime<Utc>) -> Result<()> {
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
    let facts = catalog.facts(now);
    let Some(best) = best_level(&facts) else {
        return refuse("no sound backup is in the vault".to_owned());
    };
    let stay: Vec<BackupFact> = facts
        .into_iter()
        .filter(|one| !release.contains(&one.id))
        .collect();
    if best_level(&stay) < Some(best) {
        return refuse(format!(
            "the plan would remove the last backup proven to {best}"
        ));
    }
    Ok(())
}

/// Why a backup that the plan lets go stays for now: a reader came, or what needs it is there.
fn obstacle(catalog: &Catalog, id: SnapshotId, now: DateTime<Utc>) -> Result<Option<String>> {
    if let Some(reader) = catalog.get(id)?.reader(now) {
        return Ok(Some(format!("in use by a {reader}")));
    }
    let dependent = needed_by(&catalog.facts(now), id);
    Ok(dependent.map(|other| format!("needed by {other}")))
}

/// Puts a backup into the trash, in the vault and in what is known of it.
async fn to_trash(
    vault: &Vault<ReadWrite>,
    catalog: &mut Catalog,
    (id, plan): (SnapshotId, &RetentionPlan),
    options: PruneOptions<'_>,
) -> Result<()> {
    let backup = catalog.get(id)?.clone();
    let step = Step::Trashed {
        why: why(plan, id),
        until: options.now + options.trash_grace,
    };
    let of = (&catalog.cluster, &backup.link);
    let release = Release::after(catalog.returned.get(&id), of, step, options.now);
    release.store(vault, options.signer).await?;
    catalog.backups.retain(|one| one.id() != id);
    catalog.trash.push(Trashed {
        backup,
        release,
        stored: options.vault_now.unwrap_or(options.now),
    });
    Ok(())
}

/// Why the plan lets a backup go, in words.
fn why(plan: &RetentionPlan, id: SnapshotId) -> String {
    let decision = plan.decisions.iter().find(|decision| decision.id == id);
    match decision.map(|decision| &decision.verdict) {
        Some(Verdict::Release(reason)) => reason.to_string(),
        _ => String::new(),
    }
}

/// From here on it cannot be brought back. `None`: somebody else brought it back, or removes it.
async fn begin_removal(
    vault: &Vault<ReadWrite>,
    catalog: &Catalog,
    id: SnapshotId,
    options: PruneOptions<'_>,
) -> Result<Option<Release>> {
    let Trashed { release, .. } = catalog.trashed(id)?;
    let of = (&catalog.cluster, &release.link);
    let removing = Release::after(Some(release), of, Step::Removing, options.now);
    match removing.store(vault, options.signer).await {
        Ok(()) => Ok(Some(removing)),
        Err(Error::ObjectExists { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a backup; says why it has to wait otherwise. Marks are looked for after the beginning
/// was recorded, so none can be overlooked.
async fn end_removal(
    vault: &Vault<ReadWrite>,
    release: &Release,
    options: PruneOptions<'_>,
) -> Result<Option<String>> {
    let (cluster, id) = (&release.cluster, release.link.id);
    if let Some(reader) = in_use::reader_now(vault, cluster, id, options.now).await? {
        return Ok(Some(format!("still in use by a {reader}")));
    }
    // Manifest first: from then on the backup is not there. Parts last: what a run that is cut
    // short leaves is found by them.
    let manifest = layout::manifest(cluster, release.link.sequence);
    vault.remove(&manifest).await?;
    for folder in [
        Folder::Envelopes,
        Folder::Proofs,
        Folder::Pins,
        Folder::Uses,
        Folder::Parts,
    ] {
        for listed in vault.list(&folder.of_backup(cluster, id)).await? {
            vault.remove(&listed.name).await?;
        }
    }
    Ok(None)
}

/// Marks that no longer count.
async fn sweep_marks(
    vault: &Vault<ReadWrite>,
    catalog: &Catalog,
    now: DateTime<Utc>,
) -> Result<()> {
    let trashed = catalog.trash.iter().map(|one| &one.backup);
    let marks = catalog.backups.iter().chain(trashed);
    for mark in marks.flat_map(|backup| &backup.uses) {
        if !in_use::is_live(mark, now) {
            vault.remove(&mark.name).await?;
        }
    }
    Ok(())
}

/// Parts of backups whose removal a run before did not end, their manifest gone. Those of backups
/// whose manifest is there are not among the orphans.
async fn sweep_leftovers(vault: &Vault<ReadWrite>, catalog: &Catalog, pruned: &mut Pruned) {
    let gone = catalog.released.iter().map(|one| one.release.link.id);
    let gone: BTreeMap<String, SnapshotId> = gone.map(|id| (id.to_string(), id)).collect();
    let mut refused = BTreeSet::new();
    for orphan in &catalog.orphans {
        let Some(id) = gone.get(orphan.name.folder_name()) else {
            continue;
        };
        if let Err(error) = vault.remove(&orphan.name).await
            && refused.insert(*id)
        {
            pruned.refused.push((*id, error.to_string()));
        }
    }
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
