//! How a source stands, from what is in its vault: freshness is never what the process believes.

mod capture;

use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use holdfast_policies::objective::{BackupPoint, DrillPoint};
use holdfast_policies::retention::Removal;
use holdfast_policies::{
    ByteSize, Evidence, Level, Objective, ObjectiveStatus, Schedule, SnapshotId,
};
use holdfast_restore::delta::run::{Known, Runs};
use holdfast_restore::prune::removals;
use holdfast_restore::waiting::Waiting;
use holdfast_restore::{Backup, Catalog, ReadOnly, Trust, Vault};
use serde::Serialize;

use crate::alarms::{Alarm, AlarmName};
use crate::config::{FIRST, Settings, Source};
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::jobs::board::{Failing, label};
use crate::jobs::drill::{self, DrillWords};
use crate::jobs::prune_log::PruneLog;
use crate::jobs::turn::Turn;
use crate::vaults::copies::CopyStatus;
use crate::{jobs, keys, vaults};

/// How long after its time a backup may be in the trash before somebody is told: prunes come after
/// backups.
const OVERDUE: TimeDelta = TimeDelta::days(1);

pub(crate) use capture::CaptureStatus;

/// Most backups named that nobody here can open.
const UNOPENABLE_NAMED_MAX: usize = 3;

/// A backup in a few words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct BackupWords {
    /// Its id.
    pub(crate) id: SnapshotId,
    /// When it was begun.
    pub(crate) time: DateTime<Utc>,
    /// Revision of its content.
    pub(crate) revision: i64,
    /// The proof it has reached.
    pub(crate) level: Level,
}

/// How a source stands.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SourceStatus {
    /// The source.
    pub(crate) source: String,
    /// When the vault was last read for this; `None` when it never was.
    pub(crate) read: Option<DateTime<Utc>>,
    /// The objectives, judged.
    pub(crate) objectives: ObjectiveStatus,
    /// What they were judged from.
    #[serde(skip)]
    pub(crate) evidence: Evidence,
    /// The newest usable backup.
    pub(crate) newest: Option<BackupWords>,
    /// The newest backup that a drill has proven.
    pub(crate) newest_proven: Option<BackupWords>,
    /// Backups in the vault.
    pub(crate) backups: usize,
    /// Other vaults that hold what the first one holds.
    pub(crate) copies: Vec<CopyStatus>,
    /// What waits on this host for the vault; `None` where nothing does.
    pub(crate) waiting: Option<Waiting>,
    /// The newest drill.
    pub(crate) last_drill: Option<DrillWords>,
    /// The newest drill that passed.
    pub(crate) last_passed_drill: Option<DrillWords>,
    /// When the next backup is planned; `None` also before the first of a schedule that counts
    /// from the start of the daemon.
    pub(crate) next_backup: Option<DateTime<Utc>>,
    /// When the next drill is planned, likewise.
    pub(crate) next_drill: Option<DateTime<Utc>>,
    /// The schedules of both, where there are any.
    #[serde(skip)]
    pub(crate) schedules: [Option<String>; 2],
    /// What somebody must be told.
    pub(crate) alarms: Vec<Alarm>,
    /// Backups in the trash.
    pub(crate) trash: usize,
    /// How capture stands, where changes are or were captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capture: Option<CaptureStatus>,
    /// What in the vault needs a person's eye.
    pub(crate) problems: Vec<String>,
    /// Whose turn it is to work, as this host's daemon says; `None` where it has nobody beside it
    /// or does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) turn: Option<Turn>,
}

impl SourceStatus {
    /// Nothing is known of a source: what has to be shown is not.
    pub(crate) fn unknown(source: &str, objective: &Objective, now: DateTime<Utc>) -> Self {
        let evidence = Evidence::default();
        Self {
            source: source.to_owned(),
            read: None,
            objectives: objective.judge(&evidence, now),
            evidence,
            newest: None,
            newest_proven: None,
            backups: 0,
            copies: Vec::new(),
            waiting: None,
            last_drill: None,
            last_passed_drill: None,
            next_backup: None,
            next_drill: None,
            schedules: [None, None],
            alarms: Vec::new(),
            trash: 0,
            capture: None,
            problems: Vec::new(),
            turn: None,
        }
    }

    /// The same, with what this process learned when it tried to copy.
    pub(crate) fn with_tries(mut self, failing: &Failing, now: DateTime<Utc>) -> Self {
        let before = problems_of(&self.copies, now);
        for copy in &mut self.copies {
            let place = jobs::copies::place(&self.source, &copy.vault);
            if let Some((since, reason)) = failing.get(&label(jobs::copies::KIND, &place)) {
                copy.tried(*since, reason);
            }
        }
        let after = problems_of(&self.copies, now);
        self.problems.retain(|one| !before.contains(one));
        self.problems.extend(after);
        let copies = self.copies.iter().map(|copy| copy.vault.as_str());
        for name in std::iter::once(FIRST).chain(copies) {
            let bad = failing.get(&label(jobs::checkup::KIND, name));
            let told = bad.map(|(_, reason)| format!("the vault `{name}` is {reason}"));
            self.problems.extend(told);
        }
        self
    }

    /// Takes in what waits on this host.
    pub(crate) fn with_waiting(&mut self, looked: Result<Option<Waiting>, String>) {
        match looked {
            Ok(waiting) => self.waiting = waiting,
            Err(reason) => self
                .problems
                .push(format!("what waits for the vault cannot be read: {reason}")),
        }
        if let Some(waiting) = &self.waiting {
            let count = waiting.backups;
            self.problems.push(format!(
                "{count} backups wait on this host for the vault to be reached"
            ));
        }
    }

    /// The same at `now`, when the vault could not be read: ages grow, and it says so.
    pub(crate) fn judged_without_the_vault(
        mut self,
        objective: &Objective,
        now: DateTime<Utc>,
        failure: &str,
    ) -> Self {
        self.objectives = objective.judge(&self.evidence, now);
        if let Some(capture) = &mut self.capture {
            capture.age(now);
        }
        let since = self.read.map_or(
            "it has never been read by this process".to_owned(),
            |read| format!("it was last read at {}", moment(read)),
        );
        self.problems
            .push(format!("the vault cannot be read now, {since}: {failure}"));
        self
    }
}

/// Reads the vault and judges the objectives of one source. `known`: what was read before, where
/// it is read again and again.
pub(crate) async fn gather(
    settings: &Settings,
    source: &Source,
    now: DateTime<Utc>,
    known: &mut Known,
) -> Result<SourceStatus, Failure> {
    let policies = settings.policies()?;
    let trust = match keys::trust(settings) {
        Ok(trust) => trust,
        // Before the first start there is no key, and nothing that it could have signed.
        Err(_) if settings.makes_keys() => Trust::default(),
        Err(failure) => return Err(failure),
    };
    let Reading {
        catalog,
        drills,
        runs,
        copies,
        closed,
    } = Reading::take(settings, source, &trust, known).await?;
    let mut problems = match &catalog {
        Some(catalog) => problems(catalog),
        None => missing(settings).await,
    };
    problems.extend(closed);
    problems.extend(problems_of(&copies, now));
    let waiting = jobs::waiting::look(settings, source, &trust).await?;
    problems.extend(runs.flaws.iter().map(ToString::to_string));
    let level = policies.objective.rpo_level;
    let captured = catalog.as_ref();
    let captured = captured.and_then(|catalog| capture::point(catalog, &runs, level));
    let evidence = Evidence {
        captured,
        ..evidence(catalog.as_ref(), &drills, level)
    };
    let capture = CaptureStatus::of(&policies, &runs, captured, now);
    let mut alarms = alarms(settings, source, catalog.as_ref(), now)?;
    alarms.extend(
        capture
            .iter()
            .flat_map(|capture| capture.alarms(source.name.as_str(), &policies, now)),
    );
    let invalid = "the schedule cannot be used";
    let next = |schedule: &Option<Schedule>, last: Option<DateTime<Utc>>| {
        let schedule = schedule.as_ref()?;
        schedule.next_run(last, now)
    };
    let backup = policies.backup.schedule().or_fail(invalid)?;
    let drill = policies.drill.schedule().or_fail(invalid)?;
    let last_backup = catalog.as_ref().and_then(Catalog::newest);
    let last_backup = last_backup.map(|one| one.manifest.started);
    let last_drill = drills.first().map(|one| one.started);
    Ok(SourceStatus {
        source: source.name.to_string(),
        read: Some(now),
        objectives: policies.objective.judge(&evidence, now),
        newest: evidence.newest.as_ref().map(words),
        newest_proven: evidence.newest_proven.as_ref().map(words),
        backups: catalog.as_ref().map_or(0, |catalog| catalog.backups.len()),
        copies,
        waiting,
        last_passed_drill: drills.iter().find(|one| one.is_passed()).cloned(),
        next_backup: next(&backup, last_backup),
        next_drill: next(&drill, last_drill),
        schedules: [backup, drill].map(|one| one.map(|schedule| schedule.to_string())),
        last_drill: drills.into_iter().next(),
        trash: catalog.as_ref().map_or(0, |catalog| catalog.trash.len()),
        capture,
        alarms,
        problems,
        turn: None,
        evidence,
    })
}

/// What the vault says of a source.
#[derive(Default)]
struct Reading {
    /// `None`: there is no vault yet.
    catalog: Option<Catalog>,
    drills: Vec<DrillWords>,
    runs: Runs,
    copies: Vec<CopyStatus>,
    /// Backups that nobody here can open, in words.
    closed: Vec<String>,
}

impl Reading {
    async fn take(
        settings: &Settings,
        source: &Source,
        trust: &Trust,
        known: &mut Known,
    ) -> Result<Self, Failure> {
        let (vault, catalog) = match read(settings, source, trust).await {
            Ok(read) => read,
            // No vault yet is an answer: there is no evidence at all.
            Err(failure) if failure.name() == ErrorName::NoBackup => return Ok(Self::default()),
            Err(failure) => return Err(failure),
        };
        let reports = drill::reports(&vault, &source.name, trust).await?;
        Ok(Self {
            drills: reports.iter().map(DrillWords::of).collect(),
            runs: vaults::runs_again(&vault, settings, &catalog, trust, known).await?,
            copies: vaults::copies::statuses(settings, (&vault, &catalog)).await,
            closed: unopenable(settings, &vault, &catalog).await?,
            catalog: Some(catalog),
        })
    }
}

async fn read(
    settings: &Settings,
    source: &Source,
    trust: &Trust,
) -> Result<(Vault<ReadOnly>, Catalog), Failure> {
    let vault = vaults::read(settings).await?;
    let catalog = vaults::catalog_in(&vault, settings, &source.name, trust).await?;
    Ok((vault, catalog))
}

fn evidence(catalog: Option<&Catalog>, drills: &[DrillWords], level: Level) -> Evidence {
    let newest_at = |level: Level| {
        let mut newest_first = catalog.into_iter().flat_map(|one| one.backups.iter().rev());
        newest_first
            .find(|one| one.fact(one.observed).holds_at(level))
            .map(point)
    };
    Evidence {
        newest: newest_at(level),
        newest_proven: newest_at(Level::L3),
        captured: None,
        source: None,
        last_drill: drills.first().map(drill_point),
        last_passed: drills.iter().find(|one| one.is_passed()).map(drill_point),
    }
}

fn point(backup: &Backup) -> BackupPoint {
    BackupPoint {
        id: backup.id(),
        time: backup.manifest.started,
        revision: backup.manifest.content.revision,
        level: backup.level().unwrap_or(Level::L0),
    }
}

fn drill_point(drill: &DrillWords) -> DrillPoint {
    DrillPoint {
        id: drill.id,
        time: drill.ended,
        is_passed: drill.is_passed(),
        rto: drill.rto,
    }
}

fn words(point: &BackupPoint) -> BackupWords {
    BackupWords {
        id: point.id,
        time: point.time,
        revision: point.revision,
        level: point.level,
    }
}

/// No vault is a problem where there has been one.
async fn missing(settings: &Settings) -> Vec<String> {
    let failure = vaults::missing(settings).await;
    failure.iter().map(Failure::line).collect()
}

fn problems_of(copies: &[CopyStatus], now: DateTime<Utc>) -> Vec<String> {
    let problems = copies.iter().filter_map(|copy| copy.problem(now));
    problems.collect()
}

/// What this host's prunes came to, and what the vault shows of those of any host: a backup whose
/// time in the trash was over a day ago, that nothing holds back, and that is still there.
fn alarms(
    settings: &Settings,
    source: &Source,
    catalog: Option<&Catalog>,
    now: DateTime<Utc>,
) -> Result<Vec<Alarm>, Failure> {
    let mut alarms = PruneLog::read(settings, &source.name).alarms();
    let Some(catalog) = catalog else {
        return Ok(alarms);
    };
    let grace = settings.policies()?.retention.trash_grace.as_delta();
    let decided = removals(catalog, (now - OVERDUE, None), grace).into_iter();
    let overdue: Vec<_> = decided
        .filter(|(_, removal)| *removal == Removal::Due)
        .collect();
    let is_told = alarms.iter().any(|one| one.name == AlarmName::PruneFailed);
    if let (Some((id, _)), false) = (overdue.first(), is_told) {
        let text = format!(
            "{} backups should have left the trash more than a day ago and are still there, {id} \
             among them: `holdfast backup prune` says what keeps them",
            overdue.len()
        );
        alarms.push(Alarm::new(AlarmName::PruneFailed, text));
    }
    Ok(alarms)
}

/// Backups that the identities of this host do not open. A host that has none by design cannot say.
async fn unopenable(
    settings: &Settings,
    vault: &Vault<ReadOnly>,
    catalog: &Catalog,
) -> Result<Vec<String>, Failure> {
    let identities = match keys::identities(settings) {
        Ok(Some(identities)) => identities,
        Ok(None) => return Ok(Vec::new()),
        Err(failure) => return Ok(vec![failure.line()]),
    };
    let closed = holdfast_restore::unopenable(vault, catalog, &identities)
        .await
        .or_fail("the envelopes of the backups cannot be read")?;
    let file = settings.identity_file();
    let line = |one: &&Backup| {
        format!(
            "unopenable-backup: {} is sealed for {}, and no identity in {} opens it; add the \
             identity of one of these to that file",
            one.id(),
            one.manifest.encryption.recipients().join(", "),
            file.display()
        )
    };
    let mut lines: Vec<String> = closed.iter().take(UNOPENABLE_NAMED_MAX).map(line).collect();
    if let Some(more) = closed.len().checked_sub(UNOPENABLE_NAMED_MAX + 1) {
        lines.push(format!("unopenable-backup: {} more", more + 1));
    }
    Ok(lines)
}

fn problems(catalog: &Catalog) -> Vec<String> {
    let history = vaults::problems(catalog).map(ToString::to_string);
    let damaged = catalog
        .backups
        .iter()
        .filter(|one| one.is_damaged())
        .map(|one| {
            let flaws = one
                .flaws
                .iter()
                .chain(one.proofs.iter().flat_map(|proof| &proof.flaws));
            let why: Vec<String> = flaws.take(3).map(ToString::to_string).collect();
            format!("backup {} is damaged: {}", one.id(), why.join("; "))
        });
    history.chain(damaged).collect()
}

/// A time for people.
pub(crate) fn moment(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%SZ").to_string()
}

impl fmt::Display for BackupWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            time,
            revision,
            level,
        } = self;
        write!(
            f,
            "{id} {level} of {} at revision {revision}",
            moment(*time)
        )
    }
}

impl fmt::Display for SourceStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        writeln!(f, "{}", self.source)?;
        writeln!(f, "  loss now (RPO)    {}", self.objectives.rpo)?;
        writeln!(f, "  back in (RTO)     {}", self.objectives.rto)?;
        writeln!(f, "  rehearsed         {}", self.objectives.drill)?;
        if let Some(turn) = &self.turn {
            writeln!(f, "  this daemon       {turn}")?;
        }
        writeln!(
            f,
            "  newest backup     {}",
            or_none(self.newest.as_ref().map(ToString::to_string))
        )?;
        if let Some(capture) = &self.capture {
            writeln!(f, "  changes           {capture}")?;
        }
        let proven = self.newest_proven.as_ref().map(ToString::to_string);
        writeln!(f, "  newest proven     {}", or_none(proven))?;
        let drill = self.last_drill.as_ref().map(DrillWords::line);
        writeln!(f, "  last drill        {}", or_none(drill))?;
        let trash = match self.trash {
            0 => String::new(),
            count => format!(", {count} in the trash"),
        };
        writeln!(
            f,
            "  backups           {} in the vault{trash}",
            self.backups
        )?;
        if let Some(waiting) = &self.waiting {
            let bytes = ByteSize::new(waiting.bytes).rounded();
            let since = waiting.since.map_or(String::new(), moment);
            let count = waiting.backups;
            writeln!(
                f,
                "  waiting here      {count} backups, {bytes}, since {since}"
            )?;
        }
        for copy in &self.copies {
            writeln!(f, "  copy              {copy}")?;
        }
        let planned =
            |next: Option<DateTime<Utc>>, schedule: &Option<String>| match (next, schedule) {
                (Some(next), _) => moment(next),
                (None, Some(schedule)) => format!("{schedule} from the start of `holdfast run`"),
                (None, None) => "not planned".to_owned(),
            };
        let [backup, drill] = &self.schedules;
        writeln!(
            f,
            "  next backup       {}",
            planned(self.next_backup, backup)
        )?;
        write!(f, "  next drill        {}", planned(self.next_drill, drill))?;
        for alarm in &self.alarms {
            write!(f, "\n  ALARM             {alarm}")?;
        }
        for problem in &self.problems {
            write!(f, "\n  PROBLEM           {problem}")?;
        }
        Ok(())
    }
}
