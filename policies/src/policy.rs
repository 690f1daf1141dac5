//! The `policies` section of the configuration file.

use serde::{Deserialize, Serialize};

use crate::schedule::{MissedRun, Schedule, TimeZone};
use crate::{CapturePolicy, EncryptionRule, Error, Level, Objective, RetentionPolicy, Span};

/// Everything that decides what happens when, and what is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyOptions {
    /// To whom backups are sealed. There is no default: `encryption: none` has to be written.
    pub encryption: EncryptionRule,
    /// When backups are taken and how far each is verified.
    #[serde(default)]
    pub backup: BackupPolicy,
    /// Whether the changes between backups are captured.
    #[serde(default)]
    pub capture: CapturePolicy,
    /// When restores are rehearsed.
    #[serde(default)]
    pub drill: DrillPolicy,
    /// Which backups stay.
    #[serde(default)]
    pub retention: RetentionPolicy,
    /// What must hold at all times.
    #[serde(default)]
    pub objective: Objective,
}

/// When backups are taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackupPolicy {
    /// Five cron fields, `@hourly` and its kin, or `@every 20m`. Default: `@hourly`.
    /// `null` leaves backups to `holdfast backup now`.
    pub schedule: Option<String>,
    /// IANA name of the zone the schedule follows. Default: `UTC`.
    pub time_zone: TimeZone,
    /// What becomes of runs missed while the daemon was down. Default: `once`.
    pub missed_run: MissedRun,
    /// Level each backup is verified to, as far as the keys at hand allow: L0 to L2. Default: `L2`.
    pub verify: Level,
}

impl Default for BackupPolicy {
    fn default() -> Self {
        Self {
            schedule: Some("@hourly".to_owned()),
            time_zone: TimeZone::UTC,
            missed_run: MissedRun::Once,
            verify: Level::L2,
        }
    }
}

/// When restores are rehearsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DrillPolicy {
    /// As for backups. Default: `30 3 * * SUN`. `null` leaves drills to `holdfast drill run`.
    pub schedule: Option<String>,
    /// IANA name of the zone the schedule follows. Default: `UTC`.
    pub time_zone: TimeZone,
    /// What becomes of runs missed while the daemon was down. Default: `once`.
    pub missed_run: MissedRun,
    /// A drill not done by then has failed. Default: `1h`.
    pub deadline: Span,
}

impl Default for DrillPolicy {
    fn default() -> Self {
        Self {
            schedule: Some("30 3 * * SUN".to_owned()),
            time_zone: TimeZone::UTC,
            missed_run: MissedRun::Once,
            deadline: Span::from_secs(3600),
        }
    }
}

impl BackupPolicy {
    /// The schedule, read; `None` when there is none.
    pub fn schedule(&self) -> Result<Option<Schedule>, Error> {
        read(self.schedule.as_deref(), self.time_zone)
    }
}

impl DrillPolicy {
    /// The schedule, read; `None` when there is none.
    pub fn schedule(&self) -> Result<Option<Schedule>, Error> {
        read(self.schedule.as_deref(), self.time_zone)
    }
}

fn read(text: Option<&str>, zone: TimeZone) -> Result<Option<Schedule>, Error> {
    text.map(|text| Schedule::parse(text, zone)).transpose()
}

impl PolicyOptions {
    /// A policy with every default, sealed (or not) as `encryption` says.
    pub fn new(encryption: EncryptionRule) -> Self {
        Self {
            encryption,
            backup: BackupPolicy::default(),
            capture: CapturePolicy::default(),
            drill: DrillPolicy::default(),
            retention: RetentionPolicy::default(),
            objective: Objective::default(),
        }
    }

    /// Refuses what cannot work. Needs nothing but the text: run it before anything starts.
    pub fn check(&self) -> Result<(), Error> {
        self.encryption.check()?;
        self.backup.schedule()?;
        self.capture.check()?;
        self.drill.schedule()?;
        self.retention.check()?;
        self.objective.check()?;
        if self.backup.verify > Level::L2 {
            let rule = format!(
                "a backup is verified to L2 at most, a drill does {}",
                self.backup.verify
            );
            return Err(Error::Policy {
                setting: "policies.backup.verify",
                rule,
            });
        }
        if self.drill.deadline == Span::ZERO {
            let rule = "no drill is done in no time".to_owned();
            return Err(Error::Policy {
                setting: "policies.drill.deadline",
                rule,
            });
        }
        Ok(())
    }

    /// What is allowed and may still surprise: one line each.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let schedules = [
            ("backup", self.backup.schedule()),
            ("drill", self.drill.schedule()),
        ];
        for (name, schedule) in schedules {
            if let Ok(Some(schedule)) = schedule {
                remarks.extend(
                    schedule
                        .remarks()
                        .iter()
                        .map(|text| format!("{name}: {text}")),
                );
            }
        }
        if self.retention.count_from > self.backup.verify {
            remarks.push(format!(
                "retention counts backups from {} and each is verified to {}: only drills let \
                 anything be released",
                self.retention.count_from, self.backup.verify
            ));
        }
        if self.retention.trash_grace == Span::ZERO {
            remarks.push(
                "retention.trash_grace is 0s: what retention lets go is removed at once and \
                 cannot be brought back"
                    .to_owned(),
            );
        }
        remarks.extend(self.too_rare());
        remarks
    }

    /// Objectives that the schedules cannot keep, by the longest time between two runs.
    fn too_rare(&self) -> Vec<String> {
        let longest = |schedule: Result<Option<Schedule>, Error>| {
            schedule.ok().flatten().and_then(|one| one.longest_gap())
        };
        let backups = longest(self.backup.schedule());
        let drills = longest(self.drill.schedule());
        let objective = &self.objective;
        // What proves a backup to the level that counts.
        let (what, gap) = if objective.rpo_level > self.backup.verify {
            ("drills", drills)
        } else {
            match self.capture.every() {
                Some(every) => ("captured changes", Some(every)),
                None => ("backups", backups),
            }
        };
        let mut remarks = Vec::new();
        let mut judge = |name: &str, what: &str, gap: Option<Span>, wanted: Option<Span>| {
            if let (Some(gap), Some(wanted)) = (gap, wanted)
                && gap > wanted
            {
                remarks.push(format!(
                    "{what} are up to {gap} apart and objective.{name} is {wanted}: it is missed \
                     between them"
                ));
            }
        };
        judge("rpo", what, gap, objective.rpo.map(|rpo| rpo.0));
        judge("drill_age", "drills", drills, objective.drill_age);
        remarks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remarks(change: impl FnOnce(&mut PolicyOptions)) -> Vec<String> {
        let mut policy = PolicyOptions::new(EncryptionRule::None);
        change(&mut policy);
        policy.remarks()
    }

    #[test]
    fn an_objective_that_the_schedule_cannot_keep_is_remarked() {
        assert_eq!(remarks(|_| ()), [""; 0]);
        let short = remarks(|policy| policy.objective.rpo = Some(crate::Rpo(Span::from_secs(600))));
        assert!(
            short[0].starts_with("backups are up to 1h apart"),
            "{short:?}"
        );
        let captured = remarks(|policy| {
            policy.objective.rpo = Some(crate::Rpo(Span::from_secs(600)));
            policy.capture = CapturePolicy::Every(Span::from_secs(10));
        });
        assert_eq!(captured, [""; 0]);
        let proven = remarks(|policy| policy.objective.rpo_level = Level::L3);
        assert!(
            proven[0].starts_with("drills are up to 7d apart"),
            "{proven:?}"
        );
        let monthly = remarks(|policy| policy.drill.schedule = Some("@monthly".to_owned()));
        assert!(
            monthly[0].contains("objective.drill_age is 8d"),
            "{monthly:?}"
        );
    }
}
