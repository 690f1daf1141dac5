//! The child's side of a drill: low priority, read-only, gone with its parent.

use std::fs::{File, TryLockError};
use std::path::Path;

use holdfast_drills::{
    DrillMembers, DrillOptions, DrillReport, DrillTarget, MemberCommand, clean_leftovers,
};
use holdfast_restore::Pick;

use super::drill::Wishes;
use crate::clock::Clock;
use crate::config::{self, Settings, Source};
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::{keys, vaults};

/// How far a drill steps back behind everything else.
const NICENESS: i32 = 10;

/// Lowers the priority and ties this process to its parent's life, so that a drill neither slows
/// nor outlives it.
pub(crate) fn become_a_careful_child() {
    // Both are courtesies: a drill without them is still a drill.
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(%error, "the priority was not lowered");
    }
    let signal = rustix::process::Signal::KILL;
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(signal)) {
        tracing::debug!(%error, "the drill may outlive its parent");
    }
}

/// One drill at a time in a scratch directory: two would measure each other and share its disk. The
/// lock goes with the process, however it ends.
fn only_one_in(scratch: &Path) -> Result<File, Failure> {
    let path = scratch.join("drills.lock");
    let unlocked = || format!("{} cannot be locked", path.display());
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .or_fail(unlocked())?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Failure::new(
            ErrorName::InUse,
            format!("another drill works in {}", scratch.display()),
        )
        .next(
            "wait for its end (`holdfast drill list` shows it then), or set `drills.scratch_dir`",
        )),
        Err(TryLockError::Error(error)) => Err(error).or_fail(unlocked()),
    }
}

/// Rehearses a restore of `source` and says what was found; nothing is written to the vault.
pub(crate) async fn rehearse(
    settings: &Settings,
    source: &Source,
    clock: &Clock,
    wishes: Wishes<'_>,
) -> Result<DrillReport, Failure> {
    let keys = keys::reading(settings)?;
    let vault = vaults::read(settings).await?;
    let pick = match wishes.backup {
        None => None,
        Some(text) => {
            let catalog = vaults::catalog_in(&vault, settings, &source.name, &keys.trust).await?;
            Some(Pick::Id(vaults::pick(&catalog, Some(text))?.id()))
        }
    };
    let scratch = settings.scratch_dir();
    keys::make_private_dir(&scratch)?;
    let _alone = only_one_in(&scratch)?;
    let leftovers = clean_leftovers(&scratch).await.or_fail(format!(
        "what earlier drills left in {} stays",
        scratch.display()
    ))?;
    for drill in leftovers {
        tracing::warn!(drill_id = %drill, "what a killed drill left behind was removed");
    }
    let program = std::env::current_exe().or_fail("this program cannot find itself")?;
    let member = MemberCommand {
        program,
        args: vec!["drill".into(), "member".into()],
        env: Vec::new(),
    };
    let now = clock.now();
    let objective = settings.config.policies.objective;
    let mut options = DrillOptions::new(source.name.clone(), now, scratch, member);
    options.pick = pick;
    options.target = match settings.config.drills.target {
        config::DrillTarget::Holdfast => DrillTarget::Holdfast,
        config::DrillTarget::Etcd => {
            DrillTarget::Etcd(settings.resolve(&settings.config.drills.etcd_binary))
        }
    };
    options.members = match settings.config.drills.members {
        config::DrillMembers::Source => DrillMembers::Source,
        config::DrillMembers::Exactly(count) => DrillMembers::Exactly(count),
    };
    options.budget = settings.config.drills.budget;
    options.deadline = settings.config.policies.drill.deadline;
    options.ledger = Some(vaults::local_ledger(settings, &source.name)?);
    options.known = wishes.newest_known.map(|revision| (revision, now));
    options.rpo = objective.rpo.map(|rpo| rpo.0);
    options.rto = objective.rto.map(|rto| rto.0);
    holdfast_drills::run(&options, &vault, &keys, &|_phase| {})
        .await
        .or_fail(format!("no drill of `{}` came about", source.name))
}
