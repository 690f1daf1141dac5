//! Whether the objectives are met now, from evidence and with the numbers.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{DrillId, Error, Level, SnapshotId, Span};

/// Tolerated loss: how old the newest usable backup may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rpo(pub Span);

/// Tolerated time to be back: from choosing a backup until the restored cluster serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rto(pub Span);

/// What the operator wants to hold at all times. What is not set is not judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Objective {
    /// Tolerated loss. Default: `2h`.
    pub rpo: Option<Rpo>,
    /// Tolerated time to be back. Default: not set.
    pub rto: Option<Rto>,
    /// How old the newest passed drill may be. Default: `8d`.
    pub drill_age: Option<Span>,
    /// Level of proof a backup needs to count for `rpo`. Default: `L0` (signed and complete).
    pub rpo_level: Level,
}

impl Default for Objective {
    fn default() -> Self {
        Self {
            rpo: Some(Rpo(Span::from_secs(2 * 3600))),
            rto: None,
            drill_age: Some(Span::from_secs(8 * 86_400)),
            rpo_level: Level::L0,
        }
    }
}

/// A backup as far as objectives need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BackupPoint {
    /// Its id.
    pub id: SnapshotId,
    /// When its content was read.
    pub time: DateTime<Utc>,
    /// The store's main revision it was read at.
    pub revision: i64,
    /// Highest level of proof reached.
    pub level: Level,
}

/// Until when the changes after a usable backup are in the vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CapturedPoint {
    /// By then the source had nothing newer.
    pub time: DateTime<Utc>,
    /// The newest revision captured.
    pub revision: i64,
}

/// A drill as far as objectives need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DrillPoint {
    /// Its id.
    pub id: DrillId,
    /// When it ended.
    pub time: DateTime<Utc>,
    /// Whether it passed; an inconclusive drill did not.
    pub is_passed: bool,
    /// Measured time from choosing the backup until serving, where it came that far.
    pub rto: Option<Span>,
}

/// What the vault and the source say now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Evidence {
    /// The newest usable backup at [`Objective::rpo_level`] or more.
    pub newest: Option<BackupPoint>,
    /// The newest usable backup at L3 or more.
    pub newest_proven: Option<BackupPoint>,
    /// How far the changes go that follow a usable backup at [`Objective::rpo_level`] or more,
    /// without anything missing between them.
    pub captured: Option<CapturedPoint>,
    /// The highest revision of the source known, and when it was seen.
    pub source: Option<(i64, DateTime<Utc>)>,
    /// The newest drill, whatever its outcome.
    pub last_drill: Option<DrillPoint>,
    /// The newest drill that passed.
    pub last_passed: Option<DrillPoint>,
}

/// How one objective stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// There is no such objective.
    NotSet,
    /// It holds.
    Met,
    /// It does not hold, or nothing shows that it does.
    Missed,
}

/// One objective, judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// How it stands.
    pub standing: Standing,
    /// What was asked for.
    pub objective: Option<Span>,
    /// What is; `None` when there is no evidence.
    pub measured: Option<Span>,
    /// The same for people, in one clause.
    pub because: String,
}

/// Every objective, judged at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObjectiveStatus {
    /// When it was judged.
    pub at: DateTime<Utc>,
    /// Loss if the source were gone now.
    pub rpo: Judgement,
    /// Revisions of the source that no usable backup holds, when both are known.
    pub revisions_at_risk: Option<u64>,
    /// Time to be back, as last measured by a passed drill.
    pub rto: Judgement,
    /// Age of the last passed drill.
    pub drill: Judgement,
}

impl Objective {
    /// Refuses objectives that nothing could meet.
    pub fn check(&self) -> Result<(), Error> {
        let spans = [
            ("policies.objective.rpo", self.rpo.map(|rpo| rpo.0)),
            ("policies.objective.rto", self.rto.map(|rto| rto.0)),
            ("policies.objective.drill_age", self.drill_age),
        ];
        for (setting, span) in spans {
            if span == Some(Span::ZERO) {
                let rule = "nothing takes no time; leave it out instead".to_owned();
                return Err(Error::Policy { setting, rule });
            }
        }
        Ok(())
    }

    /// Judges every objective from the evidence at `now`.
    pub fn judge(&self, evidence: &Evidence, now: DateTime<Utc>) -> ObjectiveStatus {
        ObjectiveStatus {
            at: now,
            rpo: self.judge_rpo(evidence, now),
            revisions_at_risk: revisions_at_risk(evidence),
            rto: self.judge_rto(evidence),
            drill: self.judge_drill(evidence, now),
        }
    }

    fn judge_rpo(&self, evidence: &Evidence, now: DateTime<Utc>) -> Judgement {
        let objective = self.rpo.map(|rpo| rpo.0);
        let Some(newest) = evidence.newest else {
            let because = format!("there is no usable backup at {} or more", self.rpo_level);
            return Judgement::new(objective, None, because);
        };
        // Nothing was written after the backup: as of that look at the source, nothing is lost.
        let (known_at, word, what, revision) = match (evidence.source, evidence.captured) {
            (Some((revision, seen)), _) if revision <= newest.revision && seen > newest.time => {
                let word = "nothing was written since, as seen";
                (seen, word, "newest backup", newest.revision)
            }
            (_, Some(captured)) if captured.time > newest.time => {
                let word = "the newest changes were captured";
                (captured.time, word, "newest delta", captured.revision)
            }
            _ => {
                let word = "the newest backup was read";
                (newest.time, word, "newest backup", newest.revision)
            }
        };
        match age(known_at, now) {
            Some(age) => {
                let because = format!("{word} {} ago (revision {revision})", Coarse(age));
                Judgement::new(objective, Some(age), because)
            }
            None => Judgement::new(objective, None, clock_text(what, known_at, now)),
        }
    }

    fn judge_rto(&self, evidence: &Evidence) -> Judgement {
        let objective = self.rto.map(|rto| rto.0);
        match evidence
            .last_passed
            .and_then(|drill| Some((drill, drill.rto?)))
        {
            Some((drill, rto)) => {
                let because = format!("measured {rto} by drill {}", drill.id);
                Judgement::new(objective, Some(rto), because)
            }
            None => Judgement::new(objective, None, "no drill has passed yet".to_owned()),
        }
    }

    fn judge_drill(&self, evidence: &Evidence, now: DateTime<Utc>) -> Judgement {
        let Some(passed) = evidence.last_passed else {
            let because = match evidence.last_drill {
                Some(drill) => format!("no drill has passed yet, {} did not", drill.id),
                None => "no drill was run yet".to_owned(),
            };
            return Judgement::new(self.drill_age, None, because);
        };
        let Some(age) = age(passed.time, now) else {
            let because = clock_text("last passed drill", passed.time, now);
            return Judgement::new(self.drill_age, None, because);
        };
        let mut judgement = Judgement::new(
            self.drill_age,
            Some(age),
            format!("last passed drill ended {} ago", Coarse(age)),
        );
        // A newer failure outweighs an older pass, whatever the ages.
        let failed = evidence
            .last_drill
            .filter(|last| !last.is_passed && last.time > passed.time);
        if let (Some(failed), Some(_)) = (failed, self.drill_age) {
            judgement.standing = Standing::Missed;
            judgement.because = format!("the last drill, {}, did not pass", failed.id);
        }
        judgement
    }
}

impl Judgement {
    fn new(objective: Option<Span>, measured: Option<Span>, because: String) -> Self {
        let standing = match (objective, measured) {
            (None, _) => Standing::NotSet,
            (Some(objective), Some(measured)) if measured <= objective => Standing::Met,
            (Some(_), _) => Standing::Missed,
        };
        Self {
            standing,
            objective,
            measured,
            because,
        }
    }
}

impl ObjectiveStatus {
    /// Missed when any objective that is set is missed.
    pub fn overall(&self) -> Standing {
        [self.rpo.standing, self.rto.standing, self.drill.standing]
            .into_iter()
            .max()
            .unwrap_or(Standing::NotSet)
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.standing, self.objective) {
            (Standing::Met, Some(objective)) => write!(f, "met (within {objective}): ")?,
            (Standing::Missed, Some(objective)) => write!(f, "MISSED (wanted {objective}): ")?,
            _ => f.write_str("not set: ")?,
        }
        f.write_str(&self.because)
    }
}

fn revisions_at_risk(evidence: &Evidence) -> Option<u64> {
    let (source, _) = evidence.source?;
    let captured = evidence.captured.map_or(0, |captured| captured.revision);
    let saved = evidence.newest.map_or(0, |newest| newest.revision);
    let saved = saved.max(captured);
    u64::try_from(source.saturating_sub(saved).max(0)).ok()
}

/// How long ago `then` was; `None` when it is more than a minute ahead.
fn age(then: DateTime<Utc>, now: DateTime<Utc>) -> Option<Span> {
    let age = now - then;
    match age.to_std() {
        Ok(age) => Some(Span::from(age)),
        Err(_) if age >= chrono::TimeDelta::minutes(-1) => Some(Span::ZERO),
        Err(_) => None,
    }
}

fn clock_text(what: &str, time: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let (time, now) = (time.format("%FT%TZ"), now.format("%FT%TZ"));
    format!("clocks disagree: the {what} says {time}, now is {now}")
}

/// A span without its milliseconds.
struct Coarse(Span);

impl fmt::Display for Coarse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Span::from_secs(self.0.as_duration().as_secs()), f)
    }
}
