//! A restore plan for people.

use std::fmt;

use chrono::{DateTime, Utc};
use holdfast_policies::{ByteSize, Level};

use super::{Bump, PassedOver, Replay, RestorePlan, Target, Wanted};
use crate::flaw::Flaw;
use crate::vault::{Backup, Catalog};

/// A time as plans have it.
pub(super) fn utc(time: DateTime<Utc>) -> impl fmt::Display {
    time.format("%Y-%m-%d %H:%M:%S UTC")
}

/// What a person should know before going on. `broken`: what is wrong with the changes right behind
/// the result.
pub(super) fn warnings(
    plan: &RestorePlan,
    catalog: &Catalog,
    (backup, broken): (&Backup, Option<&Flaw>),
) -> Vec<String> {
    let mut warnings = Vec::new();
    if let (Wanted::Newest, Some(flaw)) = (plan.wanted, broken) {
        warnings.push(format!(
            "changes after revision {} were captured and cannot be used: {flaw}",
            plan.revision
        ));
    }
    if backup.is_damaged() {
        warnings.push(
            "the backup was found damaged; the restore will fail unless that was repaired"
                .to_owned(),
        );
    }
    if let Ok(trashed) = catalog.trashed(backup.id()) {
        warnings.push(format!(
            "the backup is in the trash since {} ({}): bring it back if it is to stay",
            trashed.release.at,
            trashed.release.why()
        ));
    }
    if plan.level < Some(Level::L3) {
        warnings.push("no drill has ever restored this backup".to_owned());
    }
    if plan.bump == 0 {
        warnings.push(
            "no bump: clients resume old watches without an error and miss what was undone"
                .to_owned(),
        );
    }
    if plan.members.len() > 1 && plan.revision_after == plan.highest_seen {
        warnings.push(format!(
            "the revision {} was recorded already: right where another member of this new cluster \
             was restored with the same backup, token and bump, wrong otherwise",
            plan.revision_after
        ));
    } else if plan.revision_after <= plan.highest_seen {
        warnings.push(format!(
            "revisions up to {} were seen by clients; the new cluster starts at {} and will reuse \
             some of them",
            plan.highest_seen, plan.revision_after
        ));
    }
    if plan.bump > 0 && !plan.mark_compacted {
        warnings
            .push("not compacted: old watches resume silently instead of being told".to_owned());
    }
    if plan.alarms.iter().any(|alarm| alarm.contains("NOSPACE")) && !plan.clear_alarms {
        warnings.push(
            "the backup holds a NOSPACE alarm: the new cluster refuses writes until it is \
             disarmed; --clear-alarms removes it"
                .to_owned(),
        );
    }
    if plan.alarms.iter().any(|alarm| alarm.contains("CORRUPT")) {
        warnings.push("the backup holds a CORRUPT alarm: its source was in doubt".to_owned());
    }
    if plan.is_auth_enabled {
        warnings.push("authentication is on in the backup: clients need its users".to_owned());
    }
    warnings.extend(
        catalog
            .flaws
            .iter()
            .map(|flaw| format!("the vault's history: {flaw}")),
    );
    warnings
}

impl fmt::Display for Bump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::By(bump) => write!(f, "{bump}"),
            Self::None => f.write_str("none"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holdfast => "holdfast",
            Self::Etcd => "etcd",
        })
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deltas = if self.count == 1 { "delta" } else { "deltas" };
        write!(
            f,
            "{} {deltas} after it ({}), from revision {} to {}",
            self.count,
            ByteSize::new(self.bytes).rounded(),
            self.after,
            self.upto
        )
    }
}

fn passed_over(f: &mut fmt::Formatter<'_>, plan: &RestorePlan, newer: &PassedOver) -> fmt::Result {
    let why = match (newer.is_damaged, newer.level) {
        (true, _) => "damaged".to_owned(),
        (false, Some(level)) => level.to_string(),
        (false, None) => "unproven".to_owned(),
    };
    let seconds = (newer.time - plan.time).num_seconds();
    write!(f, "  passed over {} ({why}): {seconds} s ", newer.id)?;
    let further = newer.revision.saturating_sub(plan.revision);
    if further < 0 {
        // A source that was made anew counts from the start.
        write!(
            f,
            "newer, at revision {} of another history",
            newer.revision
        )
    } else if further == 1 {
        f.write_str("and 1 revision newer")
    } else {
        write!(f, "and {further} revisions newer")
    }
}

/// How far the result goes, and what of that which was asked for is not in it.
fn state(f: &mut fmt::Formatter<'_>, plan: &RestorePlan) -> fmt::Result {
    match (&plan.replay, plan.wanted) {
        (Some(replay), _) => writeln!(f, "  changes    {replay}")?,
        (None, Wanted::Backup) => {}
        (None, _) => writeln!(f, "  changes    none: the backup itself is the state")?,
    }
    let until = utc(plan.until);
    match plan.wanted {
        Wanted::Backup => Ok(()),
        Wanted::Newest => writeln!(
            f,
            "  until      {until}; later changes are not in the vault"
        ),
        Wanted::Revision => writeln!(f, "  state      revision {}, seen {until}", plan.revision),
        Wanted::BeforeDelete(revision) => writeln!(
            f,
            "  state      revision {}, before the delete at revision {revision}",
            plan.revision
        ),
        Wanted::Time(time) if plan.until < time => writeln!(
            f,
            "  until      {until}; what changed from then to {} is not in the vault",
            utc(time)
        ),
        Wanted::Time(time) => {
            writeln!(
                f,
                "  state      revision {}, the newest at {}",
                plan.revision,
                utc(time)
            )
        }
    }
}

impl fmt::Display for RestorePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.level.map_or_else(
            || "unproven".to_owned(),
            |level| format!("{level} ({})", level.word()),
        );
        let size = ByteSize::new(self.bytes).rounded();
        let stored = ByteSize::new(self.stored_bytes).rounded();
        writeln!(f, "restore {}", self.restore_id)?;
        writeln!(f, "  backup     {} of {}, {level}", self.id, self.cluster)?;
        writeln!(f, "  taken      {}", utc(self.time))?;
        writeln!(f, "  size       {size} ({stored} in the vault)")?;
        state(f, self)?;
        let latest = self.passed_over.iter().rfind(|one| !one.is_damaged);
        for newer in &self.passed_over {
            passed_over(f, self, newer)?;
            if Some(newer) == latest {
                f.write_str("; --latest takes it")?;
            }
            writeln!(f)?;
        }
        writeln!(
            f,
            "  target     {} data in {}",
            self.target,
            self.data_dir.display()
        )?;
        for member in &self.members {
            let written = self.write.iter().find(|one| one.name == member.name);
            let place = written.map_or_else(
                || "not written here".to_owned(),
                |one| one.data_dir.display().to_string(),
            );
            writeln!(
                f,
                "  member     {} {} -> {place}",
                member.name,
                member.peer_urls.join(",")
            )?;
        }
        writeln!(f, "  token      {}", self.token)?;
        writeln!(
            f,
            "  revision   {} + {} = {} (highest ever seen: {})",
            self.revision, self.bump, self.revision_after, self.highest_seen
        )?;
        let compacted = if self.mark_compacted && self.bump > 0 {
            "everything before it: old watches are told \"compacted\""
        } else {
            "nothing more than in the backup"
        };
        writeln!(f, "  compacted  {compacted}")?;
        let alarms = match (self.alarms.is_empty(), self.clear_alarms) {
            (true, _) => "none".to_owned(),
            (false, true) => format!("{} (removed)", self.alarms.join(", ")),
            (false, false) => format!("{} (kept)", self.alarms.join(", ")),
        };
        writeln!(f, "  alarms     {alarms}")?;
        for warning in &self.warnings {
            writeln!(f, "  warning    {warning}")?;
        }
        Ok(())
    }
}
