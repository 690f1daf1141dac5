//! Which state was the newest at a time. Pure, as far as the records of the deltas tell; within one
//! delta its payload says more ([`crate::delta::run::revision_at`]).

use chrono::{DateTime, Utc};
use holdfast_policies::Generation;

use super::display::utc;
use super::is_sound;
use crate::delta::Head;
use crate::delta::run::Runs;
use crate::error::{Error, Result};
use crate::vault::{Backup, Catalog};

/// What the vault tells of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment<'a> {
    /// The newest state known to be no newer is this backup's: no delta tells of the time between.
    Backup(&'a Backup),
    /// This was the newest revision of this generation, and nothing tells of a later one.
    Point(Generation, i64),
    /// While this delta was gathered: its payload tells the revision.
    Within(&'a Head),
}

/// What the vault tells of `time`. Where a delta that would tell it is missing or damaged, this is
/// an error that names it: an older state would be taken for what was asked for.
pub fn state_at<'a>(
    catalog: &'a Catalog,
    runs: &'a Runs,
    time: DateTime<Utc>,
) -> Result<Moment<'a>> {
    let begun = |one: &&Backup| is_sound(one) && one.manifest.started <= time;
    let backup = catalog.backups.iter().rev().find(begun);
    let delta = runs.begun_by(time);
    let is_newer = |backup: &Backup, head: &Head| {
        let (manifest, record) = (&backup.manifest, &head.record);
        (manifest.generation, manifest.content.revision) > (record.generation, record.to)
    };
    match (backup, delta) {
        (None, None) => Err(Error::Unreachable {
            what: format!("the state of {}", utc(time)),
            nearest: None,
            flaw: None,
            reason: super::replay::before_all(catalog),
        }),
        (Some(backup), Some(head)) if is_newer(backup, head) => from_backup(runs, backup, time),
        (Some(backup), None) => from_backup(runs, backup, time),
        (_, Some(head)) if head.record.finished > time => Ok(Moment::Within(head)),
        (_, Some(head)) => {
            let record = &head.record;
            if record.finished < time {
                let known = (record.to, record.finished);
                refuse_hole(runs, (record.generation, record.number), known, time)?;
            }
            Ok(Moment::Point(record.generation, record.to))
        }
    }
}

fn from_backup<'a>(runs: &'a Runs, backup: &'a Backup, time: DateTime<Utc>) -> Result<Moment<'a>> {
    let manifest = &backup.manifest;
    let (generation, revision) = (manifest.generation, manifest.content.revision);
    let through = runs.through(generation, revision);
    refuse_hole(
        runs,
        (generation, through),
        (revision, manifest.started),
        time,
    )?;
    Ok(Moment::Backup(backup))
}

/// What would tell of the time after `known` was captured, and cannot be used.
fn refuse_hole(
    runs: &Runs,
    (generation, number): (Generation, u64),
    (revision, at): (i64, DateTime<Utc>),
    time: DateTime<Utc>,
) -> Result<()> {
    match runs.flaw_after(generation, number) {
        None => Ok(()),
        Some(flaw) => Err(Error::Unreachable {
            what: format!("the state of {}", utc(time)),
            nearest: Some(revision),
            flaw: Some(Box::new(flaw.clone())),
            reason: format!(
                "the way there is broken after revision {revision} ({}): {flaw}",
                utc(at)
            ),
        }),
    }
}
