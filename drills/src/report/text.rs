//! The report for people.

use std::fmt;

use holdfast_policies::{ByteSize, Span};

use super::{DrillReport, RpoRecord, TargetKind};
use crate::checks::Outcome;

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Inconclusive => "inconclusive",
            Self::Failed => "FAILED",
        })
    }
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Holdfast => "holdfast",
            Self::Etcd => "etcd",
        })
    }
}

impl fmt::Display for DrillReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "drill {} of {}: {}", self.id, self.cluster, self.outcome)?;
        writeln!(f, "  began     {}", self.started.format("%F %TZ"))?;
        self.write_backup(f)?;
        self.write_measures(f)?;
        for phase in &self.phases {
            writeln!(f, "  {:<9} took {}", phase.name, phase.took)?;
        }
        for check in &self.checks {
            writeln!(
                f,
                "  {:<12} {:<10} {}",
                check.outcome, check.name, check.detail
            )?;
        }
        if let Some(fault) = &self.fault {
            writeln!(f, "  broke off: {fault}")?;
        }
        if self.teardown.is_clean {
            write!(f, "  torn down: nothing is left")
        } else {
            write!(f, "  LEFT BEHIND: {}", self.teardown.left.join(", "))
        }
    }
}

impl DrillReport {
    fn write_backup(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(backup) = &self.backup else {
            return writeln!(f, "  backup    none could be chosen");
        };
        let level = backup
            .level
            .map_or("unproven".to_owned(), |level| level.to_string());
        writeln!(
            f,
            "  backup    {} of {}, revision {}, {} keys, {} ({level} before)",
            backup.id,
            backup.time.format("%F %TZ"),
            backup.revision,
            backup.keys,
            ByteSize::new(backup.bytes).rounded()
        )?;
        writeln!(f, "  manifest  sha256 {}", backup.manifest)?;
        writeln!(
            f,
            "  content   sha256 {}, HashKV {}",
            backup.content, backup.hash_kv
        )?;
        if let Some(replayed) = &self.replayed {
            let compared = replayed.compared.map_or_else(
                || "no hash of the source in them".to_owned(),
                |revision| format!("HashKV compared at revision {revision}"),
            );
            writeln!(
                f,
                "  changes   {} deltas to revision {}, until {}, {compared}",
                replayed.deltas,
                replayed.revision,
                replayed.until.format("%F %TZ")
            )?;
        }
        let Some(restored) = &self.restored else {
            return Ok(());
        };
        let from = self
            .replayed
            .as_ref()
            .map_or(backup.revision, |replayed| replayed.revision);
        let version = restored
            .server_version
            .as_deref()
            .unwrap_or("of unknown version");
        let members = match restored.members {
            1 => String::new(),
            count => format!("{count} members of "),
        };
        writeln!(
            f,
            "  restored  to {}{} {version}, from revision {} to {} (seen: {})",
            members, self.target, from, restored.revision, restored.highest_seen
        )
    }

    fn write_measures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rto = self
            .rto
            .map_or("not reached".to_owned(), |rto| rto.to_string());
        writeln!(
            f,
            "  RTO       {rto}{}",
            verdict(self.rto_objective, self.is_rto_met())
        )?;
        let Some(rpo) = &self.rpo else {
            return writeln!(f, "  RPO       unknown");
        };
        let RpoRecord {
            age,
            revisions_missing,
            newest_known,
            ..
        } = rpo;
        writeln!(
            f,
            "  RPO       {age}, {revisions_missing} revisions (newest known: {newest_known}){}",
            verdict(rpo.objective, self.is_rpo_met())
        )
    }
}

fn verdict(objective: Option<Span>, is_met: Option<bool>) -> String {
    match (objective, is_met) {
        (Some(objective), Some(true)) => format!(", within {objective}"),
        (Some(objective), _) => format!(", MORE THAN {objective}"),
        _ => String::new(),
    }
}
