//! `holdfast backup prune` and `pin`.

use chrono::{DateTime, TimeDelta, Utc};
use holdfast_policies::retention::Removal;
use holdfast_policies::{RetentionPlan, Sequence, SnapshotId};
use holdfast_restore::Catalog;
use holdfast_restore::confirmation::{self, Confirmation};
use holdfast_restore::pin::{self, Pin};
use holdfast_restore::prune::{Pruned, removals};
use serde::Serialize;

use super::super::dispatch::Context;
use super::args::{PinArgs, PruneArgs};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, OrFail as _};
use crate::health::moment;
use crate::jobs::prune::{self as job, DeltasDue, Pruner};
use crate::{keys, vaults};

#[derive(Serialize)]
struct PruneShape {
    is_dry_run: bool,
    /// The first step: what goes to the trash.
    plan: RetentionPlan,
    /// What goes there now can be brought back until then.
    undo_until: DateTime<Utc>,
    /// The second step: what becomes of what was in the trash before.
    trash: Vec<InTrash>,
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

#[derive(Serialize)]
struct InTrash {
    id: SnapshotId,
    why: String,
    removal: Removal,
}

/// Says what would go, or lets it go.
pub(super) async fn prune(args: &PruneArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let source = settings.source(args.source.as_deref())?;
    let now = context.clock.now();
    let (catalog, runs) = vaults::history(&settings, &source.name).await?;
    let grace = settings.policies()?.retention.trash_grace.as_delta();
    let (plan, outcome, deltas_removed) = if args.confirm {
        let signer = keys::signer(&settings)?;
        let vault = vaults::write(&settings, &signer, now).await?;
        let pruner = Pruner {
            settings: &settings,
            vault: &vault,
            cluster: &source.name,
            signer: &signer,
            now,
        };
        let (plan, pruned) = pruner.run(args.confirm_times).await?;
        confirm(&pruner, args.confirm_times).await?;
        let by = (&signer, now);
        let deltas = job::release_deltas(&settings, &vault, &source.name, by).await?;
        (plan, Some(pruned), Some(deltas))
    } else {
        let confirmed = args.confirm_times;
        let plan = job::plan(&settings, &catalog, (now, None), confirmed)?;
        (plan, None, None)
    };
    let shape = PruneShape {
        is_dry_run: !args.confirm,
        plan,
        undo_until: now + grace,
        trash: in_trash(&catalog, now, grace),
        deltas: job::deltas_due(&catalog, &runs),
        outcome,
        deltas_removed,
    };
    context.output.show(&shape, text_of)?;
    let is_refused = shape
        .outcome
        .is_some_and(|done| !done.refused.is_empty() || !done.left.is_empty());
    Ok(if is_refused {
        ExitCode::Denied
    } else {
        ExitCode::Done
    })
}

/// What was looked at once holds from now on, also for the daemon.
async fn confirm(of: &Pruner<'_>, sequence: Option<Sequence>) -> Result<(), Failure> {
    let Some(sequence) = sequence else {
        return Ok(());
    };
    let word = Confirmation {
        cluster: of.cluster.clone(),
        sequence,
        at: of.now,
    };
    confirmation::record(of.vault, &word, of.signer)
        .await
        .or_fail("that the times are right was not stored")
}

fn in_trash(catalog: &Catalog, now: DateTime<Utc>, grace: TimeDelta) -> Vec<InTrash> {
    let decided = removals(catalog, (now, None), grace).into_iter();
    decided
        .map(|(id, removal)| InTrash {
            id,
            why: catalog
                .trashed(id)
                .map_or(String::new(), |one| one.release.why().to_owned()),
            removal,
        })
        .collect()
}

fn text_of(shape: &PruneShape) -> String {
    let mut lines = vec![shape.plan.to_string()];
    lines.extend(shape.trash.iter().map(|one| {
        let what = match &one.removal {
            Removal::Due => "its time is over, removed by this step".to_owned(),
            Removal::Waits(until) => format!("can be brought back until {}", moment(*until)),
            Removal::Locked(until) => {
                format!("its time is over, locked until {}", moment(*until))
            }
            Removal::Held(why) => format!("its time is over, held back: {why}"),
        };
        format!("{} in the trash ({}): {what}", one.id, one.why)
    }));
    lines.extend(delta_lines(shape));
    let Some(done) = &shape.outcome else {
        let due = shape.trash.iter();
        let due = due.filter(|one| one.removal == Removal::Due).count();
        let going = shape.plan.release.len();
        if going + due > 0 {
            lines.push(format!(
                "nothing was changed; --confirm puts {going} into the trash (to be brought back \
                 until {}) and removes {due} from it for good",
                moment(shape.undo_until)
            ));
        } else if !shape.deltas.is_empty() {
            lines.push("nothing was changed; --confirm removes the deltas".to_owned());
        }
        return lines.join("\n");
    };
    lines.push(format!(
        "{} put into the trash, {} removed from the vault for good",
        done.trashed.len(),
        done.removed.len()
    ));
    let deferred = done.deferred.iter();
    lines.extend(deferred.map(|(id, until)| format!("{id} is locked until {}", moment(*until))));
    let held = done.held.iter();
    lines.extend(held.map(|(id, why)| format!("{id} is held back: {why}")));
    let refused = done.refused.iter();
    lines.extend(refused.map(|(id, why)| format!("{id} stays: {why}")));
    lines.extend(done.left.iter().map(|why| format!("left: {why}")));
    lines.join("\n")
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
