//! A real etcd on a restored data directory.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinSet;

use super::order::MemberOrder;
use crate::error::{Error, Result};

/// Log lines read while waiting for the address.
const LINES_MAX: usize = 100_000;

/// etcd has this long to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(8);

/// A running etcd. Killed when dropped.
pub(super) struct EtcdProcess {
    child: Child,
    address: SocketAddr,
    /// Reads its log; ends with it.
    log: JoinSet<()>,
}

#[derive(Deserialize)]
struct LogLine {
    #[serde(default)]
    msg: String,
    #[serde(default)]
    address: String,
}

impl EtcdProcess {
    /// Starts etcd on free loopback ports and waits until it says where it serves clients.
    pub(super) async fn start(program: &Path, order: &MemberOrder) -> Result<Self> {
        let mut command = Command::new(program);
        let own = std::env::vars_os().map(|(name, _)| name);
        for name in own.filter(|name| name.to_string_lossy().starts_with("ETCD_")) {
            command.env_remove(name);
        }
        let listen_peers = if order.has_peers() {
            order.peer_url()
        } else {
            "http://127.0.0.1:0"
        };
        let mut child = command
            .args(["--name", &order.name, "--data-dir"])
            .arg(&order.data_dir)
            .args(["--listen-client-urls", "http://127.0.0.1:0"])
            .args(["--advertise-client-urls", "http://127.0.0.1:0"])
            .args(["--listen-peer-urls", listen_peers])
            .args(["--initial-advertise-peer-urls", order.peer_url()])
            .args(["--initial-cluster", &order.initial_cluster()])
            .args(["--initial-cluster-token", &order.token])
            .args(auth_token(order))
            .args([
                "--logger",
                "zap",
                "--log-outputs",
                "stderr",
                "--log-level",
                "info",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(Error::io("start", program))?;
        let stderr = child
            .stderr
            .take()
            .ok_or_else(|| Error::member("has no log"))?;
        let mut lines = BufReader::new(stderr);
        let address = wait_for_address(&mut lines).await?;
        let mut log = JoinSet::new();
        log.spawn(forward(lines));
        Ok(Self {
            child,
            address,
            log,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns when etcd ends by itself.
    pub(super) async fn ended(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => format!("etcd ended: {status}"),
            Err(error) => format!("etcd is lost: {error}"),
        }
    }

    /// Stops etcd: asks first, then kills.
    pub(super) async fn stop(mut self) -> Result<()> {
        let id = self
            .child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        if let Some(id) = id
            && let Err(error) = kill_process(id, Signal::TERM)
        {
            tracing::debug!(%error, "etcd is gone already");
        }
        if tokio::time::timeout(STOP_MAX, self.child.wait())
            .await
            .is_err()
        {
            let killed = self.child.kill().await;
            killed.map_err(|error| Error::member(format!("does not stop: {error}")))?;
        }
        self.log.abort_all();
        Ok(())
    }
}

fn auth_token(order: &MemberOrder) -> impl Iterator<Item = &str> {
    let value = order.auth_token.as_deref();
    value.into_iter().flat_map(|value| ["--auth-token", value])
}

/// etcd tells the port it was given only in its log.
async fn wait_for_address(lines: &mut BufReader<ChildStderr>) -> Result<SocketAddr> {
    let mut line = String::new();
    for _ in 0..LINES_MAX {
        line.clear();
        let read = lines.read_line(&mut line).await;
        if read.map_err(|error| Error::member(format!("cannot be heard: {error}")))? == 0 {
            return Err(Error::member("(etcd) ended before it served"));
        }
        log(&line);
        let Ok(entry) = serde_json::from_str::<LogLine>(&line) else {
            continue;
        };
        if entry.msg.starts_with("serving client traffic")
            && let Ok(address) = entry.address.parse()
        {
            return Ok(address);
        }
    }
    Err(Error::member("(etcd) never says where it serves"))
}

/// Goes on reading, so that etcd never waits for a full pipe.
async fn forward(mut lines: BufReader<ChildStderr>) {
    let mut line = String::new();
    while matches!(lines.read_line(&mut line).await, Ok(1..)) {
        log(&line);
        line.clear();
    }
}

/// To the member's own log, which lies in the scratch directory.
fn log(line: &str) {
    use std::io::Write as _;
    if std::io::stderr().write_all(line.as_bytes()).is_err() {
        tracing::debug!("the log of the scratch member is full");
    }
}
