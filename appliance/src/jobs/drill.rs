//! A drill: the same program as a child of low priority that can only read the vault, so that
//! whatever a rehearsal does, the store and the backups of this process go on. What it found is
//! signed and stored by this side.

use std::process::Stdio;
use std::time::Duration;

use chrono::{DateTime, Utc};
use holdfast_drills::{DrillReport, Outcome as DrillVerdict};
use holdfast_policies::{ClusterName, DrillId, SnapshotId, Span};
use holdfast_restore::in_use::{Mark, Reader};
use holdfast_restore::plan::choose;
use holdfast_restore::{Catalog, Pick, Trust, Vault};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::scheduler::Outcome;
use crate::cli::args::Global;
use crate::clock::Clock;
use crate::config::{Settings, Source};
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::health::moment;
use crate::{keys, preflight, vaults};

/// What is granted beyond the deadline for tearing down and answering.
const GRACE: Duration = Duration::from_mins(1);

/// A drill, or why there was none.
pub(crate) type DrillOutcome = Result<DrillReport, Failure>;

/// What the child says at its end, on standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChildAnswer {
    /// The drill came to its end.
    Report(Box<DrillReport>),
    /// There was no drill.
    Failed(Failure),
}

/// A drill in a few words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DrillWords {
    /// The drill.
    pub(crate) id: DrillId,
    /// The backup that was restored.
    pub(crate) backup: Option<SnapshotId>,
    /// When it began.
    pub(crate) started: DateTime<Utc>,
    /// When it ended.
    pub(crate) ended: DateTime<Utc>,
    /// How it ended; an inconclusive one proves nothing, in either direction.
    pub(crate) outcome: DrillVerdict,
    /// From choosing the backup until serving.
    pub(crate) rto: Option<Span>,
    /// Age of the backup: what would have been lost.
    pub(crate) rpo: Option<Span>,
}

impl DrillWords {
    /// The few words.
    pub(crate) fn of(report: &DrillReport) -> Self {
        Self {
            id: report.id,
            backup: report.backup.as_ref().map(|backup| backup.id),
            started: report.started,
            ended: report.ended,
            outcome: report.outcome,
            rto: report.rto,
            rpo: report.rpo.as_ref().map(|rpo| rpo.age),
        }
    }

    /// Whether everything held.
    pub(crate) fn is_passed(&self) -> bool {
        self.outcome == DrillVerdict::Passed
    }

    /// One line.
    pub(crate) fn line(&self) -> String {
        let word = match self.outcome {
            DrillVerdict::Passed => "passed",
            DrillVerdict::Inconclusive => "INCONCLUSIVE",
            DrillVerdict::Failed => "FAILED",
        };
        let or_unknown =
            |span: Option<Span>| span.map_or("unknown".to_owned(), |one| one.to_string());
        let backup = self.backup.map_or("none".to_owned(), |id| id.to_string());
        format!(
            "{word} at {}, back in {} (RTO), would have lost {} (RPO), backup {backup}",
            moment(self.ended),
            or_unknown(self.rto),
            or_unknown(self.rpo),
        )
    }
}

impl Outcome for DrillOutcome {
    /// A drill that could not ask everything has proven nothing either way, and one that met
    /// another has not begun.
    fn is_worth_retrying(&self) -> bool {
        match self {
            Ok(report) => report.outcome == DrillVerdict::Inconclusive,
            Err(failure) => matches!(failure.name(), ErrorName::Unavailable | ErrorName::InUse),
        }
    }

    fn summary(&self) -> Result<String, String> {
        match self {
            Ok(report) if is_passed(report) => Ok(DrillWords::of(report).line()),
            Ok(report) => Err(DrillWords::of(report).line()),
            Err(failure) => Err(failure.line()),
        }
    }
}

/// Whether everything held.
pub(crate) fn is_passed(report: &DrillReport) -> bool {
    report.outcome == DrillVerdict::Passed
}

/// The exit code of a drill.
pub(crate) fn exit_code(report: &DrillReport) -> ExitCode {
    if is_passed(report) {
        ExitCode::Done
    } else {
        ExitCode::DrillFailed
    }
}

/// What to rehearse.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wishes<'a> {
    /// The beginning of a backup's id; the best candidate when there is none.
    pub(crate) backup: Option<&'a str>,
    /// The newest revision of the source known now.
    pub(crate) newest_known: Option<i64>,
}

/// Runs a drill of `source` in a child and stores its signed report.
pub(crate) async fn run(
    settings: &Settings,
    global: &Global,
    source: &Source,
    clock: &Clock,
    wishes: Wishes<'_>,
) -> DrillOutcome {
    preflight::can_drill(settings)?;
    let (picked, mark) = pick(settings, source, wishes.backup).await?;
    let picked = picked.map(|id| id.to_string());
    let wishes = Wishes {
        backup: picked.as_deref().or(wishes.backup),
        ..wishes
    };
    let child = run_child(settings, global, source.name.as_str(), wishes);
    let report = vaults::during(mark, child).await?;
    let signer = keys::signer(settings)?;
    let vault = vaults::write(settings, &signer, clock.now()).await?;
    holdfast_drills::publish(&vault, &report, &signer)
        .await
        .or_fail(format!(
            "the report of drill {} was not stored; it said: {}",
            report.id,
            DrillWords::of(&report).line()
        ))?;
    Ok(report)
}

/// Chooses the backup and marks it: the child can only read the vault. Where there is none to
/// choose, the child says so in its report.
async fn pick(
    settings: &Settings,
    source: &Source,
    wanted: Option<&str>,
) -> Result<(Option<SnapshotId>, Option<Mark>), Failure> {
    let catalog = vaults::catalog(settings, &source.name).await?;
    if catalog.backups.is_empty() && catalog.flaws.is_empty() {
        let what = format!(
            "there is no backup of `{}` to rehearse with yet",
            source.name
        );
        return Err(Failure::new(ErrorName::NoBackup, what));
    }
    let id = match wanted {
        Some(text) => vaults::pick(&catalog, Some(text))?.id(),
        None => match holdfast_drills::pick(&catalog) {
            Pick::Id(id) => id,
            other => match choose(&catalog, other) {
                Ok(backup) => backup.id(),
                Err(_none) => return Ok((None, None)),
            },
        },
    };
    can_open(settings, &catalog, id)?;
    let (mark, unmarked) = vaults::mark(settings, &source.name, id, Reader::Drill).await?;
    if let Some(note) = unmarked {
        tracing::warn!(source = %source.name, note, "the backup of a drill is not marked");
    }
    Ok((Some(id), mark))
}

/// A host without an identity cannot rehearse what is sealed: that is no failed drill.
fn can_open(settings: &Settings, catalog: &Catalog, id: SnapshotId) -> Result<(), Failure> {
    let mut backups = catalog.backups.iter();
    let picked = backups.find(|backup| backup.id() == id);
    let is_sealed =
        picked.is_some_and(|backup| !backup.manifest.encryption.recipients().is_empty());
    if !is_sealed || keys::identities(settings)?.is_some() {
        return Ok(());
    }
    let file = settings.identity_file();
    let what = format!(
        "the backup {id} is sealed and there is no age identity at {}",
        file.display()
    );
    Err(Failure::new(ErrorName::Denied, what).next(
        "name the identity in `restore.identity_file`; on a host that must not be able to read \
         backups set `policies.drill.schedule: null` and rehearse elsewhere",
    ))
}

async fn run_child(
    settings: &Settings,
    global: &Global,
    source: &str,
    wishes: Wishes<'_>,
) -> DrillOutcome {
    let program = std::env::current_exe().or_fail("this program cannot find itself")?;
    let mut command = Command::new(program);
    command
        .args(["drill", "child", "--source", source])
        .args(wishes.backup);
    if let Some(revision) = wishes.newest_known {
        command.args(["--newest-known", &revision.to_string()]);
    }
    if let Some(config) = &global.config {
        command.arg("--config").arg(config);
    }
    for set in &global.set {
        command.arg("--set").arg(set);
    }
    if let Some(level) = &global.log_level {
        command.args(["--log-level", level]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    let deadline = settings.config.policies.drill.deadline;
    let running = tokio::time::timeout(deadline.as_duration() + GRACE, command.output());
    let ended = running.await.map_err(|_elapsed| {
        Failure::new(
            ErrorName::DrillFailed,
            format!("the drill of `{source}` was ended: not done after {deadline}"),
        )
        .next("raise `policies.drill.deadline`, or see why a restore takes so long")
    })?;
    let output = ended.or_fail("the drill's process was not started")?;
    let answer: ChildAnswer = serde_json::from_slice(&output.stdout).map_err(|error| {
        let what = format!("the drill of `{source}` broke off ({})", output.status);
        Failure::new(ErrorName::DrillFailed, what)
            .because(&error)
            .next("see the log above; the next drill removes what this one left")
    })?;
    match answer {
        ChildAnswer::Report(report) => Ok(*report),
        ChildAnswer::Failed(failure) => Err(failure),
    }
}

/// Every drill of a cluster whose report is in the vault, newest first.
pub(crate) async fn reports<Mode: Sync>(
    vault: &Vault<Mode>,
    cluster: &ClusterName,
    trust: &Trust,
) -> Result<Vec<DrillReport>, Failure> {
    holdfast_drills::reports(vault, cluster, trust)
        .await
        .or_fail(format!("the drill reports of `{cluster}` cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report of the format's golden file, with another outcome.
    fn report(outcome: &str) -> DrillReport {
        let file = include_str!("../../../drills/tests/fixtures/v1/drill-report.json");
        let line = file.lines().next().unwrap();
        let mut signed: serde_json::Value = serde_json::from_str(line).unwrap();
        signed["record"]["outcome"] = outcome.into();
        serde_json::from_value(signed["record"].take()).unwrap()
    }

    #[test]
    fn an_inconclusive_drill_is_tried_again_and_one_that_said_something_is_not() {
        let is_tried_again = |outcome: DrillOutcome| outcome.is_worth_retrying();
        assert!(is_tried_again(Ok(report("inconclusive"))));
        assert!(!is_tried_again(Ok(report("passed"))));
        assert!(!is_tried_again(Ok(report("failed"))));
        let failed = |name| Err(Failure::new(name, "it was not run"));
        assert!(is_tried_again(failed(ErrorName::Unavailable)));
        assert!(!is_tried_again(failed(ErrorName::Corrupt)));
    }
}
