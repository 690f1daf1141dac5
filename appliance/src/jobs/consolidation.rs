//! Consolidation: `policies` says when, `restore` merges, a backup is made of it like any other.

use std::sync::Arc;
use std::time::Duration;

use holdfast_drills::{DrillReport, Outcome};
use holdfast_policies::SnapshotId;
use holdfast_policies::consolidation::{
    ConsolidationVerdict, RestoreLoad, RestoreRates, consolidation,
};
use holdfast_restore::consolidate::{ConsolidationPlan, consolidate, plan_consolidation};
use holdfast_restore::in_use::Reader;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::backup::{self, BackupReport, Wishes, work_dir};
use super::drill;
use super::shop::Shop;
use crate::clock::Clock;
use crate::config::{Settings, Source};
use crate::failure::{Failure, OrFail as _};
use crate::progress::Meter;
use crate::{keys, vaults};

/// How often the daemon looks whether a restore would take too long.
const LOOK_EVERY: Duration = Duration::from_mins(15);

/// What can be merged, and whether it should be.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Prospect {
    /// The source.
    pub(crate) source: String,
    /// The backup that it begins from.
    pub(crate) base: SnapshotId,
    /// How many deltas are merged into it.
    pub(crate) deltas: u64,
    /// The revision of the new backup.
    pub(crate) revision: i64,
    /// Whether the objective asks for it, with the times.
    pub(crate) verdict: ConsolidationVerdict,
    #[serde(skip)]
    plan: ConsolidationPlan,
}

/// Looks what can be merged; `None`: nothing.
pub(crate) async fn look(
    settings: &Settings,
    source: &Source,
) -> Result<Option<Prospect>, Failure> {
    let (vault, trust) = (vaults::read(settings).await?, keys::trust(settings)?);
    let catalog = vaults::catalog_in(&vault, settings, &source.name, &trust).await?;
    let runs = vaults::runs_in(&vault, settings, &catalog, &trust).await?;
    let plan = plan_consolidation(&catalog, &runs, &work_dir(settings)?).or_fail(format!(
        "no consolidation of `{}` can be planned",
        source.name
    ))?;
    let Some(plan) = plan else {
        return Ok(None);
    };
    let reports = drill::reports(&vault, &source.name, &trust).await?;
    let replayed = plan
        .restore
        .replay
        .as_ref()
        .map_or(0, |replay| replay.bytes);
    let load = RestoreLoad {
        backup_bytes: plan.restore.bytes.saturating_sub(replayed),
        deltas: plan.deltas(),
        delta_bytes: replayed,
    };
    let rates = reports.iter().find_map(measured);
    let rates = rates.unwrap_or(RestoreRates::ASSUMED);
    Ok(Some(Prospect {
        source: source.name.to_string(),
        base: plan.base(),
        deltas: plan.deltas(),
        revision: plan.revision(),
        verdict: consolidation(load, rates, settings.config.policies.objective.rto),
        plan,
    }))
}

/// How fast the restore of a drill was that came to its end.
fn measured(report: &DrillReport) -> Option<RestoreRates> {
    let backup = report.backup.as_ref()?;
    let restore = report.phases.iter().find(|phase| phase.name == "restore")?;
    let is_whole = report.outcome == Outcome::Passed;
    is_whole.then(|| RestoreRates::measured(backup.bytes, restore.took))
}

/// Makes the new backup, proves it, and lets go of what the rules release.
pub(crate) async fn run(
    settings: &Settings,
    source: &Source,
    prospect: &Prospect,
    (clock, meter): (&Clock, &Meter),
) -> Result<BackupReport, Failure> {
    let what = format!("the deltas of `{}` were not merged", source.name);
    let (vault, keys) = (vaults::read(settings).await?, keys::reading(settings)?);
    let (mark, _unmarked) =
        vaults::mark(settings, &source.name, prospect.base, Reader::Restore).await?;
    let (plan, sink) = (prospect.plan.clone(), meter.sink());
    let past = Some((plan.time, plan.generation));
    let merged = vaults::during(mark, consolidate(&vault, plan, &keys, &sink));
    let merged = merged.await.or_fail(what)?;
    let wishes = Wishes {
        past,
        ..Wishes::default()
    };
    Box::pin(backup::run(settings, source, &merged, clock, meter, wishes)).await
}

/// The daemon's job: merges when a restore would take longer than the objective allows. It needs an
/// objective, and an identity: a host that cannot read its backups leaves it to one that can.
pub(crate) async fn watch_over(
    shop: Arc<Shop>,
    source: Arc<Source>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let has_objective = shop.settings.config.policies.objective.rto.is_some();
        if !has_objective || !shop.turn.borrow().is_active() {
            continue;
        }
        let (of, name) = (Arc::clone(&shop), source.name.to_string());
        let (on, runtime) = (Arc::clone(&source), tokio::runtime::Handle::current());
        // What it does between two waits is heavy.
        let work = tokio::task::spawn_blocking(move || runtime.block_on(merge_if_due(&of, &on)));
        let ended = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            ended = work => ended,
        };
        match ended {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(report))) => {
                tracing::info!(
                    source = name, snapshot_id = %report.id, revision = report.revision,
                    seconds = report.seconds, "deltas merged into a backup"
                );
                shop.refresh.send_replace(());
            }
            Ok(Err(failure)) => {
                let failure = failure.line();
                tracing::warn!(source = name, failure, "deltas were not merged");
            }
            Err(error) => {
                tracing::warn!(source = name, %error, "deltas were not merged");
            }
        }
    }
}

async fn merge_if_due(shop: &Shop, source: &Source) -> Result<Option<BackupReport>, Failure> {
    let settings = &shop.settings;
    let is_readable =
        keys::recipients(settings)?.is_none() || keys::identities(settings)?.is_some();
    if !is_readable {
        return Ok(None);
    }
    let prospect = look(settings, source).await?;
    let Some(prospect) = prospect.filter(|one| one.verdict.is_due) else {
        return Ok(None);
    };
    let (meter, clock) = (Meter::silent(), &shop.clock);
    run(settings, source, &prospect, (clock, &meter))
        .await
        .map(Some)
}
