//! `holdfast drill`: rehearse a restore, and read what earlier rehearsals measured.

use clap::{Args, Subcommand};
use holdfast_drills::DrillReport;
use serde::Serialize;

use super::dispatch::Context;
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::jobs::control::{self, Answer, Ask};
use crate::jobs::drill::{self, ChildAnswer, DrillWords, Wishes};
use crate::jobs::rehearsal;
use crate::output::write_out;
use crate::{keys, sources, vaults};

const RUN_EXAMPLES: &str = "\
Examples:
  holdfast drill run                         restore the newest backup in a scratch folder, boot it,
                                             check it, measure it, tear it down; exit code 20 when
                                             a check does not hold
  holdfast drill run 01980f3e-...            this backup
  holdfast drill run --set drills.target=etcd --set drills.etcd_binary=/usr/bin/etcd

A drill cannot reach production: it reads the vault, works in a scratch folder with a byte budget
and talks to nothing but its own members on loopback.";

const LIST_EXAMPLES: &str = "\
Examples:
  holdfast drill list                        newest first, with RTO and RPO
  holdfast drill list -w json";

const SHOW_EXAMPLES: &str = "\
Examples:
  holdfast drill show                        the newest
  holdfast drill show 01980f3e-...           this one; the beginning of an id is enough";

/// Rehearse a restore and read the reports.
#[derive(Debug, Subcommand)]
pub(crate) enum DrillCommand {
    /// Rehearse a restore now
    Run(RunArgs),
    /// List the rehearsals on record
    List(ListArgs),
    /// Show the report of one rehearsal
    Show(ShowArgs),
    /// What `drill run` starts: the rehearsal itself, at low priority
    #[command(hide = true)]
    Child(ChildArgs),
    /// What a rehearsal starts: the restored member, until its input ends
    #[command(hide = true)]
    Member,
}

/// Rehearse a restore now.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The backup, by the beginning of its id; the newest undamaged one when left out
    id: Option<String>,
    /// The source, where there are several
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

/// The rehearsal itself.
#[derive(Debug, Args)]
pub(crate) struct ChildArgs {
    #[command(flatten)]
    run: RunArgs,
    /// The newest revision of the source known
    #[arg(long, value_name = "REVISION")]
    newest_known: Option<i64>,
}

/// List the rehearsals on record.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    /// Only this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

/// Show the report of one rehearsal.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The drill, by the beginning of its id; the newest when left out
    id: Option<String>,
    /// The source, where there are several
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

/// Does one of them.
pub(crate) async fn run(command: &DrillCommand, context: &Context) -> Result<ExitCode, Failure> {
    match command {
        DrillCommand::Run(args) => rehearse(args, context).await,
        DrillCommand::List(args) => list(args, context).await,
        DrillCommand::Show(args) => show(args, context).await,
        DrillCommand::Child(args) => Box::pin(child(args, context)).await,
        DrillCommand::Member => member().await,
    }
}

async fn rehearse(args: &RunArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let source = settings.source(args.source.as_deref())?;
    let ask = Ask::Drill {
        source: source.name.to_string(),
    };
    if args.id.is_none() {
        match control::ask(&settings, ask).await? {
            None => {}
            Some(Answer::Drill(report)) => return told(&report, context),
            Some(Answer::Failed(failure)) => return Err(failure),
            Some(Answer::Backup(_) | Answer::Failing(_) | Answer::Turn(_)) => {
                let what = "the daemon answered something else";
                return Err(Failure::new(ErrorName::Unexpected, what));
            }
        }
    }
    let newest_known = match sources::open(&settings, source, None) {
        Ok(opened) => sources::newest_revision(opened.as_ref()).await,
        Err(_not_running) => None,
    };
    let wishes = Wishes {
        backup: args.id.as_deref(),
        newest_known,
    };
    let report = drill::run(&settings, context.global(), source, &context.clock, wishes).await?;
    told(&report, context)
}

fn told(report: &DrillReport, context: &Context) -> Result<ExitCode, Failure> {
    context.output.show(report, ToString::to_string)?;
    Ok(drill::exit_code(report))
}

async fn child(args: &ChildArgs, context: &Context) -> Result<ExitCode, Failure> {
    rehearsal::become_a_careful_child();
    let (answer, code) = match Box::pin(child_outcome(args, context)).await {
        Ok(report) => {
            let code = drill::exit_code(&report);
            (ChildAnswer::Report(Box::new(report)), code)
        }
        Err(failure) => {
            let code = failure.exit_code();
            (ChildAnswer::Failed(failure), code)
        }
    };
    let json = serde_json::to_string(&answer)
        .map_err(|e| Failure::unexpected("the answer could not be written", &e))?;
    write_out(&json)?;
    Ok(code)
}

async fn child_outcome(args: &ChildArgs, context: &Context) -> Result<DrillReport, Failure> {
    let settings = context.settings()?;
    let source = settings.source(args.run.source.as_deref())?;
    let wishes = Wishes {
        backup: args.run.id.as_deref(),
        newest_known: args.newest_known,
    };
    Box::pin(rehearsal::rehearse(
        &settings,
        source,
        &context.clock,
        wishes,
    ))
    .await
}

async fn member() -> Result<ExitCode, Failure> {
    rehearsal::become_a_careful_child();
    holdfast_drills::run_scratch_member()
        .await
        .or_fail("the scratch member ended")?;
    Ok(ExitCode::Done)
}

async fn list(args: &ListArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let (trust, vault) = (keys::trust(&settings)?, vaults::read(&settings).await?);
    let mut all = Vec::new();
    for source in settings.sources(args.source.as_deref())? {
        for report in drill::reports(&vault, &source.name, &trust).await? {
            let words = DrillWords::of(&report);
            all.push(Listed {
                source: source.name.to_string(),
                words,
            });
        }
    }
    context.output.show(&all, |all| {
        if all.is_empty() {
            return "no drills yet; `holdfast drill run` makes one".to_owned();
        }
        let line = |one: &Listed| format!("{}  {}  {}", one.words.id, one.source, one.words.line());
        let lines: Vec<String> = all.iter().map(line).collect();
        lines.join("\n")
    })?;
    Ok(ExitCode::Done)
}

#[derive(Serialize)]
struct Listed {
    source: String,
    #[serde(flatten)]
    words: DrillWords,
}

async fn show(args: &ShowArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let source = settings.source(args.source.as_deref())?;
    let (trust, vault) = (keys::trust(&settings)?, vaults::read(&settings).await?);
    let all = drill::reports(&vault, &source.name, &trust).await?;
    let wanted = args.id.as_deref().unwrap_or_default().to_ascii_lowercase();
    let found = all
        .iter()
        .find(|one| one.id.to_string().starts_with(&wanted))
        .ok_or_else(|| {
            Failure::new(
                ErrorName::NotFound,
                format!(
                    "there is no report of a drill `{wanted}` of `{}`",
                    source.name
                ),
            )
        })?;
    told(found, context)
}
