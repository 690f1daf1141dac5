//! `holdfast status`: are the objectives met, by the evidence in the vault.

use std::time::Duration;

use clap::Args;
use holdfast_policies::Standing;

use super::dispatch::Context;
use crate::config::Settings;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::health::{self, SourceStatus};
use crate::jobs::board::Failing;
use crate::jobs::control::{self, Answer, Ask};
use crate::jobs::turn::Turn;

const EXAMPLES: &str = "\
Examples:
  holdfast status                        every source; exit code 21 when an objective is missed,
                                         12 when the vault has a problem a person must look at
                                         or an alarm is on
  holdfast status -w json | jq '.[0].objectives.rpo'
  holdfast status || page-somebody       it reads the vault and needs no daemon";

/// Say whether the objectives are met, from what is in the vault.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Only this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

/// Longest wait for the daemon to say whose turn it is: the status is the vault's.
const DAEMON_PATIENCE: Duration = Duration::from_secs(2);

/// Which jobs of this host's daemon fail.
async fn failing(settings: &Settings) -> Failing {
    let asked = tokio::time::timeout(DAEMON_PATIENCE, control::ask(settings, Ask::Failing)).await;
    match asked {
        Ok(Ok(Some(Answer::Failing(failing)))) => failing,
        _ => Failing::new(),
    }
}

/// Whose turn it is to work, where this host's daemon has others beside it.
async fn turn(settings: &Settings) -> Option<Turn> {
    let asked = tokio::time::timeout(DAEMON_PATIENCE, control::ask(settings, Ask::Turn)).await;
    match asked {
        Ok(Ok(Some(Answer::Turn(turn)))) => turn.term.is_some().then_some(turn),
        _ => None,
    }
}

/// Reads the vault and says how the objectives stand.
pub(crate) async fn run(args: &StatusArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let failing = failing(&settings).await;
    let mut all = Vec::new();
    for source in settings.sources(args.source.as_deref())? {
        let now = context.clock.now();
        let status = health::gather(&settings, source, now).await?;
        all.push(status.with_tries(&failing, now));
    }
    let turn = turn(&settings).await;
    for status in &mut all {
        status.turn.clone_from(&turn);
    }
    context.output.show(&all, |all| {
        let texts: Vec<String> = all.iter().map(SourceStatus::to_string).collect();
        texts.join("\n\n")
    })?;
    let mut objectives = all.iter().map(|one| one.objectives.overall());
    let is_missed = objectives.any(|standing| standing == Standing::Missed);
    let is_flawed = all
        .iter()
        .any(|one| !one.problems.is_empty() || !one.alarms.is_empty());
    Ok(match (is_missed, is_flawed) {
        (true, _) => ExitCode::ObjectiveMissed,
        (false, true) => ExitCode::Corrupt,
        (false, false) => ExitCode::Done,
    })
}
