//! What becomes of what is in the trash.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::{BackupFact, Level, SnapshotId};

/// A backup in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrashFact {
    /// The backup.
    pub backup: BackupFact,
    /// When it was put there, by the clock of the host that did it.
    pub at: DateTime<Utc>,
    /// Until when it can be brought back for certain, by the same clock.
    pub until: DateTime<Utc>,
    /// When the vault stored the record that says so, by the vault's own clock.
    pub stored: DateTime<Utc>,
    /// An object lock does not let it go before this.
    pub locked_until: Option<DateTime<Utc>>,
}

/// What a prune does with a backup in the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Removal {
    /// Its time is over.
    Due,
    /// It can be brought back until then.
    Waits(DateTime<Utc>),
    /// Its time is over, and the vault's object lock holds it until then.
    Locked(DateTime<Utc>),
    /// Its time is over, and yet it stays for now, for this reason.
    Held(String),
}

/// Decides for each backup in the trash, beside those that are `live`. Its time has to be over by
/// our clock and, where the vault has one of its own (`vault_now`), by that too: a clock that was
/// set forward empties no trash.
pub fn removals(
    live: &[BackupFact],
    trash: &[TrashFact],
    (now, vault_now): (DateTime<Utc>, Option<DateTime<Utc>>),
) -> Vec<(SnapshotId, Removal)> {
    let best_left = best_level(live);
    let decide = |one: &TrashFact| {
        let backup = &one.backup;
        let until_there = one.stored + (one.until - one.at);
        let is_early = vault_now.is_some_and(|vault| vault < until_there);
        let clock = vault_now.map_or(now, |vault| vault.min(now));
        if one.until > now || is_early {
            Removal::Waits(one.until)
        } else if backup.is_pinned {
            Removal::Held("pinned".to_owned())
        } else if backup.is_in_use {
            Removal::Held("in use".to_owned())
        } else if let Some(id) = needed_by(live, backup.id) {
            Removal::Held(format!("needed by {id}"))
        } else if best_level(std::slice::from_ref(backup)) > best_left {
            Removal::Held("nothing outside the trash is as well proven".to_owned())
        } else if let Some(until) = one.locked_until.filter(|until| *until > clock) {
            Removal::Locked(until)
        } else {
            Removal::Due
        }
    };
    trash
        .iter()
        .map(|one| (one.backup.id, decide(one)))
        .collect()
}

/// The backup among `live` that cannot be restored without `id`. A prune that could not let it go
/// must not go on with what it needs.
pub fn needed_by(live: &[BackupFact], id: SnapshotId) -> Option<SnapshotId> {
    let needs = |fact: &&BackupFact| fact.id != id && fact.needs.contains(&id);
    live.iter().find(needs).map(|fact| fact.id)
}

/// The best proof that any of them stands at; all that were restored are alike. `None`: none is
/// sound.
pub fn best_level(facts: &[BackupFact]) -> Option<Level> {
    let sound = facts.iter().filter(|fact| fact.holds_at(Level::L0));
    sound.filter_map(|one| one.level.min(Some(Level::L3))).max()
}
