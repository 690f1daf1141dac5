//! Several members of one cluster on free loopback ports: real etcd or ours, with the same flags.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::etcdctl::Etcdctl;
use crate::peers::{Peer, Peers};
use crate::process::Process;
use crate::server::Kind;
use crate::{holdfast, http, ports, wait};

/// What a member says once it serves.
const READY: &str = "ready to serve client requests";

/// A cluster; its members are killed on drop.
#[derive(Debug)]
pub struct Cluster {
    kind: Kind,
    peers: Peers,
    nodes: Vec<Node>,
    /// Further flags of every member.
    pub flags: Vec<String>,
    /// Whether the members reach each other by https; the flags say with which certificates.
    pub is_secure: bool,
    folder: TempDir,
}

/// One member: its place, and its process while it runs.
#[derive(Debug)]
struct Node {
    name: String,
    client_port: u16,
    peer_port: u16,
    process: Option<Process>,
}

impl Cluster {
    /// Starts `size` members named `m0`, `m1`, ... as one new cluster and waits until all serve.
    ///
    /// # Errors
    /// When one does not come up; its log is part of the error.
    pub fn start(peers: &Peers, kind: Kind, size: usize, flags: &[&str]) -> Result<Self> {
        let mut cluster = Self::plan(peers, kind, size, flags)?;
        let all = cluster.initial_cluster();
        cluster.launch_all(&all)?;
        Ok(cluster)
    }

    /// Places for `size` members; none is started.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn plan(peers: &Peers, kind: Kind, size: usize, flags: &[&str]) -> Result<Self> {
        let mut cluster = Self {
            kind,
            peers: peers.clone(),
            nodes: Vec::new(),
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            is_secure: false,
            folder: tempfile::tempdir()?,
        };
        for _ in 0..size {
            cluster.reserve()?;
        }
        Ok(cluster)
    }

    /// Starts a new cluster of all places and waits until all serve. Without an `initial_cluster`
    /// the flags say how the members find each other.
    ///
    /// # Errors
    /// When one does not come up.
    pub fn launch_all(&mut self, initial_cluster: &str) -> Result<()> {
        for at in 0..self.size() {
            self.launch(at, initial_cluster, "new")?;
        }
        for at in 0..self.size() {
            self.wait_ready(at, 0)?;
        }
        Ok(())
    }

    /// A place for one more member, not started: its index.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn reserve(&mut self) -> Result<usize> {
        self.nodes.push(Node {
            name: format!("m{}", self.nodes.len()),
            client_port: ports::free()?,
            peer_port: ports::free()?,
            process: None,
        });
        Ok(self.nodes.len() - 1)
    }

    /// `m0=http://...,m1=...` of all places.
    pub fn initial_cluster(&self) -> String {
        let places: Vec<usize> = (0..self.nodes.len()).collect();
        self.initial_cluster_of(&places)
    }

    /// The same of some places.
    pub fn initial_cluster_of(&self, places: &[usize]) -> String {
        let named = places.iter().filter(|at| **at < self.nodes.len());
        let parts: Vec<String> = named
            .map(|at| format!("{}={}", self.name(*at), self.peer_url(*at)))
            .collect();
        parts.join(",")
    }

    /// Starts the member at a place and waits until it serves.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn boot(&mut self, at: usize, initial_cluster: &str, state: &str) -> Result<()> {
        let said = self.said_ready(at);
        self.launch(at, initial_cluster, state)?;
        self.wait_ready(at, said)
    }

    /// Starts the member at a place and waits for nothing.
    ///
    /// # Errors
    /// When its program cannot be started.
    pub fn launch(&mut self, at: usize, initial_cluster: &str, state: &str) -> Result<()> {
        let mut command = self.command(at, initial_cluster, state)?;
        let log = self.log_path(at);
        let node = self.nodes.get_mut(at).context("no such member")?;
        node.process = Some(Process::start(&node.name, &mut command, &log)?);
        Ok(())
    }

    fn command(&self, at: usize, initial_cluster: &str, state: &str) -> Result<Command> {
        let mut command = match self.kind {
            Kind::Etcd => self.peers.command(Peer::Etcd)?,
            Kind::Holdfast => {
                let mut command = holdfast::command()?;
                command.arg("store");
                command
            }
        };
        let (client, peer) = (self.endpoint(at), self.peer_url(at));
        command
            .arg(format!("--name={}", self.name(at)))
            .arg(format!("--data-dir={}", self.data_dir(at).display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster-state={state}"))
            .arg("--initial-cluster-token=interop")
            .args(&self.flags);
        if !initial_cluster.is_empty() {
            command.arg(format!("--initial-cluster={initial_cluster}"));
        }
        Ok(command)
    }

    fn wait_ready(&mut self, at: usize, said_before: usize) -> Result<()> {
        let log = self.log_path(at);
        let address = self.address(at);
        let process = self.process(at)?;
        process.ready(|| {
            (count(&log, READY) > said_before)
                .then(|| http::get(address, "/version").ok())
                .flatten()
        })?;
        Ok(())
    }

    /// Ends a member with SIGKILL.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self, at: usize) -> Result<ExitStatus> {
        self.take(at)?.kill()
    }

    /// Ends a member with SIGTERM.
    ///
    /// # Errors
    /// When it does not run or does not end.
    pub fn stop(&mut self, at: usize) -> Result<ExitStatus> {
        self.take(at)?.stop()
    }

    /// Waits for a member to end by itself.
    ///
    /// # Errors
    /// When it still runs after `max`.
    pub fn wait_end(&mut self, at: usize, max: Duration) -> Result<ExitStatus> {
        let status = self.process(at)?.wait_end(max)?;
        drop(self.take(at)?);
        Ok(status)
    }

    /// Starts a member again on its data, with the flags of its first start.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn restart(&mut self, at: usize) -> Result<()> {
        let all = self.initial_cluster();
        self.boot(at, &all, "new")
    }

    /// Sends a signal, for example STOP and CONT.
    ///
    /// # Errors
    /// When the member does not run.
    pub fn signal(&mut self, at: usize, signal: Signal) -> Result<()> {
        self.process(at)?.send(signal)
    }

    /// What a member wrote so far, over all its starts.
    pub fn log(&self, at: usize) -> String {
        std::fs::read_to_string(self.log_path(at)).unwrap_or_default()
    }

    /// etcdctl that talks to one member.
    pub fn ctl(&self, at: usize) -> Etcdctl {
        Etcdctl::new(&self.peers, &self.endpoint(at))
    }

    /// etcdctl that knows some members.
    pub fn ctl_of(&self, places: &[usize]) -> Etcdctl {
        let endpoints: Vec<String> = places.iter().map(|at| self.endpoint(*at)).collect();
        Etcdctl::new(&self.peers, &endpoints.join(","))
    }

    /// The place of the leader, asked of the member at `at`.
    ///
    /// # Errors
    /// When it knows none within a minute.
    pub fn leader(&self, at: usize) -> Result<usize> {
        wait::until("a leader", wait::READY_MAX, || {
            let Ok(status) = self.ctl(at).json(&["endpoint", "status"]) else {
                return Ok(None);
            };
            let leader = status
                .pointer("/0/Status/leader")
                .and_then(serde_json::Value::as_u64);
            let members = self.members(at).unwrap_or_default();
            let found = members.iter().find(|(_, id)| Some(*id) == leader);
            Ok(found.and_then(|(name, _)| self.nodes.iter().position(|node| node.name == *name)))
        })
    }

    /// Names and ids of the started members, asked of the member at `at`.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn members(&self, at: usize) -> Result<Vec<(String, u64)>> {
        let list = self.ctl(at).json(&["member", "list", "--consistency=s"])?;
        let members = list
            .pointer("/members")
            .and_then(serde_json::Value::as_array);
        let members = members.context("no members")?.iter();
        Ok(members
            .filter_map(|member| {
                let name = member.get("name")?.as_str()?.to_owned();
                Some((name, member.get("ID")?.as_u64()?))
            })
            .collect())
    }

    /// Whose program this is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many places there are.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// The name of the member at a place.
    pub fn name(&self, at: usize) -> &str {
        self.nodes.get(at).map_or("", |node| &node.name)
    }

    /// Where clients reach the member at a place.
    pub fn endpoint(&self, at: usize) -> String {
        format!("http://{}", self.address(at))
    }

    /// Where its peers reach it.
    pub fn peer_url(&self, at: usize) -> String {
        let port = self.nodes.get(at).map_or(0, |node| node.peer_port);
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{port}")
    }

    /// The client address of the member at a place.
    pub fn address(&self, at: usize) -> SocketAddr {
        let port = self.nodes.get(at).map_or(0, |node| node.client_port);
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// The data directory of the member at a place.
    pub fn data_dir(&self, at: usize) -> PathBuf {
        self.folder.path().join(self.name(at))
    }

    fn log_path(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("{}.log", self.name(at)))
    }

    fn said_ready(&self, at: usize) -> usize {
        count(&self.log_path(at), READY)
    }

    fn process(&mut self, at: usize) -> Result<&mut Process> {
        let node = self.nodes.get_mut(at).context("no such member")?;
        node.process.as_mut().context("the member does not run")
    }

    fn take(&mut self, at: usize) -> Result<Process> {
        let node = self.nodes.get_mut(at).context("no such member")?;
        node.process.take().context("the member does not run")
    }
}

fn count(log: &Path, text: &str) -> usize {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    log.matches(text).count()
}
