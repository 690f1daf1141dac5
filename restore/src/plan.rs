//! Restore plans: pure, printable, serializable. Nothing is read or written here, so `--dry-run`
//! is the plan itself.

mod display;
mod moment;
mod replay;

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, Level, Sequence, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::flaw::Flaw;
use crate::ledger::{Observation, Reason};
use crate::unique::UniqueId;
use crate::vault::{Backup, Catalog};

pub use moment::{Moment, state_at};
pub use replay::{Replay, Upto, plan_replay};

/// Smallest automatic bump. Revisions are handed out while nobody looks: between the last
/// observation and the disaster a busy cluster writes thousands a second. A thousand million
/// covers more than a day of ten thousand writes a second, and 63 bits hold nine thousand million
/// such bumps.
pub const BUMP_FLOOR: i64 = 1_000_000_000;

/// Highest revision a restored cluster may start at: leaves as much again for its life.
pub const REVISION_MAX: i64 = i64::MAX / 2;

/// Most members written by one restore.
pub const MEMBERS_MAX: usize = 7;

/// Which backup to restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pick {
    /// The newest sound backup that a drill has proven (L3 or more).
    LatestProven,
    /// The newest sound backup, proven or not.
    Latest,
    /// This one.
    Id(SnapshotId),
    /// The newest sound backup whose revision is not above this.
    Revision(i64),
    /// The newest sound backup begun no later than this.
    Time(DateTime<Utc>),
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Data directories of the bundled store.
    Holdfast,
    /// Data directories that etcd 3.5 to 3.7 start from.
    Etcd,
}

/// How far the revision is moved up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bump {
    /// Beyond everything in the ledger, by at least [`BUMP_FLOOR`].
    Auto,
    /// By this much.
    By(i64),
    /// Not at all. Old watches then resume silently on other data.
    None,
}

/// A member of the new cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewMember {
    /// Its name.
    pub name: String,
    /// Where its peers will reach it.
    pub peer_urls: Vec<String>,
}

/// What an operator asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestoreOptions {
    /// What is written.
    pub target: Target,
    /// The folder to create. With one member in `write` it becomes that member's data directory;
    /// with more, it holds one data directory for each, named after it.
    pub data_dir: PathBuf,
    /// Names of the members whose data directories are written here. Empty: all of `members`.
    pub write: Vec<String>,
    /// All members of the new cluster.
    pub members: Vec<NewMember>,
    /// How far the revision is moved up.
    pub bump: Bump,
    /// Compact everything before the new revision, so that old watches are told.
    pub mark_compacted: bool,
    /// The new cluster's token. `None`: one made of `restore_id`. Members restored on different
    /// hosts need the same one.
    pub token: Option<String>,
    /// Remove alarms: a NOSPACE alarm that comes back makes the new cluster refuse writes.
    pub clear_alarms: bool,
    /// Names this restore; made afresh by the caller each time.
    pub restore_id: UniqueId,
    /// Where sealed copies are spooled; beside `data_dir` when absent.
    pub work_dir: Option<PathBuf>,
}

impl RestoreOptions {
    /// One member `name` at `peer_url` with every default.
    pub fn single(target: Target, data_dir: PathBuf, name: &str, peer_url: &str) -> Self {
        Self {
            target,
            data_dir,
            write: Vec::new(),
            members: vec![NewMember {
                name: name.to_owned(),
                peer_urls: vec![peer_url.to_owned()],
            }],
            bump: Bump::Auto,
            mark_compacted: true,
            token: None,
            clear_alarms: false,
            restore_id: UniqueId::generate(),
            work_dir: None,
        }
    }
}

/// One data directory to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedMember {
    /// The member.
    pub name: String,
    /// Its data directory.
    pub data_dir: PathBuf,
}

/// What of the history was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    /// A backup as it is.
    Backup,
    /// A backup and all that is known to have come after it.
    Newest,
    /// A revision.
    Revision,
    /// What was the newest state at a time.
    Time(DateTime<Utc>),
    /// The state before this revision deleted a key.
    BeforeDelete(i64),
}

/// A newer backup than the one chosen, passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PassedOver {
    /// The backup.
    pub id: SnapshotId,
    /// When it was begun.
    pub time: DateTime<Utc>,
    /// Its revision.
    pub revision: i64,
    /// Its level of proof.
    pub level: Option<Level>,
    /// Whether it is damaged.
    pub is_damaged: bool,
}

/// What a restore will do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestorePlan {
    /// Names the restore.
    pub restore_id: UniqueId,
    /// Whose backup.
    pub cluster: ClusterName,
    /// The backup.
    pub id: SnapshotId,
    /// Its place in the chain.
    pub sequence: Sequence,
    /// Digest of its manifest object: the restore refuses another one.
    pub manifest: Digest,
    /// When it was begun.
    pub time: DateTime<Utc>,
    /// Its level of proof.
    pub level: Option<Level>,
    /// Plain bytes to fetch.
    pub bytes: u64,
    /// Stored bytes to fetch.
    pub stored_bytes: u64,
    /// What of the history was asked for.
    pub wanted: Wanted,
    /// The result is known to have been the newest state at this time, by the clock of whoever
    /// wrote it down: what changed later is not in it.
    pub until: DateTime<Utc>,
    /// Newer backups that were not chosen.
    pub passed_over: Vec<PassedOver>,
    /// What is written.
    pub target: Target,
    /// The folder created.
    pub data_dir: PathBuf,
    /// The data directories in it.
    pub write: Vec<PlannedMember>,
    /// All members of the new cluster.
    pub members: Vec<NewMember>,
    /// The new cluster's token.
    pub token: String,
    /// The revision of the content: in the backup, or after the replay.
    pub revision: i64,
    /// The highest revision known to have been seen.
    pub highest_seen: i64,
    /// How far the revision is moved up; 0: not at all.
    pub bump: i64,
    /// The revision the new cluster starts at.
    pub revision_after: i64,
    /// Everything before `revision_after` is compacted.
    pub mark_compacted: bool,
    /// Alarms are removed.
    pub clear_alarms: bool,
    /// Alarms in the backup.
    pub alarms: Vec<String>,
    /// Whether authentication is on in the backup.
    pub is_auth_enabled: bool,
    /// Where sealed copies are spooled.
    pub work_dir: PathBuf,
    /// The changes after the backup that are replayed onto it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// What a person should know before going on.
    pub warnings: Vec<String>,
}

impl RestorePlan {
    /// Notes that the plan's revision is what was found for `wanted`.
    #[must_use]
    pub fn answering(mut self, wanted: Wanted) -> Self {
        if let Wanted::Time(time) = wanted {
            self.until = self.until.min(time);
        }
        self.wanted = wanted;
        self
    }

    /// What to write into the ledger before the new cluster can be seen.
    pub fn observation(&self, now: DateTime<Utc>) -> Observation {
        Observation {
            cluster: self.cluster.clone(),
            revision: self.revision_after,
            at: now,
            reason: Reason::Restore,
            head: None,
        }
    }
}

/// Decides what a restore will do, from what the catalog says.
pub fn plan_restore(
    catalog: &Catalog,
    pick: Pick,
    options: &RestoreOptions,
) -> Result<RestorePlan> {
    let backup = choose(catalog, pick)?;
    let chosen = Chosen {
        backup,
        replay: None,
        until: backup.manifest.started,
        wanted: Wanted::Backup,
        broken: None,
        seen: 0,
    };
    plan_of(catalog, chosen, options)
}

/// What of the vault a restore takes.
struct Chosen<'a> {
    backup: &'a Backup,
    replay: Option<Replay>,
    until: DateTime<Utc>,
    wanted: Wanted,
    /// What is wrong with the changes right behind it.
    broken: Option<&'a Flaw>,
    /// A revision that somebody may have seen, beside those that the catalog knows.
    seen: i64,
}

impl Chosen<'_> {
    /// Newer backups that hold something which the result does not, where the newest was wanted.
    fn passed_over(&self, catalog: &Catalog) -> Vec<PassedOver> {
        let own = &self.backup.manifest;
        let reached = self
            .replay
            .as_ref()
            .map_or(own.content.revision, |replay| replay.upto);
        let is_missed = |other: &&Backup| {
            let other = &other.manifest;
            let is_held = self.replay.is_some()
                && other.generation == own.generation
                && other.content.revision <= reached;
            other.sequence > own.sequence && !is_held
        };
        if !matches!(self.wanted, Wanted::Backup | Wanted::Newest) {
            return Vec::new();
        }
        let missed = catalog.backups.iter().filter(is_missed);
        let told = missed.map(|other| PassedOver {
            id: other.id(),
            time: other.manifest.started,
            revision: other.manifest.content.revision,
            level: other.level(),
            is_damaged: other.is_damaged(),
        });
        told.collect()
    }
}

/// The plan for a backup and the changes after it.
fn plan_of(catalog: &Catalog, chosen: Chosen<'_>, options: &RestoreOptions) -> Result<RestorePlan> {
    let write = planned_members(options)?;
    let passed_over = chosen.passed_over(catalog);
    let Chosen {
        backup,
        replay,
        until,
        wanted,
        broken,
        seen,
    } = chosen;
    let manifest = &backup.manifest;
    let highest_seen = catalog.highest_revision().max(seen);
    let revision = replay
        .as_ref()
        .map_or(manifest.content.revision, |replay| replay.upto);
    let (more, more_stored) = replay
        .as_ref()
        .map_or((0, 0), |replay| (replay.bytes, replay.stored_bytes));
    let bump = bump(revision, highest_seen, options.bump)?;
    let revision_after = moved(revision, bump)?;
    let token = options
        .token
        .clone()
        .unwrap_or_else(|| format!("holdfast-{}", options.restore_id));
    let work_dir = options
        .work_dir
        .clone()
        .unwrap_or_else(|| parent(&options.data_dir));
    let mut plan = RestorePlan {
        restore_id: options.restore_id,
        cluster: catalog.cluster.clone(),
        id: backup.id(),
        sequence: manifest.sequence,
        manifest: backup.link.digest,
        time: manifest.started,
        level: backup.level(),
        bytes: manifest.content.bytes.saturating_add(more),
        stored_bytes: manifest.stored_bytes().saturating_add(more_stored),
        wanted,
        until,
        passed_over,
        target: options.target,
        data_dir: options.data_dir.clone(),
        write,
        members: options.members.clone(),
        token,
        revision,
        highest_seen,
        bump,
        revision_after,
        mark_compacted: options.mark_compacted,
        clear_alarms: options.clear_alarms,
        alarms: manifest.content.alarms.clone(),
        is_auth_enabled: manifest.content.is_auth_enabled,
        work_dir,
        replay,
        warnings: Vec::new(),
    };
    plan.warnings = display::warnings(&plan, catalog, (backup, broken));
    Ok(plan)
}

/// Whether this backup may be chosen without being asked for by its id.
fn is_sound(backup: &Backup) -> bool {
    !backup.is_damaged()
}

/// The backup that `pick` means.
pub fn choose(catalog: &Catalog, pick: Pick) -> Result<&Backup> {
    let newest_first = || catalog.backups.iter().rev().filter(|one| is_sound(one));
    let (found, wish) = match pick {
        Pick::Id(id) => return catalog.get_named(id),
        Pick::LatestProven => (
            newest_first().find(|one| one.level() >= Some(Level::L3)),
            "proven by a drill (L3)".to_owned(),
        ),
        Pick::Latest => (newest_first().next(), "undamaged".to_owned()),
        Pick::Revision(limit) => (
            newest_first().find(|one| one.manifest.content.revision <= limit),
            format!("undamaged and at or before revision {limit}"),
        ),
        Pick::Time(limit) => (
            newest_first().find(|one| one.manifest.started <= limit),
            format!("undamaged and begun at or before {limit}"),
        ),
    };
    found.ok_or_else(|| {
        let count = catalog.backups.len();
        let newest = newest_first().next().map_or_else(
            || "no undamaged one".to_owned(),
            |one| {
                let level = one
                    .level()
                    .map_or("unproven".to_owned(), |level| level.to_string());
                format!("the newest undamaged one is {} ({level})", one.id())
            },
        );
        let reason = format!("none of {count} backups is {wish}; {newest}");
        Error::NothingToRestore { reason }
    })
}

fn bump(revision: i64, highest_seen: i64, wish: Bump) -> Result<i64> {
    let overflow = |bump| Error::BumpOverflow { revision, bump };
    match wish {
        Bump::None => Ok(0),
        Bump::By(bump) if bump < 1 => Err(Error::Refused {
            reason: "a bump is at least 1; leave it out for none".to_owned(),
        }),
        Bump::By(bump) => Ok(bump),
        Bump::Auto => {
            let behind = highest_seen.saturating_sub(revision).max(0);
            behind
                .checked_add(BUMP_FLOOR)
                .ok_or_else(|| overflow(behind))
        }
    }
}

fn moved(revision: i64, bump: i64) -> Result<i64> {
    revision
        .checked_add(bump)
        .filter(|after| *after <= REVISION_MAX)
        .ok_or(Error::BumpOverflow { revision, bump })
}

fn parent(path: &std::path::Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn planned_members(options: &RestoreOptions) -> Result<Vec<PlannedMember>> {
    let refuse = |reason: String| Err(Error::Refused { reason });
    let members = &options.members;
    if members.is_empty() || members.len() > MEMBERS_MAX {
        return refuse(format!("a cluster has 1 to {MEMBERS_MAX} members"));
    }
    if options.data_dir.file_name().is_none() {
        return refuse(format!(
            "{} is no folder to create",
            options.data_dir.display()
        ));
    }
    if options.token.as_ref().is_some_and(String::is_empty) {
        return refuse("the cluster token is empty".to_owned());
    }
    let mut urls = Vec::new();
    for (index, member) in members.iter().enumerate() {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name = &member.name;
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
            return refuse(format!(
                "member name {name:?}: only letters, digits and . _ -"
            ));
        }
        if members.iter().take(index).any(|other| other.name == *name) {
            return refuse(format!("two members are named {name}"));
        }
        if member.peer_urls.is_empty() {
            return refuse(format!("member {name} has no peer URL"));
        }
        for url in &member.peer_urls {
            if !(url.starts_with("http://") || url.starts_with("https://")) {
                return refuse(format!("peer URL {url}: the scheme must be http or https"));
            }
            if urls.contains(&url) {
                return refuse(format!("peer URL {url} is given twice"));
            }
            urls.push(url);
        }
    }
    let names: Vec<&String> = if options.write.is_empty() {
        members.iter().map(|member| &member.name).collect()
    } else {
        options.write.iter().collect()
    };
    for (index, name) in names.iter().enumerate() {
        if !members.iter().any(|member| member.name == **name) {
            return refuse(format!("member {name} is not one of the new cluster's"));
        }
        if names.iter().take(index).any(|other| other == name) {
            return refuse(format!("member {name} is to be written twice"));
        }
    }
    let is_single = names.len() == 1;
    let place = |name: &String| PlannedMember {
        name: name.clone(),
        data_dir: if is_single {
            options.data_dir.clone()
        } else {
            options.data_dir.join(name)
        },
    };
    Ok(names.into_iter().map(place).collect())
}

#[cfg(test)]
mod history;
#[cfg(test)]
mod tests;
