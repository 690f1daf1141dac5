//! Log lines: JSON for machines or text for people, on standard error, never with payloads or keys.

use std::io::{self, IsTerminal as _};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// The form of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// The consensus library says at `info` what only its own authors need, and warns of each call that
/// a peer does not answer.
fn with_quiet_raft(level: &str) -> String {
    let is_wanted = level.contains("openraft") || matches!(level, "debug" | "trace");
    if is_wanted {
        level.to_owned()
    } else {
        format!("{level},openraft=error")
    }
}

/// Words that are a level by themselves.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Whether `level` is a level or a filter.
pub(crate) fn check(level: &str) -> Result<(), Failure> {
    filter(level).map(drop)
}

fn filter(level: &str) -> Result<EnvFilter, Failure> {
    let refused = || {
        Failure::usage(
            format!("the log level `{level}` is not one"),
            "use error, warn, info, debug or trace, or a filter such as info,holdfast_store=debug",
        )
    };
    // The library takes a mistyped level for the name of a module, and logs nothing else.
    let is_level = |word: &str| LEVELS.contains(&word.to_ascii_lowercase().as_str());
    let mut words = level.split(',').map(str::trim);
    if !words.all(|word| word.contains(['=', '[']) || is_level(word)) {
        return Err(refused());
    }
    EnvFilter::builder()
        .parse(with_quiet_raft(level))
        .map_err(|error| refused().because(&error))
}

/// Starts logging at `level` (`error`, `warn`, `info`, `debug`, `trace`, or a filter such as
/// `info,holdfast_store=debug`); call it once.
pub(crate) fn start(level: &str, format: LogFormat) -> Result<(), Failure> {
    let filter = filter(level)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let is_json = match format {
        LogFormat::Auto => !io::stderr().is_terminal(),
        LogFormat::Json => true,
        LogFormat::Text => false,
    };
    let started = if is_json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.with_ansi(io::stderr().is_terminal()).try_init()
    };
    started.map_err(|error| Failure::unexpected("logging could not be started", error.as_ref()))
}
