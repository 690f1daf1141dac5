//! `holdfast drill`: rehearse a restore, and read what earlier rehearsals measured.

use clap::{Args, Subcommand};

use super::dispatch::Context;
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure};
use crate::jobs::drill::{self, ChildAnswer, DrillSummary};
use crate::output::write_out;
use crate::{keys, vaults};

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
    Child(RunArgs),
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
        DrillCommand::Child(args) => child(args, context).await,
    }
}

async fn rehearse(args: &RunArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let source = settings.source(args.source.as_deref())?;
    context
        .output
        .note(format!("rehearsing a restore of `{}` ...", source.name));
    let id = args.id.as_deref();
    let summary = drill::run_child(&settings, context.global(), source.name.as_str(), id).await?;
    context.output.show(&summary, text_of)?;
    Ok(drill::exit_code(&summary))
}

async fn child(args: &RunArgs, context: &Context) -> Result<ExitCode, Failure> {
    drill::become_a_careful_child();
    let outcome = drill::rehearse(context, args.source.as_deref(), args.id.as_deref()).await;
    let (answer, code) = match outcome {
        Ok(summary) => {
            let code = drill::exit_code(&summary);
            (ChildAnswer::Drill(Box::new(summary)), code)
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

async fn list(args: &ListArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let (trust, vault) = (keys::trust(&settings)?, vaults::read(&settings).await?);
    let mut all = Vec::new();
    for source in settings.sources(args.source.as_deref())? {
        all.extend(drill::reports(&vault, &source.name, &trust).await?);
    }
    context.output.show(&all, |all| {
        if all.is_empty() {
            return "no drills yet; `holdfast drill run` makes one".to_owned();
        }
        let lines: Vec<String> = all
            .iter()
            .map(|one| format!("{}  {}  {}", one.id, one.source, one.line()))
            .collect();
        lines.join("\n")
    })?;
    Ok(ExitCode::Done)
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
                format!("there is no drill `{wanted}` of `{}`", source.name),
            )
        })?;
    context.output.show(found, text_of)?;
    Ok(drill::exit_code(found))
}

fn text_of(summary: &DrillSummary) -> String {
    let or_unknown = |span: Option<holdfast_policies::Span>| {
        span.map_or("unknown".to_owned(), |one| one.to_string())
    };
    let word = if summary.is_passed {
        "PASSED"
    } else {
        "FAILED"
    };
    let level = summary.level.map_or("none".to_owned(), |level| {
        format!("{level} ({})", level.word())
    });
    let mut text = format!(
        "drill     {} {word}\n  backup  {}\n  RTO     {} from choosing the backup until serving\n  \
         RPO     {} would have been lost\n  proves  {level}",
        summary.id,
        summary.backup,
        or_unknown(summary.rto),
        or_unknown(summary.rpo),
    );
    for check in &summary.checks {
        text.push_str(&format!(
            "\n  {:7} {}: {}",
            check.outcome, check.name, check.detail
        ));
    }
    text
}
