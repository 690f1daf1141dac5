//! The scratch member, seen from the drill: a child process that serves on loopback.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

use super::order::{MemberCommand, MemberOrder, READY, Ready};
use crate::auth::AuthFacts;
use crate::error::{Error, Result};

/// A member that is asked to stop has this long before it is killed.
const STOP_MAX: Duration = Duration::from_secs(15);

/// Lines of other output a member may print before its answer.
const LINES_MAX: usize = 1000;

/// A running scratch member. Killed when dropped.
#[derive(Debug)]
pub(crate) struct ScratchMember {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Kept open: a member that prints into a closed pipe would end.
    _stdout: BufReader<ChildStdout>,
    ready: Ready,
}

impl ScratchMember {
    /// Starts the members of one cluster in `scratch` together: none serves without the others. One
    /// that does not come up ends all of them.
    pub(crate) async fn start_all(
        command: &MemberCommand,
        orders: Vec<MemberOrder>,
        scratch: &Path,
    ) -> Result<Vec<Self>> {
        let mut starting = JoinSet::new();
        for (at, order) in orders.into_iter().enumerate() {
            let (command, scratch) = (command.clone(), scratch.to_owned());
            starting.spawn(async move {
                let started = Self::start(&command, &order, &scratch).await;
                started.map(|member| (at, member))
            });
        }
        let mut started = Vec::new();
        while let Some(one) = starting.join_next().await {
            let one = one.map_err(|error| Error::member(format!("is lost: {error}")))?;
            started.push(one?);
        }
        started.sort_by_key(|(at, _)| *at);
        Ok(started.into_iter().map(|(_, member)| member).collect())
    }

    /// Stops all of them together; what is left is named.
    pub(crate) async fn stop_all(members: Vec<Self>) -> Vec<String> {
        let mut stopping = JoinSet::new();
        for member in members {
            stopping.spawn(member.stop());
        }
        stopping.join_all().await.into_iter().flatten().collect()
    }

    /// Starts a member in `scratch` and waits until it says where it serves.
    pub(crate) async fn start(
        command: &MemberCommand,
        order: &MemberOrder,
        scratch: &Path,
    ) -> Result<Self> {
        let log_path = scratch.join(format!("{}.log", order.name));
        let log = File::create(&log_path).map_err(Error::io("create", &log_path))?;
        let mut child = Command::new(&command.program)
            .args(&command.args)
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            .current_dir(scratch)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(Error::io("start", &command.program))?;
        let no_pipe = || Error::member("has no pipe");
        let mut stdin = child.stdin.take().ok_or_else(no_pipe)?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or_else(no_pipe)?);
        let mut line = serde_json::to_vec(order)
            .map_err(|error| Error::member(format!("cannot be told: {error}")))?;
        line.push(b'\n');
        // A member that ended already does not read; the lines it printed say more.
        if let Err(error) = stdin.write_all(&line).await {
            tracing::debug!(%error, "the scratch member does not listen");
        }
        let ready = wait_until_ready(&mut stdout).await;
        let ready = match ready {
            Ok(ready) => ready,
            Err(error) => {
                tracing::warn!(log = %tail(&log_path), "the scratch member did not come up");
                return Err(error);
            }
        };
        Ok(Self {
            child,
            stdin: Some(stdin),
            _stdout: stdout,
            ready,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.ready.address
    }

    /// The authentication records it booted with, if it can tell.
    pub(crate) fn auth(&self) -> Option<&AuthFacts> {
        self.ready.auth.as_ref()
    }

    /// Stops the member and makes sure that process and port are gone. What is left is named.
    pub(crate) async fn stop(mut self) -> Vec<String> {
        let mut left = Vec::new();
        drop(self.stdin.take());
        match tokio::time::timeout(STOP_MAX, self.child.wait()).await {
            Ok(Ok(_status)) => {}
            Ok(Err(error)) => left.push(format!("the member's process: {error}")),
            Err(_elapsed) => {
                tracing::warn!("the scratch member does not stop and is killed");
                if let Err(error) = self.child.kill().await {
                    left.push(format!("the member's process: {error}"));
                }
            }
        }
        if is_open(self.address()).await {
            left.push(format!("port {}", self.address().port()));
        }
        left
    }
}

async fn is_open(address: SocketAddr) -> bool {
    let connect = TcpStream::connect(address);
    matches!(
        tokio::time::timeout(Duration::from_secs(1), connect).await,
        Ok(Ok(_))
    )
}

async fn wait_until_ready(stdout: &mut BufReader<ChildStdout>) -> Result<Ready> {
    let mut line = String::new();
    for _ in 0..LINES_MAX {
        line.clear();
        let read = stdout.read_line(&mut line).await;
        let read = read.map_err(|error| Error::member(format!("cannot be heard: {error}")))?;
        if read == 0 {
            return Err(Error::member("ended before it served"));
        }
        if let Some((_, answer)) = line.split_once(READY) {
            return serde_json::from_str(answer)
                .map_err(|error| Error::member(format!("answers nonsense: {error}")));
        }
    }
    Err(Error::member("never says where it serves"))
}

/// The end of a log, for the appliance's own log.
fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(20);
    lines.get(from..).unwrap_or_default().join("\n")
}
