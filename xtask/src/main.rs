//! Developer commands: `cargo xtask tidy` holds the sources to the architecture, and
//! `cargo xtask bench` compares the store with real etcd on the same machine.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod bench;
mod failpoints;
mod tidy;

/// Developer commands of the workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the sources against the rules of the house; fails when one is broken.
    Tidy,
    /// Compare the store with real etcd on this machine and print a table of ratios.
    Bench(bench::BenchArguments),
    /// Look for failpoints in a built program; fails when it has any, as a release must not.
    NoFailpoints(failpoints::NoFailpointsArguments),
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().command {
        Command::Tidy => tidy::run(),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::NoFailpoints(arguments) => failpoints::run(&arguments),
    }
}
