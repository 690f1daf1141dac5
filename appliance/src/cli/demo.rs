//! `holdfast demo`: the whole story on a terminal.

use std::path::PathBuf;

use clap::Args;

use super::dispatch::Context;
use crate::demo;
use crate::exit_code::ExitCode;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  holdfast demo                  in a temporary folder that is removed afterwards
  holdfast demo --keep           leave the folder, to look around in it
  holdfast demo --no-etcd        without a real etcd as second source

Every step is the real command and is checked from outside; the exit code is 20 when a step does
not hold.";

/// See the whole story in under a minute, in a temporary folder.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Leave the folder with the store, the vault and the logs
    #[arg(long)]
    keep: bool,
    /// Leave out the scene with a real etcd
    #[arg(long)]
    no_etcd: bool,
    /// The `etcd` program for that scene; else one on the PATH or in target/peers/bin, else built
    /// with Go from interop/peers
    #[arg(long, value_name = "FILE", conflicts_with = "no_etcd")]
    etcd_binary: Option<PathBuf>,
}

/// Tells the story.
pub(crate) async fn run(args: &DemoArgs, context: &Context) -> Result<ExitCode, Failure> {
    let options = demo::Options {
        keep: args.keep,
        with_etcd: !args.no_etcd,
        etcd_binary: args.etcd_binary.clone(),
    };
    demo::tell(&options, context.output).await
}
