//! `holdfast status`: are the objectives met, by the evidence in the vault.

use clap::Args;
use holdfast_policies::Standing;

use super::dispatch::Context;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::health::{self, SourceStatus};

const EXAMPLES: &str = "\
Examples:
  holdfast status                        every source; exit code 21 when an objective is missed
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

/// Reads the vault and says how the objectives stand.
pub(crate) async fn run(args: &StatusArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let mut all = Vec::new();
    for source in settings.sources(args.source.as_deref())? {
        all.push(health::gather(&settings, source, context.clock.now()).await?);
    }
    context.output.show(&all, |all| {
        let texts: Vec<String> = all.iter().map(SourceStatus::to_string).collect();
        texts.join("\n\n")
    })?;
    let is_missed = all
        .iter()
        .any(|one| one.objectives.overall() == Standing::Missed);
    Ok(if is_missed {
        ExitCode::ObjectiveMissed
    } else {
        ExitCode::Done
    })
}
