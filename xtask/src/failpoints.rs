//! Whether a built program has failpoints in it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

/// What is in every program with failpoints, and in no other.
const TRACE: &[u8] = b"GOFAIL_HTTP";

/// Which program.
#[derive(Debug, Args)]
pub(crate) struct NoFailpointsArguments {
    /// The program, for example `target/release/holdfast`.
    program: PathBuf,
}

/// # Errors
/// When the program cannot be read, or has failpoints.
pub(crate) fn run(arguments: &NoFailpointsArguments) -> Result<ExitCode> {
    ensure_absent(&arguments.program)?;
    Ok(ExitCode::SUCCESS)
}

/// # Errors
/// When the program cannot be read, or has failpoints.
pub(crate) fn ensure_absent(program: &Path) -> Result<()> {
    let bytes = std::fs::read(program).with_context(|| program.display().to_string())?;
    let has_trace = bytes.windows(TRACE.len()).any(|window| window == TRACE);
    ensure!(
        !has_trace,
        "{} has failpoints: build it without debug assertions",
        program.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_program_carries_the_trace_and_cargos_manifest_does_not() {
        let own = std::env::current_exe().unwrap();
        assert!(ensure_absent(&own).is_err());
        let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        ensure_absent(&other).unwrap();
    }
}
