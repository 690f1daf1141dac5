//! Our own program, built once per test run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};

use crate::peers::{target_dir, workspace_dir};

/// Environment variable that names another `holdfast` program to test, for example a release.
pub const PROGRAM_VARIABLE: &str = "HOLDFAST_TEST_PROGRAM";

/// The path of the `holdfast` program, built with cargo unless it is newer than its sources.
///
/// # Errors
/// When the build fails.
pub fn program() -> Result<PathBuf> {
    if let Some(other) = std::env::var_os(PROGRAM_VARIABLE) {
        return Ok(PathBuf::from(other));
    }
    built()
}

/// The same; one that was named and has no failpoints, as a release, is not taken.
///
/// # Errors
/// When the build fails.
pub fn program_with_failpoints() -> Result<PathBuf> {
    const TRACE: &[u8] = b"GOFAIL_HTTP";
    static FOUND: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut found = FOUND
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(path) = found.as_ref() {
        return Ok(path.clone());
    }
    let path = program()?;
    let bytes = fs::read(&path)?;
    let has_any = bytes.windows(TRACE.len()).any(|window| window == TRACE);
    let path = if has_any { path } else { built()? };
    *found = Some(path.clone());
    Ok(path)
}

fn built() -> Result<PathBuf> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut built = BUILT
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(path) = built.as_ref() {
        return Ok(path.clone());
    }
    let path = target_dir().join("debug/holdfast");
    if !is_fresh(&path) {
        build()?;
    }
    *built = Some(path.clone());
    Ok(path)
}

/// A command that runs `holdfast`.
///
/// # Errors
/// When the build fails.
pub fn command() -> Result<Command> {
    Ok(Command::new(program()?))
}

/// Whether every source that cargo noted beside the program is older than the program.
///
/// `cargo test --workspace` has just built the program, perhaps with other features than a build
/// of one package would choose; building again would then compile every library a second time.
fn is_fresh(program: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let Some(built) = modified(program) else {
        return false;
    };
    let Ok(notes) = fs::read_to_string(program.with_extension("d")) else {
        return false;
    };
    let sources = notes.split_once(": ").map_or("", |(_, sources)| sources);
    let is_older = |time: Option<SystemTime>| time.is_some_and(|time| time <= built);
    !sources.is_empty()
        && sources
            .split_whitespace()
            .all(|path| is_older(modified(path.as_ref())))
}

fn build() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(workspace_dir())
        .args(["build", "--locked", "--workspace", "--bin", "holdfast"])
        .env("CARGO_TARGET_DIR", target_dir())
        .output()
        .context("start cargo build")?;
    if !output.status.success() {
        bail!("cargo build: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
