//! The daemon's private door: a socket in the data directory on which commands of the same user ask
//! for a run now, so that one process alone works on a source.
//!
//! One line of JSON asks, one line of JSON answers. The folder is readable by its owner only, and
//! that is the login.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_drills::DrillReport;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::backup::BackupReport;
use super::board::Failing;
use super::turn::Turn;
use crate::config::{self, Laid, Settings};
use crate::failure::{Failure, OrFail as _};

/// Longest request, in bytes.
const REQUEST_BYTES_MAX: u64 = 16 * 1024;
/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Longest wait for a request on an open connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// What a command may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// Whose turn it is to run the jobs.
    Turn,
    /// Which jobs fail.
    Failing,
    /// A backup of this source.
    Backup {
        /// The source.
        source: String,
        /// It has become another cluster on purpose.
        accept_new_cluster: bool,
    },
    /// A drill of this source's newest backup.
    Drill {
        /// The source.
        source: String,
    },
}

/// What is sent: the wish, and what the command's flags and environment say. The daemon works by
/// its own settings, and must not do so in silence where the command was told others.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The wish.
    pub(crate) ask: Ask,
    /// The settings laid over the command's file.
    pub(crate) laid: Vec<Laid>,
}

impl Request {
    /// Refuses a request that was made under other settings than `settings`.
    pub(crate) fn check(&self, settings: &Settings) -> Result<(), Failure> {
        let Some((laid, here)) = config::differing(&settings.config, &self.laid)? else {
            return Ok(());
        };
        let Laid { place, path, value } = laid;
        let failure = Failure::usage(
            format!("the daemon would not follow {place}"),
            format!("leave it out, or restart the daemon with `{path}` changed"),
        );
        Err(failure.because_of(format!(
            "the daemon runs with {here}, the command has {value}"
        )))
    }
}

/// What comes back.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// Whose turn it is.
    Turn(Turn),
    /// The jobs whose last run failed.
    Failing(Failing),
    /// The backup that was taken.
    Backup(Box<BackupReport>),
    /// The drill that was run.
    Drill(Box<DrillReport>),
    /// It did not work.
    Failed(Failure),
}

/// Where the socket of the daemon on `data_dir` is.
pub(crate) fn socket_path(data_dir: &Path) -> PathBuf {
    data_dir.join("control.sock")
}

/// Opens the socket; a leftover of a dead daemon is replaced (the caller holds the lock).
pub(crate) fn listen(data_dir: &Path) -> Result<UnixListener, Failure> {
    let path = socket_path(data_dir);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::io(
                format!("{} cannot be replaced", path.display()),
                &error,
            ));
        }
        _ => {}
    }
    UnixListener::bind(&path).or_fail(format!("the socket {} cannot be opened", path.display()))
}

/// Reads one request from a connection.
pub(crate) async fn receive(stream: &mut UnixStream) -> Result<Request, Failure> {
    let mut line = String::new();
    let mut reader = BufReader::new(stream.take(REQUEST_BYTES_MAX));
    let read = tokio::time::timeout(REQUEST_TIMEOUT, reader.read_line(&mut line)).await;
    match read {
        Ok(Ok(_)) => serde_json::from_str(&line).map_err(|error| {
            Failure::usage(
                "the request is not one",
                "use the same version of `holdfast`",
            )
            .because(&error)
        }),
        Ok(Err(error)) => Err(Failure::io("the request could not be read", &error)),
        Err(_elapsed) => Err(Failure::usage("no request came", "ask within five seconds")),
    }
}

/// Sends the answer.
pub(crate) async fn reply(stream: &mut UnixStream, answer: &Answer) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(answer)
        .map_err(|e| Failure::unexpected("the answer could not be written", &e))?;
    line.push(b'\n');
    stream
        .write_all(&line)
        .await
        .or_fail("the answer could not be sent")
}

/// Asks the daemon of these settings' data directory; `None` when there is no daemon.
pub(crate) async fn ask(settings: &Settings, ask: Ask) -> Result<Option<Answer>, Failure> {
    let path = socket_path(&settings.data_dir());
    let request = Request {
        ask,
        laid: settings.laid.clone(),
    };
    let Ok(mut stream) = UnixStream::connect(&path).await else {
        return Ok(None);
    };
    let what = || format!("the daemon at {} does not answer", path.display());
    let mut line = serde_json::to_vec(&request)
        .map_err(|e| Failure::unexpected("the request could not be written", &e))?;
    line.push(b'\n');
    stream.write_all(&line).await.or_fail(what())?;
    let mut answer = String::new();
    let mut reader = BufReader::new(stream.take(ANSWER_BYTES_MAX));
    reader.read_line(&mut answer).await.or_fail(what())?;
    serde_json::from_str(&answer).map(Some).map_err(|error| {
        Failure::new(crate::failure::ErrorName::Unavailable, what())
            .because(&error)
            .next("it may be stopping, or of another version; see its log")
    })
}
