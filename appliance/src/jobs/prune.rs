//! Letting go: `policies` decides, `restore` removes, this connects them and remembers how it went.

use chrono::{DateTime, Utc};
use holdfast_policies::retention::Removal;
use holdfast_policies::{
    ClusterName, Generation, Listing, RetentionInput, RetentionPlan, Sequence, SnapshotId,
};
use holdfast_restore::delta::release::{plan_release, release};
use holdfast_restore::delta::run::Runs;
use holdfast_restore::prune::{PruneOptions, Pruned, execute_prune, removals};
use holdfast_restore::release::Step;
use holdfast_restore::{Catalog, ReadWrite, Signer, Trust, Vault};
use serde::Serialize;

use super::prune_log::PruneLog;
use crate::config::Settings;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::{keys, vaults};

/// What time it is: by our clock, and by the vault's where it was asked.
pub(crate) type Clocks = (DateTime<Utc>, Option<DateTime<Utc>>);

/// Decides what stays and what goes, on the occasion of the newest backup that counts. `confirmed`:
/// an operator has found the times right up to a place of the chain, besides what the vault says.
pub(crate) fn plan(
    settings: &Settings,
    catalog: &Catalog,
    (now, vault_now): Clocks,
    confirmed: Option<Sequence>,
) -> Result<RetentionPlan, Failure> {
    let policy = settings.policies()?.retention;
    let facts = catalog.facts(now);
    let cluster = &catalog.cluster;
    let occasion = facts
        .iter()
        .rfind(|fact| fact.holds_at(policy.count_from))
        .ok_or_else(|| {
            Failure::new(
                ErrorName::NoBackup,
                format!("no backup of `{cluster}` has reached {}", policy.count_from),
            )
            .next("retention acts only after a verified backup: `holdfast backup verify` makes one")
        })?;
    let listing = if vaults::obstacles(catalog).next().is_none() {
        Listing::Complete
    } else {
        Listing::Incomplete
    };
    let input = RetentionInput {
        occasion: occasion.id,
        now,
        vault_now,
        listing,
        confirmed: confirmed.max(catalog.confirmed),
    };
    policy.plan(&facts, &input).map_err(|refusal| {
        let next = if refusal.is_about_clocks() {
            "see that the clocks of this host and of the vault are right; where the times of the \
             backups were looked at and may count, `holdfast backup prune --confirm-times PLACE \
             --confirm` says so for good. Nothing is removed until then"
        } else {
            "look at what the reason names; nothing is removed until it is cleared"
        };
        let name = if refusal.is_about_clocks() {
            ErrorName::ClocksDisagree
        } else {
            ErrorName::InUse
        };
        let what = format!("nothing of `{cluster}` can be let go now");
        let failure = Failure::new(name, what).because(&refusal).next(next);
        vaults::obstacles(catalog).fold(failure, |failure, flaw| {
            failure.because_of(flaw.to_string())
        })
    })
}

/// A vault to prune, and who does it.
pub(crate) struct Pruner<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) vault: &'a Vault<ReadWrite>,
    pub(crate) cluster: &'a ClusterName,
    pub(crate) signer: &'a Signer,
    pub(crate) now: DateTime<Utc>,
}

impl Pruner<'_> {
    /// Plans by both clocks and carries it out. How it went is kept on this host, for the alarms;
    /// a failure to keep it is told in the log.
    pub(crate) async fn run(
        &self,
        confirmed: Option<Sequence>,
    ) -> Result<(RetentionPlan, Pruned), Failure> {
        let done = self.plan_and_carry_out(confirmed).await;
        let mut log = PruneLog::read(self.settings, self.cluster);
        match &done {
            Ok((_, pruned, (due, gone))) => log.note(self.now, pruned, (*due, *gone)),
            // Nothing to go by yet is no alarm.
            Err(failure) if failure.name() == ErrorName::NoBackup => {}
            Err(failure) => log.note_failure(self.now, failure),
        }
        if let Err(failure) = log.write(self.settings, self.cluster) {
            let cluster = self.cluster.as_str();
            tracing::warn!(cluster, failure = failure.line(), "a prune was not noted");
        }
        done.map(|(plan, pruned, _)| (plan, pruned))
    }

    async fn plan_and_carry_out(
        &self,
        confirmed: Option<Sequence>,
    ) -> Result<(RetentionPlan, Pruned, (usize, usize)), Failure> {
        let trust = keys::trust(self.settings)?;
        let what = || format!("backups of `{}` were not removed", self.cluster);
        let vault_now = self.vault.clock(self.cluster).await.or_fail(what())?;
        let clocks = (self.now, Some(vault_now));
        let before = self.catalog(&trust).await?;
        let plan = plan(self.settings, &before, clocks, confirmed)?;
        let local = vaults::local_ledger(self.settings, self.cluster)?;
        let grace = self.settings.policies()?.retention.trash_grace.as_delta();
        let options = PruneOptions {
            signer: self.signer,
            trust: &trust,
            local: Some(&local),
            now: self.now,
            vault_now: clocks.1,
            trash_grace: grace,
        };
        let pruned = execute_prune(self.vault, self.cluster, &plan, options)
            .await
            .or_fail(what())?;
        let due = due(&before, clocks, grace);
        // What was removed is what is not listed any more, whatever the answers were.
        let after = self.catalog(&trust).await?;
        let gone = due.iter().filter(|id| !is_listed(&after, **id)).count();
        Ok((plan, pruned, (due.len(), gone)))
    }

    async fn catalog(&self, trust: &Trust) -> Result<Catalog, Failure> {
        vaults::catalog_in(self.vault, self.settings, self.cluster, trust).await
    }
}

/// What has to go now and nothing holds back.
fn due(catalog: &Catalog, clocks: Clocks, grace: chrono::TimeDelta) -> Vec<SnapshotId> {
    let decided = removals(catalog, clocks, grace).into_iter();
    let due = decided.filter(|(_, removal)| *removal == Removal::Due);
    let begun = catalog.released.iter();
    let begun = begun.filter(|one| one.is_present && one.release.step == Step::Removing);
    due.map(|(id, _)| id)
        .chain(begun.map(|one| one.release.link.id))
        .collect()
}

fn is_listed(catalog: &Catalog, id: SnapshotId) -> bool {
    let mut released = catalog.released.iter();
    let has_manifest = released.any(|one| one.release.link.id == id && one.is_present);
    let folder = format!("/parts/{id}/");
    let mut orphans = catalog.orphans.iter();
    has_manifest || orphans.any(|one| one.name.as_str().contains(&folder))
}

/// Deltas of one generation that no backup can be followed by any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DeltasDue {
    /// The generation.
    pub(crate) generation: Generation,
    /// The last that goes, by number.
    pub(crate) through: u64,
    /// How many there are up to it.
    pub(crate) deltas: usize,
}

/// What of the changes goes beside the backups of `catalog`. Nothing while something in the history
/// cannot be believed: it may be the backup that they follow.
pub(crate) fn deltas_due(catalog: &Catalog, runs: &Runs) -> Vec<DeltasDue> {
    if vaults::obstacles(catalog).next().is_some() {
        return Vec::new();
    }
    let due = |(generation, through): (Generation, u64)| {
        let own = runs.runs.iter().filter(|run| run.generation == generation);
        let numbers = own
            .flat_map(|run| &run.deltas)
            .map(|head| head.record.number);
        DeltasDue {
            generation,
            through,
            deltas: numbers.filter(|number| *number <= through).count(),
        }
    };
    plan_release(catalog, runs).into_iter().map(due).collect()
}

/// Lets go of the changes that no backup needs any more; answers how many objects were removed. The
/// vault is read again: what the retention has left of the backups decides.
pub(crate) async fn release_deltas(
    settings: &Settings,
    vault: &Vault<ReadWrite>,
    cluster: &ClusterName,
    (signer, now): (&Signer, DateTime<Utc>),
) -> Result<u64, Failure> {
    let trust = keys::trust(settings)?;
    let catalog = vaults::catalog_in(vault, settings, cluster, &trust).await?;
    let runs = vaults::runs_in(vault, settings, &catalog, &trust).await?;
    let due = deltas_due(&catalog, &runs).into_iter();
    let plan: Vec<(Generation, u64)> = due.map(|one| (one.generation, one.through)).collect();
    if plan.is_empty() {
        return Ok(0);
    }
    release(vault, cluster, &plan, (now, signer))
        .await
        .or_fail(format!(
            "changes between backups of `{cluster}` were not removed"
        ))
}
