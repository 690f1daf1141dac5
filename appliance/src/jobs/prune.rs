//! Letting go: `policies` decides, `restore` removes, this connects them.

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, Listing, RetentionInput, RetentionPlan, Sequence};
use holdfast_restore::prune::{PruneOptions, Pruned, execute_prune};
use holdfast_restore::{Catalog, ReadWrite, Signer, Vault};

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
