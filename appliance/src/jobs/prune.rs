//! Letting go: `policies` decides, `restore` removes, this connects them.

use chrono::{DateTime, Utc};
use holdfast_policies::{
    ClusterName, Generation, Listing, RetentionInput, RetentionPlan, Sequence,
};
use holdfast_restore::delta::release::{plan_release, release};
use holdfast_restore::delta::run::Runs;
use holdfast_restore::prune::{PruneOptions, Pruned, execute_prune};
use holdfast_restore::{Catalog, ReadWrite, Signer, Vault};
use serde::Serialize;

use crate::config::Settings;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::{keys, vaults};

/// Decides what stays and what goes, on the occasion of the newest backup that counts.
pub(crate) fn plan(
    settings: &Settings,
    catalog: &Catalog,
    now: DateTime<Utc>,
) -> Result<RetentionPlan, Failure> {
    plan_confirmed(settings, catalog, now, None)
}

/// The same, where an operator has found the times right up to a place of the chain.
pub(crate) fn plan_confirmed(
    settings: &Settings,
    catalog: &Catalog,
    now: DateTime<Utc>,
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
        vault_now: None,
        listing,
        confirmed,
    };
    policy.plan(&facts, &input).map_err(|refusal| {
        let failure = Failure::new(
            ErrorName::InUse,
            format!("nothing of `{cluster}` can be let go now"),
        )
        .because(&refusal)
        .next("look at what the reason names; nothing is removed until it is cleared");
        vaults::obstacles(catalog).fold(failure, |failure, flaw| {
            failure.because_of(flaw.to_string())
        })
    })
}

/// Removes what `plan` releases.
pub(crate) async fn carry_out(
    settings: &Settings,
    vault: &Vault<ReadWrite>,
    cluster: &ClusterName,
    plan: &RetentionPlan,
    (signer, now): (&Signer, DateTime<Utc>),
) -> Result<Pruned, Failure> {
    let trust = keys::trust(settings)?;
    let local = vaults::local_ledger(settings, cluster)?;
    let options = PruneOptions {
        signer,
        trust: &trust,
        local: Some(&local),
        now,
        trash_grace: settings.policies()?.retention.trash_grace.as_delta(),
    };
    execute_prune(vault, cluster, plan, options)
        .await
        .or_fail(format!("backups of `{cluster}` were not removed"))
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
