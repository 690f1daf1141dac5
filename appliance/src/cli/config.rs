//! `holdfast config`: is the configuration right, and what does it come to.

use clap::Subcommand;
use serde::Serialize;

use super::dispatch::Context;
use crate::config::Origin;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::keys;

const CHECK_EXAMPLES: &str = "\
Examples:
  holdfast config check
  holdfast config check --config /etc/holdfast/holdfast.yaml
  holdfast config check --set policies.backup.schedule='@every 20m'";

const PRINT_EXAMPLES: &str = "\
Examples:
  holdfast config print                                 what is in force, defaults included
  holdfast config print --set policies.backup.schedule=@daily  with one key changed
  HOLDFAST_POLICIES__BACKUP__SCHEDULE=@daily holdfast config print";

/// Check and print the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Read the file and every key it names, start nothing, say what is wrong
    #[command(after_help = CHECK_EXAMPLES)]
    Check,
    /// Print the settings in force: flags over environment over file over defaults
    #[command(after_help = PRINT_EXAMPLES)]
    Print,
}

#[derive(Serialize)]
struct Checked {
    origin: String,
    sources: Vec<String>,
    is_encrypted: bool,
}

/// Does one of them.
pub(crate) fn run(command: &ConfigCommand, context: &Context) -> Result<ExitCode, Failure> {
    match command {
        ConfigCommand::Check => check(context),
        ConfigCommand::Print => print(context),
    }
}

fn check(context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let origin = match &settings.origin {
        Origin::Defaults => "no file: the defaults".to_owned(),
        Origin::File(file) => file.display().to_string(),
    };
    let is_encrypted = match settings.encryption()? {
        None => true,
        Some(_) => keys::recipients(&settings)?.is_some(),
    };
    let sources = settings
        .config
        .restore
        .sources
        .iter()
        .map(|one| one.name.to_string())
        .collect();
    let shape = Checked {
        origin,
        sources,
        is_encrypted,
    };
    context.output.show(&shape, |shape| {
        let sealing = if shape.is_encrypted {
            "sealed"
        } else {
            "IN CLEAR (`encryption: none`)"
        };
        format!(
            "{} is right; sources: {}; backups {sealing}",
            shape.origin,
            shape.sources.join(", ")
        )
    })?;
    Ok(ExitCode::Done)
}

fn print(context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let yaml = serde_saphyr::to_string(&settings.config)
        .map_err(|e| Failure::unexpected("the settings could not be written as YAML", &e))?;
    context.output.show(&settings.config, |_| yaml)?;
    Ok(ExitCode::Done)
}
