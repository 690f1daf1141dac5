//! The long form of the bounded tests, against the release program; all of it ends with a small run
//! of the benchmark of three members.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Args;

use crate::bench::{self, BenchArguments};

/// How long, and which tests.
#[derive(Debug, Args)]
pub(crate) struct LongArguments {
    /// Minutes of faults drawn at random for the clusters under load.
    #[arg(long, default_value_t = 15)]
    minutes: u64,
    /// One package only, for example holdfast-interop.
    #[arg(long)]
    package: Option<String>,
    /// Tests whose name contains this.
    filter: Option<String>,
}

/// # Errors
/// When the program or the tests cannot be built.
pub(crate) fn run(arguments: &LongArguments) -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let program = bench::release_program(&root)?;
    let mut tests = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    tests.current_dir(&root).args(["test", "--locked"]);
    match &arguments.package {
        Some(package) => tests.args(["--package", package]),
        None => tests.arg("--workspace"),
    };
    // What a test has done so far is told while it runs; one at a time, for times are watched.
    tests.args(["--", "--nocapture", "--test-threads=1"]);
    tests.args(&arguments.filter);
    let status = tests
        .env("HOLDFAST_LONG_TESTS", "1")
        .env("HOLDFAST_TEST_MINUTES", arguments.minutes.to_string())
        .env("HOLDFAST_TEST_PROGRAM", program)
        .status()?;
    if !status.success() {
        return Ok(ExitCode::FAILURE);
    }
    if arguments.filter.is_none() && arguments.package.is_none() {
        return bench::run(&BenchArguments::quick_cluster());
    }
    Ok(ExitCode::SUCCESS)
}
