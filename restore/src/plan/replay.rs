//! Which backup and which changes after it make a wanted state. Pure.

use chrono::{DateTime, Utc};
use holdfast_policies::{Generation, SnapshotId};
use serde::Serialize;

use super::display::utc;
use super::{Chosen, Pick, RestoreOptions, RestorePlan, Wanted, choose, is_sound, plan_of};
use crate::delta::Head;
use crate::delta::run::{Run, Runs};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::vault::{Backup, Catalog};

/// How far changes are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upto {
    /// Not at all: the backup that is picked, as it is.
    Backup(Pick),
    /// As far as they go after the backup that is picked.
    Newest(Pick),
    /// To exactly this revision, from whichever backup.
    Revision(i64),
    /// The same within one generation: another may count the revisions of another history.
    Point(Generation, i64),
    /// To exactly this revision, from this backup.
    After(SnapshotId, i64),
}

/// Changes to replay onto a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replay {
    /// The run they are of.
    pub generation: Generation,
    /// The first delta, by number.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Digest of the last one's record, which binds all before it: the restore refuses others.
    pub last: Digest,
    /// The backup's own revision.
    pub after: i64,
    /// The revision of the result.
    pub upto: i64,
    /// When that was the newest, or the end of what the last delta tells.
    pub until: DateTime<Utc>,
    /// Plain bytes to fetch.
    pub bytes: u64,
    /// Stored bytes to fetch.
    pub stored_bytes: u64,
}

impl Replay {
    /// What leads from the backup's revision to `limit` or as near as the deltas come; `None` when
    /// that is the backup itself.
    fn after(run: &Run, revision: i64, limit: i64) -> Option<Self> {
        if limit <= revision {
            return None;
        }
        let needed: Vec<&Head> = run.between(revision, limit).collect();
        let (first, last) = (needed.first()?, needed.last()?);
        let sum = |bytes: fn(&Head) -> u64| {
            needed
                .iter()
                .fold(0_u64, |sum, head| sum.saturating_add(bytes(head)))
        };
        Some(Self {
            generation: run.generation,
            first: first.record.number,
            count: u64::try_from(needed.len()).unwrap_or(u64::MAX),
            last: last.digest,
            after: revision,
            upto: last.record.to.min(limit),
            until: last.record.finished,
            bytes: sum(|head| head.record.part.plain_bytes),
            stored_bytes: sum(|head| head.record.part.stored_bytes),
        })
    }

    /// The last delta's number.
    pub fn through(&self) -> u64 {
        self.first.saturating_add(self.count).saturating_sub(1)
    }
}

/// Decides which backup and which deltas a restore takes.
pub fn plan_replay(
    catalog: &Catalog,
    runs: &Runs,
    upto: Upto,
    options: &RestoreOptions,
) -> Result<RestorePlan> {
    let (wanted, backup, replay) = match upto {
        Upto::Backup(pick) => (Wanted::Backup, choose(catalog, pick)?, None),
        Upto::Newest(pick) => {
            let backup = choose(catalog, pick)?;
            let (_, replay) = reach(runs, backup, i64::MAX);
            (Wanted::Newest, backup, replay)
        }
        Upto::Revision(revision) => {
            let (backup, replay) = exact(catalog, runs, (None, revision))?;
            (Wanted::Revision, backup, replay)
        }
        Upto::Point(generation, revision) => {
            let (backup, replay) = exact(catalog, runs, (Some(generation), revision))?;
            (Wanted::Revision, backup, replay)
        }
        Upto::After(id, revision) => {
            let backup = catalog.get_named(id)?;
            let (reached, replay) = reach(runs, backup, revision);
            if reached != revision {
                return Err(unreachable(catalog, runs, revision, [backup]));
            }
            (Wanted::Revision, backup, replay)
        }
    };
    let chosen = Chosen {
        backup,
        until: match wanted {
            Wanted::Backup => backup.manifest.started,
            _ => until(runs, backup, replay.as_ref()),
        },
        broken: runs.flaw_after(
            backup.manifest.generation,
            through(runs, backup, replay.as_ref()),
        ),
        replay,
        wanted,
        seen: runs.highest_revision(),
    };
    plan_of(catalog, chosen, options)
}

/// The last time at which the result is known to have been the newest state.
fn until(runs: &Runs, backup: &Backup, replay: Option<&Replay>) -> DateTime<Utc> {
    let own = &backup.manifest;
    let (known, reached) = replay.map_or((own.started, own.content.revision), |replay| {
        (replay.until, replay.upto)
    });
    // Behind the last change there may be deltas that tell that nothing followed.
    let told = runs.after(backup).map(|run| run.told_of(reached));
    told.flatten().map_or(known, |told| told.max(own.started))
}

/// The number of the last delta that the result has the content of.
fn through(runs: &Runs, backup: &Backup, replay: Option<&Replay>) -> u64 {
    let manifest = &backup.manifest;
    replay.map_or_else(
        || runs.through(manifest.generation, manifest.content.revision),
        Replay::through,
    )
}

/// How far from a backup one comes towards `limit`.
fn reach(runs: &Runs, backup: &Backup, limit: i64) -> (i64, Option<Replay>) {
    let revision = backup.manifest.content.revision;
    let run = runs.after(backup);
    let replay = run.and_then(|run| Replay::after(run, revision, limit));
    let reached = replay.as_ref().map_or(revision, |replay| replay.upto);
    (reached, replay)
}

/// The newest sound backup from which one comes to exactly this revision.
fn exact<'a>(
    catalog: &'a Catalog,
    runs: &Runs,
    (generation, revision): (Option<Generation>, i64),
) -> Result<(&'a Backup, Option<Replay>)> {
    let is_of = |one: &&Backup| generation.is_none_or(|own| one.manifest.generation == own);
    let sound = || catalog.backups.iter().rev().filter(|one| is_sound(one));
    for backup in sound().filter(is_of) {
        let (reached, replay) = reach(runs, backup, revision);
        if reached == revision {
            return Ok((backup, replay));
        }
    }
    Err(unreachable(catalog, runs, revision, sound().filter(is_of)))
}

/// Why no `candidate` leads to this revision, and what comes nearest.
fn unreachable<'a>(
    catalog: &Catalog,
    runs: &Runs,
    revision: i64,
    candidates: impl IntoIterator<Item = &'a Backup>,
) -> Error {
    let below = candidates.into_iter().filter_map(|backup| {
        let (reached, replay) = reach(runs, backup, revision);
        (reached <= revision).then_some((reached, backup, replay))
    });
    let Some((reached, backup, replay)) = below.max_by_key(|(reached, ..)| *reached) else {
        let reason = before_all(catalog);
        return Error::Unreachable {
            what: format!("revision {revision}"),
            nearest: None,
            flaw: None,
            reason,
        };
    };
    let generation = backup.manifest.generation;
    let flaw = runs.flaw_after(generation, through(runs, backup, replay.as_ref()));
    let until = until(runs, backup, replay.as_ref());
    let next = next_known(catalog, runs, reached);
    let reason = match (flaw, next) {
        (Some(flaw), _) => format!("the way there is broken after revision {reached}: {flaw}"),
        (None, Some(next)) => format!(
            "nothing was captured after revision {reached} ({}) until revision {next}",
            utc(until)
        ),
        (None, None) => format!(
            "the newest in the vault is revision {reached} ({})",
            utc(until)
        ),
    };
    Error::Unreachable {
        what: format!("revision {revision}"),
        nearest: Some(reached),
        flaw: flaw.cloned().map(Box::new),
        reason,
    }
}

/// What there is instead when everything is newer, or damaged.
pub(super) fn before_all(catalog: &Catalog) -> String {
    let sound = catalog.backups.iter().filter(|one| is_sound(one));
    let oldest = sound.min_by_key(|one| one.manifest.content.revision);
    oldest.map_or_else(
        || "there is no undamaged backup to begin from".to_owned(),
        |one| {
            format!(
                "the oldest undamaged backup that leads anywhere is {} of {}, at revision {}",
                one.id(),
                utc(one.manifest.started),
                one.manifest.content.revision
            )
        },
    )
}

/// The lowest revision above `revision` at which the vault knows the state again.
fn next_known(catalog: &Catalog, runs: &Runs, revision: i64) -> Option<i64> {
    let sound = catalog.backups.iter().filter(|one| is_sound(one));
    let backups = sound.map(|one| one.manifest.content.revision);
    let runs = runs.runs.iter().map(Run::from);
    backups.chain(runs).filter(|one| *one > revision).min()
}
