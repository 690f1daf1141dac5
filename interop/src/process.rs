//! A child process that ends with its owner.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// How long a process may take to end after SIGTERM.
const STOP_MAX: Duration = Duration::from_secs(20);

/// A running child; killed and reaped on drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with both outputs appended to `log`.
    ///
    /// # Errors
    /// When the log cannot be opened or the program cannot be started.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let out = File::options().create(true).append(true).open(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self {
            child,
            name: name.to_owned(),
            log: log.to_owned(),
        })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the process wrote so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Waits until `look` gives a value; an early end of the process is an error with its log.
    ///
    /// # Errors
    /// When the process ends first or [`wait::READY_MAX`] is over.
    pub fn ready<T>(&mut self, mut look: impl FnMut() -> Option<T>) -> Result<T> {
        let name = self.name.clone();
        let found = wait::until(&name, wait::READY_MAX, || {
            if let Some(status) = self.child.try_wait()? {
                return Err(anyhow!("{name} ended early: {status}"));
            }
            Ok(look())
        });
        found.with_context(|| format!("log of {name}:\n{}", tail(&self.log(), 60)))
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Errors
    /// When the process does not end in time.
    pub fn stop(mut self) -> Result<ExitStatus> {
        self.send(Signal::TERM)?;
        self.wait_end(STOP_MAX)
    }

    /// Sends SIGKILL and waits for the end.
    ///
    /// # Errors
    /// When the process cannot be reaped.
    pub fn kill(mut self) -> Result<ExitStatus> {
        self.child.kill()?;
        Ok(self.child.wait()?)
    }

    /// Waits at most `max` for the process to end by itself.
    ///
    /// # Errors
    /// When it still runs then.
    pub fn wait_end(&mut self, max: Duration) -> Result<ExitStatus> {
        let name = format!("end of {}", self.name);
        wait::until(&name, max, || Ok(self.child.try_wait()?))
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn send(&self, signal: Signal) -> Result<()> {
        let raw = i32::try_from(self.child.id())?;
        let pid = Pid::from_raw(raw).context("process id 0")?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already ended and reaped is fine; there is nobody to tell about anything else.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

/// The last `lines` lines of `text`.
fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    all.get(from..).unwrap_or_default().join("\n")
}
