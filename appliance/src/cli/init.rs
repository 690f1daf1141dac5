//! `holdfast init`: a commented `holdfast.yaml` and keys, to start from.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::dispatch::Context;
use super::key;
use crate::config::{self, Example};
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::keys::{self, NewKeys};

const EXAMPLES: &str = "\
Examples:
  holdfast init                           here: holdfast.yaml and holdfast-data/keys
  holdfast init /etc/holdfast             there
  holdfast init --encryption none         backups in clear, on purpose
  holdfast init --recipient age1...       sealed for a key that lives elsewhere, too";

/// Write a commented holdfast.yaml, an age identity and a signing key.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// The folder to write into
    #[arg(default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Whether backups are sealed for the new identity, or written in clear
    #[arg(long, value_enum, default_value_t = Sealing::Age, value_name = "HOW")]
    encryption: Sealing,
    /// Seal backups for this age or ssh recipient as well; may be repeated
    #[arg(long, value_name = "RECIPIENT", conflicts_with = "encryption")]
    recipient: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sealing {
    Age,
    None,
}

#[derive(Serialize)]
struct Initialized {
    config_file: PathBuf,
    identity_file: PathBuf,
    recipient: String,
    signing_key_file: PathBuf,
    signer: String,
}

/// Writes the file and the keys; nothing that exists is touched, and keys that exist are used.
pub(crate) fn run(args: &InitArgs, context: &Context) -> Result<ExitCode, Failure> {
    for text in &args.recipient {
        holdfast_restore::key::Recipient::parse(text).or_fail("--recipient cannot be used")?;
    }
    let file = args.dir.join("holdfast.yaml");
    if file.exists() {
        return Err(Failure::new(
            ErrorName::TargetExists,
            format!("{} exists and was not touched", file.display()),
        )
        .next("name another folder, or edit the file; `holdfast config check` reads it"));
    }
    std::fs::create_dir_all(&args.dir)
        .or_fail(format!("the folder {} was not made", args.dir.display()))?;
    let (made, are_new) = keys::find_or_generate(&args.dir.join("holdfast-data").join("keys"))?;
    let example = match args.encryption {
        Sealing::None => Example::in_clear(),
        Sealing::Age => {
            let mut recipients = vec![made.recipient.text().to_owned()];
            recipients.extend(args.recipient.iter().cloned());
            Example::sealed_for(&recipients)
        }
    };
    write_new(&file, &config::render_example(&example))?;
    report(context, file, &made, are_new)?;
    Ok(ExitCode::Done)
}

fn report(context: &Context, file: PathBuf, made: &NewKeys, are_new: bool) -> Result<(), Failure> {
    let shape = Initialized {
        config_file: file,
        identity_file: made.identity_file.clone(),
        recipient: made.recipient.text().to_owned(),
        signing_key_file: made.signing_file.clone(),
        signer: made.verifier.to_text(),
    };
    context.output.show(&shape, |shape| {
        let kept = if are_new {
            ""
        } else {
            "keys:          those that were there are kept and used\n"
        };
        format!(
            "configuration: {}\n{kept}{}\n\nNext: read the file, then `holdfast run --config {}`.",
            shape.config_file.display(),
            key::advice(made),
            shape.config_file.display(),
        )
    })
}

fn write_new(file: &Path, text: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    let what = || format!("{} was not written", file.display());
    let mut opened = std::fs::File::create_new(file).or_fail(what())?;
    opened.write_all(text.as_bytes()).or_fail(what())?;
    opened.sync_all().or_fail(what())
}
