//! Which backup and which changes after it make a wanted state. Pure.

use chrono::{DateTime, Utc};
use holdfast_policies::Generation;
use serde::Serialize;

use super::{Pick, RestoreOptions, RestorePlan, choose, is_sound, plan_of};
use crate::delta::Head;
use crate::delta::run::{Run, Runs};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::vault::{Backup, Catalog};

/// How far changes are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upto {
    /// As far as they go after the backup that is picked.
    Newest(Pick),
    /// To exactly this revision, from whichever backup.
    Revision(i64),
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
            upto: last.record.to.min(limit),
            until: last.record.finished,
            bytes: sum(|head| head.record.part.plain_bytes),
            stored_bytes: sum(|head| head.record.part.stored_bytes),
        })
    }
}

/// Decides which backup and which deltas a restore takes.
pub fn plan_replay(
    catalog: &Catalog,
    runs: &Runs,
    upto: Upto,
    options: &RestoreOptions,
) -> Result<RestorePlan> {
    let seen = runs.highest_revision();
    let (backup, replay) = match upto {
        Upto::Newest(pick) => {
            let backup = choose(catalog, pick)?;
            let (_, replay) = reach(runs, backup, i64::MAX);
            (backup, replay)
        }
        Upto::Revision(revision) => exact(catalog, runs, revision)?,
    };
    plan_of(catalog, backup, (replay, seen), options)
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
    revision: i64,
) -> Result<(&'a Backup, Option<Replay>)> {
    let before = |one: &&Backup| is_sound(one) && one.manifest.content.revision <= revision;
    let candidates = catalog.backups.iter().rev().filter(before);
    let mut nearest = 0;
    for backup in candidates {
        let (reached, replay) = reach(runs, backup, revision);
        if reached == revision {
            return Ok((backup, replay));
        }
        nearest = nearest.max(reached);
    }
    let reason = match nearest {
        0 => format!("no undamaged backup is at or before revision {revision}"),
        nearest => format!(
            "no undamaged backup and its changes lead to exactly revision {revision}; the nearest \
             before it is {nearest}"
        ),
    };
    Err(Error::NothingToRestore { reason })
}
