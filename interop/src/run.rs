//! Short programs run to their end.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::wait;

/// How long a short program may run.
pub const RUN_MAX: Duration = Duration::from_mins(2);

/// What a program left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The exit code; -1 after a signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// The output, when the program said success.
    ///
    /// # Errors
    /// With everything it printed otherwise.
    pub fn success(self) -> Result<Self> {
        if self.code != 0 {
            bail!("exit code {}\n{}\n{}", self.code, self.stdout, self.stderr);
        }
        Ok(self)
    }

    /// Standard output as JSON.
    ///
    /// # Errors
    /// When the program failed or printed something else.
    pub fn json(self) -> Result<Value> {
        let output = self.success()?;
        serde_json::from_str(&output.stdout).with_context(|| output.stdout.clone())
    }
}

/// Runs `command` without input, for at most [`RUN_MAX`].
///
/// # Errors
/// When it cannot be started or does not end.
pub fn run(command: &mut Command) -> Result<Output> {
    run_with_input(command, "")
}

/// Runs `command` with `input`, for at most [`RUN_MAX`].
///
/// # Errors
/// When it cannot be started or does not end.
pub fn run_with_input(command: &mut Command, input: &str) -> Result<Output> {
    run_within(command, input, RUN_MAX)
}

/// Runs `command` with `input`, for at most `max`.
///
/// # Errors
/// When it cannot be started or does not end.
pub fn run_within(command: &mut Command, input: &str, max: Duration) -> Result<Output> {
    let folder = tempfile::tempdir()?;
    let [stdin, stdout, stderr] = ["in", "out", "err"].map(|name| folder.path().join(name));
    std::fs::write(&stdin, input)?;
    let mut child = command
        .stdin(Stdio::from(std::fs::File::open(&stdin)?))
        .stdout(std::fs::File::create(&stdout)?)
        .stderr(std::fs::File::create(&stderr)?)
        .spawn()
        .with_context(|| format!("start {command:?}"))?;
    let ended = wait::until("end of a program", max, || Ok(child.try_wait()?));
    let Ok(status) = ended else {
        child.kill()?;
        child.wait()?;
        bail!("{command:?} did not end within {max:?}");
    };
    let text = |path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Output {
        code: status.code().unwrap_or(-1),
        stdout: text(stdout)?,
        stderr: text(stderr)?,
    })
}
