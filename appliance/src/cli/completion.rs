//! `holdfast completion`: a script that completes our commands in a shell.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::args::Cli;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::write_out;

const EXAMPLES: &str = "\
Examples:
  holdfast completion bash > /etc/bash_completion.d/holdfast
  holdfast completion zsh > ~/.zfunc/_holdfast
  holdfast completion fish > ~/.config/fish/completions/holdfast.fish";

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionArgs) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "holdfast", &mut script);
    write_out(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::Done)
}
