//! Builds the release programs and hands over to the benchmark of the `interop` crate, so that
//! `cargo xtask tidy` does not have to compile the store.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::failpoints;

/// How much to measure and where to write it.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// A small run of a few minutes, to see that everything works.
    #[arg(long)]
    quick: bool,
    /// Members of a cluster; with more than one, what a cluster does is measured.
    #[arg(long, default_value_t = 1)]
    members: u8,
    /// Replace the table in docs/performance.md.
    #[arg(long)]
    write: bool,
}

impl BenchArguments {
    /// A small run with three members.
    pub(crate) const fn quick_cluster() -> Self {
        Self {
            quick: true,
            members: 3,
            write: false,
        }
    }
}

/// # Errors
/// When a build fails or a measurement cannot be made.
pub(crate) fn run(arguments: &BenchArguments) -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let program = release_program(&root)?;
    failpoints::ensure_absent(&program)?;
    cargo(&root, &["build", "--locked", "--bin", "bench"])?;
    let mut bench = Command::new(target_dir(&root)?.join("debug/bench"));
    bench.env("HOLDFAST_TEST_PROGRAM", program);
    bench.arg("--members").arg(arguments.members.to_string());
    if arguments.quick {
        bench.arg("--quick");
    }
    if arguments.write {
        bench.arg("--write").arg(root.join("docs/performance.md"));
    }
    let status = bench.status().context("start the benchmark")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Builds the program as it is released.
///
/// # Errors
/// When the build fails.
pub(crate) fn release_program(root: &Path) -> Result<PathBuf> {
    // The default members: the simulation switches on a clock for tests in tokio.
    cargo(
        root,
        &["build", "--locked", "--release", "--bin", "holdfast"],
    )?;
    Ok(target_dir(root)?.join("release/holdfast"))
}

fn cargo(root: &Path, words: &[&str]) -> Result<()> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(program)
        .current_dir(root)
        .args(words)
        .status()?;
    ensure!(status.success(), "cargo {}: {status}", words.join(" "));
    Ok(())
}

fn target_dir(root: &Path) -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .current_dir(root)
        .no_deps()
        .exec()?;
    Ok(metadata.target_directory.into_std_path_buf())
}
