//! `holdfast vault`: look after the vault.

mod copy;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::dispatch::Context;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::vaults::doctor::{self, Finding};
use crate::{keys, vaults};

const CHECK_EXAMPLES: &str = "\
Examples:
  holdfast vault check             every permission and habit a backup relies on, tried out, and
                                   whether uploads in pieces and checksums work (good to know)
  holdfast vault check --new       make a vault where the one of before is gone for good, or write
                                   the marker (vault.json) anew that a vault has lost
  holdfast vault check --vault offsite     the same of a copy
  holdfast vault check -w json

Where nothing is there yet, the check makes the vault, as the first backup would, and says so. Where
this host knows backups, an empty place is an error: a lost mount, or a wrong `restore.vault`.";

/// Look after the vault.
#[derive(Debug, Subcommand)]
pub(crate) enum VaultCommand {
    /// Try out everything a backup relies on: permissions, create-only writes, clock, ...
    Check(CheckArgs),
    /// Bring a vault to what another one holds
    Copy(copy::CopyArgs),
    /// Compare two vaults, byte by byte
    Verify(copy::VerifyArgs),
}

/// Try out everything a backup relies on.
#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub(crate) struct CheckArgs {
    /// Make a new vault where there is none, although this host knows backups of before; or give
    /// one that lost its marker a new one
    #[arg(long)]
    new: bool,
    /// The vault: `first`, which is `restore.vault`, or one of `restore.copies`
    #[arg(long, value_name = "NAME")]
    vault: Option<String>,
}

/// Does it.
pub(crate) async fn run(command: &VaultCommand, context: &Context) -> Result<ExitCode, Failure> {
    match command {
        VaultCommand::Check(args) => check(args, context).await,
        VaultCommand::Copy(args) => copy::copy(args, context).await,
        VaultCommand::Verify(args) => copy::verify(args, context).await,
    }
}

#[derive(Serialize)]
struct Checked {
    location: String,
    is_new: bool,
    /// It had lost its marker, and has a new one.
    is_renewed: bool,
    findings: Vec<Finding>,
}

async fn check(args: &CheckArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?.at_vault(args.vault.as_deref())?;
    keys::ensure(&settings)?;
    let (signer, now) = (keys::signer(&settings)?, context.clock.now());
    let is_new = vaults::is_absent(&settings).await;
    let is_renewed = vaults::has_lost_marker(&settings).await;
    let vault = if args.new {
        vaults::renew(&settings, &signer, now).await?
    } else {
        vaults::write(&settings, &signer, now).await?
    };
    let findings = doctor::examine(&vault, &settings.vault(), &context.clock).await;
    let shape = Checked {
        location: vault.location().to_owned(),
        is_new,
        is_renewed,
        findings,
    };
    context.output.show(&shape, |shape| {
        let mut lines = vec![format!("vault {}", shape.location)];
        if shape.is_new {
            lines.push("  NEW   nothing was there: this check made a new, empty vault".to_owned());
        }
        if shape.is_renewed {
            lines.push("  NEW   the marker (vault.json) was written anew".to_owned());
        }
        lines.extend(shape.findings.iter().map(|one| {
            let word = match (one.is_good, one.is_needed) {
                (true, _) => "ok  ",
                (false, true) => "FAIL",
                (false, false) => "note",
            };
            let next = one.next.map_or(String::new(), |next| format!("; {next}"));
            format!("  {word}  {}: {}{next}", one.name, one.detail)
        }));
        lines.join("\n")
    })?;
    let is_good = shape
        .findings
        .iter()
        .all(|one| one.is_good || !one.is_needed);
    Ok(if is_good {
        ExitCode::Done
    } else {
        ExitCode::Denied
    })
}
