//! `holdfast explain`: what the name of an error means, on a host without the documentation.

use clap::Args;
use serde::Serialize;

use super::dispatch::Context;
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure};

const EXAMPLES: &str = "\
Examples:
  holdfast explain                   every name, its exit code and what it means
  holdfast explain in-use            what to do about this one";

/// Say what the name of an error means and what to do.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// The name, as an error prints it behind `code`; all of them when left out
    name: Option<String>,
}

#[derive(Serialize)]
struct Explained {
    name: &'static str,
    exit_code: u8,
    meaning: &'static str,
    next: &'static str,
}

impl Explained {
    fn of(name: ErrorName) -> Self {
        Self {
            name: name.slug(),
            exit_code: name.exit_code().number(),
            meaning: name.meaning(),
            next: name.next(),
        }
    }

    fn text(&self) -> String {
        let Self {
            name,
            exit_code,
            meaning,
            next,
        } = self;
        format!("{name} (exit code {exit_code})\n  {meaning}\n  next: {next}")
    }
}

/// Prints it.
pub(crate) fn run(args: &ExplainArgs, context: &Context) -> Result<ExitCode, Failure> {
    let wanted = |name: &ErrorName| args.name.as_deref().is_none_or(|one| one == name.slug());
    let names = ErrorName::ALL.into_iter().filter(wanted);
    let explained: Vec<Explained> = names.map(Explained::of).collect();
    if explained.is_empty() {
        let what = "no error has this name".to_owned();
        return Err(Failure::new(ErrorName::NotFound, what)
            .next("`holdfast explain` lists the names there are"));
    }
    context.output.show(&explained, |all| {
        let texts: Vec<String> = all.iter().map(Explained::text).collect();
        texts.join("\n\n")
    })?;
    Ok(ExitCode::Done)
}
