//! `holdfast key`: make keys, and show which ones are in use.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use holdfast_restore::Verifier;
use serde::Serialize;

use super::dispatch::Context;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::keys::{self, NewKeys};
use crate::preflight;

const SHOW_EXAMPLES: &str = "\
Examples:
  holdfast key show                  for whom backups are sealed, what opens them, whom this host
                                     trusts; secret sides are named by their file, never printed
  holdfast key show -w json | jq -r '.trusted_signers[0]'";

const GENERATE_EXAMPLES: &str = "\
Examples:
  holdfast key generate --dir /etc/holdfast/keys
  holdfast key generate --dir escrow        a second identity to keep in a safe; add its
                                            recipient to `policies.encryption.recipients`";

/// Make and show keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make an age identity and a signing key, readable by you alone
    Generate(GenerateArgs),
    /// Show the public side of the keys in use, and where the secret side lies
    Show(ShowArgs),
}

/// Make an age identity and a signing key.
#[derive(Debug, Args)]
#[command(after_help = GENERATE_EXAMPLES)]
pub(crate) struct GenerateArgs {
    /// The folder to put them in; made when missing, existing keys are never replaced
    #[arg(long, value_name = "DIR", default_value = "holdfast-keys")]
    dir: PathBuf,
}

/// Show the keys in use.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub(crate) struct ShowArgs {}

#[derive(Serialize)]
struct Generated {
    recipient: String,
    signer: String,
    identity_file: PathBuf,
    signing_key_file: PathBuf,
}

#[derive(Serialize)]
struct Shown {
    identity_file: PathBuf,
    can_open: Vec<String>,
    sealed_for: Option<Vec<String>>,
    /// Short names of those that opened what was sealed to them.
    proven: Vec<String>,
    signing_key_file: PathBuf,
    trusted_signers: Vec<String>,
    notes: Vec<String>,
}

/// Does one of them.
pub(crate) fn run(command: &KeyCommand, context: &Context) -> Result<ExitCode, Failure> {
    match command {
        KeyCommand::Generate(args) => generate(args, context),
        KeyCommand::Show(ShowArgs {}) => show(context),
    }
}

fn generate(args: &GenerateArgs, context: &Context) -> Result<ExitCode, Failure> {
    let made = keys::generate(&args.dir)?;
    let shape = Generated {
        recipient: made.recipient.text().to_owned(),
        signer: made.verifier.to_text(),
        identity_file: made.identity_file.clone(),
        signing_key_file: made.signing_file.clone(),
    };
    context.output.show(&shape, |_| advice(&made))?;
    Ok(ExitCode::Done)
}

/// What a person should know about new keys.
pub(crate) fn advice(made: &NewKeys) -> String {
    format!(
        "age identity:  {identity}\n  opens backups sealed for its recipient; whoever has it can read them. Keep a copy \
         where neither this host\n  nor the vault can take it with them: without it the backups \
         are lost.\nrecipient:     {recipient}\n  public; backups are sealed for it where `policies.encryption.recipients` names it.\n\
         signing key:   {signing}\n  says that a backup comes from here. Keep a copy beside the \
         identity.\nsigner:        {signer}\n  public; other hosts name it in \
         `restore.trusted_signers` to trust these backups.",
        identity = made.identity_file.display(),
        recipient = made.recipient.text(),
        signing = made.signing_file.display(),
        signer = made.verifier.to_text(),
    )
}

/// One below the other, where the second column begins.
fn in_lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n                ")
}

/// A recipient and the short name that manifests and messages have for it.
fn with_short_name(text: &str) -> String {
    match holdfast_restore::Recipient::parse(text) {
        Ok(recipient) => format!("{text} ({})", recipient.fingerprint()),
        Err(_unread) => text.to_owned(),
    }
}

fn show(context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let texts = |all: &[holdfast_restore::key::Recipient]| {
        all.iter()
            .map(|one| one.text().to_owned())
            .collect::<Vec<_>>()
    };
    let identities = keys::identities(&settings)?;
    let sealed_for = keys::recipients(&settings)?;
    let tried = keys::prove(&settings)?.unwrap_or_default();
    let proven = tried.into_iter().filter(|one| one.is_proven);
    let shape = Shown {
        proven: proven.map(|one| one.fingerprint).collect(),
        identity_file: settings.identity_file(),
        can_open: identities
            .as_ref()
            .map(|all| texts(all.recipients()))
            .unwrap_or_default(),
        sealed_for: sealed_for.as_deref().map(texts),
        signing_key_file: settings.signing_key_file(),
        trusted_signers: keys::trust(&settings)?
            .keys()
            .iter()
            .map(Verifier::to_text)
            .collect(),
        notes: preflight::notes(&settings),
    };
    let named = |all: &[String]| in_lines(all.iter().map(|text| with_short_name(text)));
    let tried = |text: &String| {
        let name = with_short_name(text);
        let is_proven = shape.proven.iter().any(|one| name.contains(one.as_str()));
        format!(
            "{name}{}",
            if is_proven { ", proven" } else { ", unproven" }
        )
    };
    context.output.show(&shape, |shape| {
        let sealed = match &shape.sealed_for {
            Some(all) => in_lines(all.iter().map(tried)),
            None => "nobody: backups are written in clear (`encryption: none`)".to_owned(),
        };
        let opens = if !shape.identity_file.exists() {
            format!("none here: {} does not exist", shape.identity_file.display())
        } else if shape.can_open.is_empty() {
            format!("{}, of a plugin, which does not tell its recipient", shape.identity_file.display())
        } else {
            format!("{}\n                {}", shape.identity_file.display(), named(&shape.can_open))
        };
        let mut text = format!(
            "sealed for      {sealed}\nidentity        {opens}\nsigning key     {}\ntrusted signers {}",
            shape.signing_key_file.display(),
            shape.trusted_signers.join("\n                "),
        );
        for note in &shape.notes {
            text.push_str("\nnote            ");
            text.push_str(note);
        }
        text
    })?;
    Ok(ExitCode::Done)
}
