//! `holdfast man`: the manual pages, made from the same words as `--help`.

use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory as _};

use super::args::Cli;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Output, write_out};

const EXAMPLES: &str = "\
Examples:
  holdfast man | man -l -                    read the first page
  holdfast man --dir /usr/share/man/man1     install a page for each command";

/// Print or write the manual pages.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory rather than print the first page
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the first page, or writes all of them.
pub(crate) fn run(args: &ManArgs, output: Output) -> Result<ExitCode, Failure> {
    let mut command = Cli::command();
    command.build();
    match &args.dir {
        None => write_out(&String::from_utf8_lossy(&page(&command, "holdfast")?))?,
        Some(dir) => {
            let written = write_pages(dir, &command, "holdfast")?;
            output.note(format!("{written} pages written to {}", dir.display()));
        }
    }
    Ok(ExitCode::Done)
}

fn write_pages(dir: &Path, command: &Command, name: &str) -> Result<usize, Failure> {
    let file = dir.join(format!("{name}.1"));
    let page = page(command, name)?;
    std::fs::write(&file, page)
        .map_err(|e| Failure::io(format!("{} could not be written", file.display()), &e))?;
    let mut written = 1;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        if sub.get_name() != "help" {
            written += write_pages(dir, sub, &format!("{name}-{}", sub.get_name()))?;
        }
    }
    Ok(written)
}

fn page(command: &Command, name: &str) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(name)
        .render(&mut page)
        .map_err(|e| Failure::io("the manual page could not be made", &e))?;
    Ok(page)
}
