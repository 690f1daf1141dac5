//! `holdfast backup prune` and `pin`.

use holdfast_policies::RetentionPlan;
use holdfast_restore::pin::{self, Pin};
use holdfast_restore::prune::Pruned;
use serde::Serialize;

use super::super::dispatch::Context;
use super::args::{PinArgs, PruneArgs};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, OrFail as _};
use crate::jobs::prune::{self as job, DeltasDue};
use crate::{keys, vaults};

#[derive(Serialize)]
struct PruneShape {
    is_dry_run: bool,
    plan: RetentionPlan,
    /// Changes that no backup in the vault can be followed by.
    deltas: Vec<DeltasDue>,
    outcome: Option<Pruned>,
    /// How many objects of such changes were removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    deltas_removed: Option<u64>,
}

/// What becomes of the changes between backups, for a person.
fn delta_lines(shape: &PruneShape) -> Vec<String> {
    let line = |due: &DeltasDue| {
        let (count, generation, through) = (due.deltas, due.generation, due.through);
        format!(
            "deltas: {count} of generation {generation}, up to number {through}, follow no backup \
             in the vault"
        )
    };
    let removed = shape.deltas_removed.filter(|count| *count > 0);
    let removed = removed.map(|count| format!("{count} objects of deltas removed"));
    shape.deltas.iter().map(line).chain(removed).collect()
}

/// Says what would go, or lets it go.
pub(super) async fn prune(args: &PruneArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let source = settings.source(args.source.as_deref())?;
    let now = context.clock.now();
    let (catalog, runs) = vaults::history(&settings, &source.name).await?;
    let plan = job::plan_confirmed(&settings, &catalog, now, args.confirm_times)?;
    let (mut outcome, mut deltas_removed) = (None, None);
    if args.confirm {
        let signer = keys::signer(&settings)?;
        let vault = vaults::write(&settings, &signer, now).await?;
        let (name, by) = (&source.name, (&signer, now));
        outcome = Some(job::carry_out(&settings, &vault, name, &plan, by).await?);
        deltas_removed = Some(job::release_deltas(&settings, &vault, name, by).await?);
    }
    let shape = PruneShape {
        is_dry_run: !args.confirm,
        plan,
        deltas: job::deltas_due(&catalog, &runs),
        outcome,
        deltas_removed,
    };
    context.output.show(&shape, |shape| {
        let mut lines = vec![shape.plan.to_string()];
        lines.extend(delta_lines(shape));
        match &shape.outcome {
            None if shape.plan.release.is_empty() && shape.deltas.is_empty() => {}
            None => lines.push("nothing was removed: give --confirm to do it".to_owned()),
            Some(done) => {
                lines.push(format!(
                    "{} let go, {} removed from the vault",
                    done.released.len(),
                    done.removed.len() + done.finished.len()
                ));
                let waiting = done.waiting.iter();
                lines.extend(waiting.map(|(id, why)| format!("{id}: {why}")));
                lines.extend(
                    done.refused
                        .iter()
                        .map(|(id, why)| format!("{id} stays: {why}")),
                );
            }
        }
        lines.join("\n")
    })?;
    let is_refused = shape.outcome.is_some_and(|done| !done.refused.is_empty());
    Ok(if is_refused {
        ExitCode::Denied
    } else {
        ExitCode::Done
    })
}

/// Pins a backup, or lets it go again.
pub(super) async fn pin(args: &PinArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let source = settings.source(args.source.as_deref())?;
    let catalog = vaults::catalog(&settings, &source.name).await?;
    let backup = vaults::pick(&catalog, Some(&args.id))?;
    let (signer, now) = (keys::signer(&settings)?, context.clock.now());
    let vault = vaults::write(&settings, &signer, now).await?;
    let wish = Pin {
        id: backup.id(),
        cluster: source.name.clone(),
        number: 0,
        is_pinned: !args.remove,
        reason: args.reason.clone(),
        at: now,
    };
    let id = wish.id;
    let shape = wish.clone();
    pin::set(&vault, wish, &signer)
        .await
        .or_fail(format!("the backup {id} was not pinned"))?;
    context.output.show(&shape, |shape| {
        if shape.is_pinned {
            format!("{id} is pinned: it stays whatever the rules say")
        } else {
            format!("{id} is no longer pinned: the rules decide again")
        }
    })?;
    Ok(ExitCode::Done)
}
