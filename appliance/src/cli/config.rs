//! `holdfast config`: is the configuration right, and what does it come to.

use clap::Subcommand;
use serde::Serialize;

use super::dispatch::Context;
use crate::config::Origin;
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure};
use crate::{keys, preflight};

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
    notes: Vec<String>,
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
    let wrong = preflight::wrong(&settings);
    if !wrong.is_empty() {
        let failure = Failure::new(
            ErrorName::ConfigInvalid,
            format!("`holdfast run` could not work with {origin}"),
        )
        .next("correct what `why` names; docs/reference/config.md lists every key");
        return Err(wrong.into_iter().fold(failure, Failure::because_of));
    }
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
        notes: preflight::notes(&settings),
    };
    context.output.show(&shape, |shape| {
        let sealing = if shape.is_encrypted {
            "sealed"
        } else {
            "IN CLEAR (`encryption: none`)"
        };
        let mut lines = vec![format!(
            "{} is right; sources: {}; backups {sealing}",
            shape.origin,
            shape.sources.join(", ")
        )];
        lines.extend(shape.notes.iter().map(|note| format!("note: {note}")));
        lines.join("\n")
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
