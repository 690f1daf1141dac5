//! The commands of the story: `holdfast` itself, run as a child with its output captured.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use super::client::Client;
use super::stage::Stage;
use crate::failure::{Failure, OrFail as _};

/// Longest time one command of the story may take.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(2);
/// Longest time a store may take to answer.
pub(super) const SERVING_PATIENCE: Duration = Duration::from_secs(20);

/// How a command ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    /// The exit code; -1 when a signal ended it.
    pub(super) code: i32,
    /// Standard output.
    pub(super) said: String,
    /// Standard error.
    pub(super) complained: String,
}

impl Ended {
    /// Standard output as JSON.
    pub(super) fn json(&self, stage: &Stage) -> Result<serde_json::Value, Failure> {
        serde_json::from_str(&self.said).map_err(|error| {
            stage
                .failed(format!("the answer is not JSON: {error}"))
                .because_of(self.said.clone())
        })
    }
}

/// Runs `holdfast` in one folder with one configuration.
#[derive(Debug)]
pub(super) struct Holdfast {
    program: PathBuf,
    folder: PathBuf,
    config: PathBuf,
}

impl Holdfast {
    /// This very program, in `folder`, under `config`.
    pub(super) fn new(folder: &Path, config: &Path) -> Result<Self, Failure> {
        let program = std::env::current_exe().or_fail("this program cannot find itself")?;
        Ok(Self {
            program,
            folder: folder.to_owned(),
            config: config.to_owned(),
        })
    }

    /// Runs a command to its end and hands back what it said.
    pub(super) async fn run(&self, stage: &Stage, words: &[&str]) -> Result<Ended, Failure> {
        let what = || format!("`holdfast {}` was not run", words.join(" "));
        let mut command = self.command(words);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let running = command.kill_on_drop(true).output();
        let output = tokio::time::timeout(COMMAND_TIMEOUT, running)
            .await
            .map_err(|_elapsed| stage.failed(format!("`holdfast {}` hangs", words.join(" "))))?
            .or_fail(what())?;
        Ok(Ended {
            code: output.status.code().unwrap_or(-1),
            said: String::from_utf8_lossy(&output.stdout).into_owned(),
            complained: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Shows a command, runs it, shows what it said, and expects it to succeed.
    pub(super) async fn show(
        &self,
        stage: &Stage,
        words: &[&str],
        lines_max: usize,
    ) -> Result<Ended, Failure> {
        stage.command(&format!("holdfast {}", words.join(" ")))?;
        let ended = self.run(stage, words).await?;
        stage.quote(&ended.said, lines_max)?;
        if ended.code == 0 {
            return Ok(ended);
        }
        let line = words.join(" ");
        Err(stage
            .failed(format!("`holdfast {line}` ended with {}", ended.code))
            .because_of(ended.complained.trim().to_owned()))
    }

    /// Runs a command and expects success, its JSON answer unshown.
    pub(super) async fn ask(
        &self,
        stage: &Stage,
        words: &[&str],
    ) -> Result<serde_json::Value, Failure> {
        let mut with_json = words.to_vec();
        with_json.extend(["-w", "json"]);
        let ended = self.run(stage, &with_json).await?;
        if ended.code != 0 {
            let line = words.join(" ");
            return Err(stage
                .failed(format!("`holdfast {line}` ended with {}", ended.code))
                .because_of(ended.complained.trim().to_owned()));
        }
        ended.json(stage)
    }

    /// Starts the daemon and waits until its store answers at `endpoint`.
    pub(super) async fn start_daemon(&self, endpoint: &str) -> Result<(Daemon, Client), Failure> {
        let log = self.folder.join("daemon.log");
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .or_fail(format!("{} was not opened", log.display()))?;
        let mut command = self.command(&["run"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .kill_on_drop(true);
        let child = command.spawn().or_fail("the daemon was not started")?;
        let daemon = Daemon { child };
        let client = Client::connect(endpoint, SERVING_PATIENCE)
            .await
            .map_err(|failure| {
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                let tail: Vec<&str> = text.lines().rev().take(5).collect();
                tail.into_iter().rev().fold(failure, Failure::because_of)
            })?;
        Ok((daemon, client))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .current_dir(&self.folder)
            .args(words)
            .env("HOLDFAST_CONFIG", &self.config);
        for name in [
            "HOLDFAST_WRITE_OUT",
            "HOLDFAST_LOG_LEVEL",
            "HOLDFAST_LOG_FORMAT",
        ] {
            command.env_remove(name);
        }
        command
    }
}

/// A daemon of the story.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
}

impl Daemon {
    /// Ends it as a power cut does.
    pub(super) async fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().await.or_fail("the daemon was not ended")
    }
}
