//! The `holdfast` command: read the command line, do what it says, say how it went.

mod admin;
mod alarms;
mod cli;
mod clock;
mod config;
mod daemon;
mod demo;
mod evidence;
mod exit_code;
mod failure;
mod health;
mod jobs;
mod keys;
mod limits;
mod output;
mod panic;
mod preflight;
mod progress;
mod sources;
mod stores;
mod telemetry;
mod vaults;

use std::ffi::OsString;
use std::process;

use anyhow::Context as _;
use clap::Parser as _;

use cli::args::Cli;
use exit_code::ExitCode;
use failure::Failure;
use output::Format;

fn main() -> anyhow::Result<process::ExitCode> {
    panic::install();
    holdfast_store::failpoint::start().context("the failpoints cannot be served")?;
    limits::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the async runtime could not be started")?;

    // etcd's flags are not clap's, so the words after `store` stay as they are.
    let words: Vec<OsString> = std::env::args_os().collect();
    if let [_, command, rest @ ..] = words.as_slice()
        && command == "store"
    {
        let outcome = runtime.block_on(cli::store::run(rest.to_vec()));
        // Everything durable is done; reads still under way must not hold up the exit.
        runtime.shutdown_background();
        return Ok(ended(outcome, Format::Text));
    }

    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => return Ok(explained(&error)),
    };
    let format = cli.global.write_out.unwrap_or_default();
    let outcome = runtime.block_on(cli::dispatch::dispatch(cli));
    runtime.shutdown_background();
    Ok(ended(outcome, format))
}

/// The exit code of a command; a failure is explained first.
fn ended(outcome: Result<ExitCode, Failure>, format: Format) -> process::ExitCode {
    let code = outcome.unwrap_or_else(|failure| {
        output::write_failure(&failure, format);
        failure.exit_code()
    });
    code.into()
}

/// `--help` and `--version` are answers; everything else clap says is a usage error.
fn explained(error: &clap::Error) -> process::ExitCode {
    // When nobody reads the explanation, the exit code still tells.
    error.print().unwrap_or_default();
    let code = if error.use_stderr() {
        ExitCode::Usage
    } else {
        ExitCode::Done
    };
    code.into()
}
