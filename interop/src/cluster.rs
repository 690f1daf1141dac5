//! Several members of one cluster: real etcd or ours, with the same flags, on loopback or in
//! network namespaces; with links between them that can be cut, when that is asked for.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::etcdctl::Etcdctl;
use crate::failpoints::Failpoints;
use crate::mesh::{self, Links, Mesh};
use crate::peers::{Peer, Peers};
use crate::process::Process;
use crate::server::Kind;
use crate::{holdfast, hosts, http, ports, wait};

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
    network: Network,
    /// The host by which members on loopback are advertised to their peers, if not by its address.
    pub peer_host: Option<String>,
    /// What `--initial-cluster-token` says, from the next start of a member on.
    pub token: String,
    /// Whether the members reach each other by https; the flags say with which certificates.
    pub is_secure: bool,
    /// Whether the program must have failpoints.
    has_failpoints: bool,
    folder: TempDir,
}

/// What is between the members.
#[derive(Debug)]
enum Network {
    /// Loopback.
    Direct,
    /// A proxy in front of each, on loopback.
    Mesh(Mesh),
    /// A host for each, with packet filters.
    Hosts(Links),
}

/// One member: its place, and its process while it runs.
#[derive(Debug)]
struct Node {
    name: String,
    client: SocketAddr,
    /// Where its peers reach it: itself, or a proxy.
    front: SocketAddr,
    /// Where it listens for them.
    behind: SocketAddr,
    /// Where its failpoints are driven, if it has any.
    failpoints: SocketAddr,
    /// Words before its command line, for example `ip netns exec <name>`.
    prefix: Vec<String>,
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

    /// As [`Cluster::start`], with a link between every two members.
    ///
    /// # Errors
    /// When one does not come up; its log is part of the error.
    pub fn start_linked(peers: &Peers, kind: Kind, size: usize, flags: &[&str]) -> Result<Self> {
        let mut cluster = Self::plan(peers, kind, 0, flags)?;
        let gate = "--feature-gates=SetMemberLocalAddr=true";
        cluster.flags.push(gate.to_owned());
        cluster.network = Network::Mesh(Mesh::new()?);
        cluster.start_more(size)?;
        Ok(cluster)
    }

    /// As [`Cluster::start_linked`], of a build of ours that has failpoints.
    ///
    /// # Errors
    /// When one does not come up; its log is part of the error.
    pub fn start_with_failpoints(peers: &Peers, size: usize, flags: &[&str]) -> Result<Self> {
        let mut cluster = Self::plan(peers, Kind::Holdfast, 0, flags)?;
        let gate = "--feature-gates=SetMemberLocalAddr=true";
        cluster.flags.push(gate.to_owned());
        cluster.network = Network::Mesh(Mesh::new()?);
        cluster.has_failpoints = true;
        cluster.start_more(size)?;
        Ok(cluster)
    }

    /// As [`Cluster::start_linked`], each member on a host of its own ([`hosts::enter`]).
    ///
    /// # Errors
    /// When one does not come up; its log is part of the error.
    pub fn start_on_hosts(peers: &Peers, kind: Kind, size: usize, flags: &[&str]) -> Result<Self> {
        let mut cluster = Self::plan(peers, kind, 0, flags)?;
        hosts::make_bridge()?;
        cluster.network = Network::Hosts(Links::new(true));
        cluster.start_more(size)?;
        Ok(cluster)
    }

    fn start_more(&mut self, size: usize) -> Result<()> {
        for _ in 0..size {
            self.reserve()?;
        }
        let all = self.initial_cluster();
        self.launch_all(&all)
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
            network: Network::Direct,
            has_failpoints: false,
            peer_host: None,
            token: "interop".to_owned(),
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
        let at = self.nodes.len();
        let (host, prefix) = match &self.network {
            Network::Direct => (Ipv4Addr::LOCALHOST, Vec::new()),
            // Members are told apart by their addresses.
            Network::Mesh(_) => (mesh::address_of(at), Vec::new()),
            Network::Hosts(_) => {
                hosts::make_host(at)?;
                (hosts::address_of(at), hosts::prefix_of(at))
            }
        };
        let place = || anyhow::Ok(SocketAddr::from((host, ports::free()?)));
        let behind = place()?;
        let front = if let Network::Mesh(mesh) = &self.network {
            let front = place()?;
            mesh.stand_before(at, front, behind)?;
            front
        } else {
            behind
        };
        self.nodes.push(Node {
            name: format!("m{at}"),
            client: place()?,
            front,
            behind,
            failpoints: place()?,
            prefix,
            process: None,
        });
        Ok(at)
    }

    /// Gives a member of a cluster on loopback another place for its peers, from its next start on.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn relocate(&mut self, at: usize) -> Result<()> {
        ensure!(matches!(self.network, Network::Direct), "it has links");
        let node = self.nodes.get_mut(at).context("no such member")?;
        node.behind = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        node.front = node.behind;
        Ok(())
    }

    /// Words before the command line of a member, from its next start on.
    pub fn set_prefix(&mut self, at: usize, prefix: &[&str]) {
        if let Some(node) = self.nodes.get_mut(at) {
            node.prefix = prefix.iter().map(|&word| word.to_owned()).collect();
        }
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
        self.launch_told(at, (initial_cluster, state), "")
    }

    /// The same, with failpoints that are told something from the start on: `a=panic;b=off`.
    ///
    /// # Errors
    /// When its program cannot be started.
    pub fn launch_told(
        &mut self,
        at: usize,
        (initial_cluster, state): (&str, &str),
        points: &str,
    ) -> Result<()> {
        let mut command = self.command(at, initial_cluster, state)?;
        if self.has_failpoints {
            let address = self.nodes.get(at).context("no such member")?.failpoints;
            command.env("GOFAIL_HTTP", address.to_string());
            command.env("GOFAIL_FAILPOINTS", points);
        }
        let log = self.log_path(at);
        let node = self.nodes.get_mut(at).context("no such member")?;
        node.process = Some(Process::start(&node.name, &mut command, &log)?);
        Ok(())
    }

    fn command(&self, at: usize, initial_cluster: &str, state: &str) -> Result<Command> {
        let node = self.nodes.get(at).context("no such member")?;
        let mut command = match self.kind {
            Kind::Etcd => self.peers.command(Peer::Etcd)?,
            Kind::Holdfast => {
                let mut command = if self.has_failpoints {
                    Command::new(holdfast::program_with_failpoints()?)
                } else {
                    holdfast::command()?
                };
                command.arg("store");
                command
            }
        };
        let (client, peer) = (self.endpoint(at), self.peer_url(at));
        command
            .arg(format!("--name={}", node.name))
            .arg(format!("--data-dir={}", self.data_dir(at).display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!(
                "--listen-peer-urls={}://{}",
                self.scheme(),
                node.behind
            ))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster-state={state}"))
            .arg(format!("--initial-cluster-token={}", self.token))
            .args(&self.flags);
        if !initial_cluster.is_empty() {
            command.arg(format!("--initial-cluster={initial_cluster}"));
        }
        Ok(match node.prefix.split_first() {
            Some((first, words)) => {
                let mut wrapped = Command::new(first);
                wrapped.args(words).arg(command.get_program());
                wrapped.args(command.get_args());
                wrapped
            }
            None => command,
        })
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
        self.restart_all(&[at])
    }

    /// Starts members again at once, which may need each other to serve.
    ///
    /// # Errors
    /// When one does not come up.
    pub fn restart_all(&mut self, places: &[usize]) -> Result<()> {
        let all = self.initial_cluster();
        let said: Vec<usize> = places.iter().map(|at| self.said_ready(*at)).collect();
        for at in places {
            self.launch(*at, &all, "new")?;
        }
        for (at, said) in places.iter().zip(said) {
            self.wait_ready(*at, said)?;
        }
        Ok(())
    }

    /// Whether a member was started and not ended since.
    pub fn is_up(&self, at: usize) -> bool {
        self.nodes
            .get(at)
            .is_some_and(|node| node.process.is_some())
    }

    /// The process id of a member.
    ///
    /// # Errors
    /// When it does not run.
    pub fn process_id(&self, at: usize) -> Result<u32> {
        let node = self.nodes.get(at).context("no such member")?;
        let process = node.process.as_ref();
        Ok(process.context("the member does not run")?.id())
    }

    /// The failpoints of a member.
    ///
    /// # Errors
    /// When there is no such member.
    pub fn failpoints(&self, at: usize) -> Result<Failpoints> {
        let node = self.nodes.get(at).context("no such member")?;
        Ok(Failpoints::at(node.failpoints))
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

    /// The member that a majority of the running ones that answer call the leader, once there is
    /// one.
    ///
    /// # Errors
    /// When there is none within a minute.
    pub fn leader(&self) -> Result<usize> {
        wait::until("a leader", wait::READY_MAX, || {
            let said = self.said_of_leaders();
            let found = said.iter().find(|(_, own, _)| {
                let votes = said.iter().filter(|(_, _, leader)| leader == own);
                votes.count() * 2 > said.len()
            });
            Ok(found.map(|(at, ..)| *at))
        })
    }

    /// The member that the one at `at` calls the leader, when it knows one.
    pub fn leader_seen_by(&self, at: usize) -> Option<usize> {
        let said = self.said_of_leaders();
        let (_, _, leader) = said.iter().find(|(place, ..)| *place == at)?;
        let (at, ..) = said.iter().find(|(_, own, _)| own == leader)?;
        Some(*at)
    }

    /// Each running member that answers: its place, its id and the id of the leader it knows.
    fn said_of_leaders(&self) -> Vec<(usize, u64, u64)> {
        let up: Vec<usize> = (0..self.size()).filter(|at| self.is_up(*at)).collect();
        let words = ["endpoint", "status", "--command-timeout=2s", "-w", "json"];
        // It fails when one does not answer, and prints what the others said.
        let Ok(output) = self.ctl_of(&up).run(&words) else {
            return Vec::new();
        };
        let answers: Vec<Value> = serde_json::from_str(&output.stdout).unwrap_or_default();
        let told = answers.iter().filter_map(|answer| {
            let endpoint = answer.pointer("/Endpoint")?.as_str()?;
            let at = up.iter().find(|at| self.endpoint(**at) == endpoint)?;
            let own = answer.pointer("/Status/header/member_id")?.as_u64()?;
            // 0, and absent: it knows none.
            let leader = answer.pointer("/Status/leader");
            Some((*at, own, leader.and_then(Value::as_u64).unwrap_or(0)))
        });
        told.collect()
    }

    /// The links between the members.
    ///
    /// # Errors
    /// When it was started without.
    pub fn links(&self) -> Result<&Links> {
        match &self.network {
            Network::Direct => bail!("this cluster has no links"),
            Network::Mesh(mesh) => Ok(mesh.links()),
            Network::Hosts(links) => Ok(links),
        }
    }

    /// Names and ids of the started members, asked of the member at `at`.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn members(&self, at: usize) -> Result<Vec<(String, u64)>> {
        let list = self.ctl(at).json(&["member", "list", "--consistency=s"])?;
        let members = list.pointer("/members").and_then(Value::as_array);
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

    /// Where clients reach each member.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.size()).map(|at| self.endpoint(at)).collect()
    }

    /// Where its peers reach it.
    pub fn peer_url(&self, at: usize) -> String {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let front = self.nodes.get(at).map_or(nowhere, |node| node.front);
        match &self.peer_host {
            Some(host) => format!("{}://{host}:{}", self.scheme(), front.port()),
            None => format!("{}://{front}", self.scheme()),
        }
    }

    fn scheme(&self) -> &'static str {
        if self.is_secure { "https" } else { "http" }
    }

    /// The client address of the member at a place.
    pub fn address(&self, at: usize) -> SocketAddr {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        self.nodes.get(at).map_or(nowhere, |node| node.client)
    }

    /// The data directory of the member at a place.
    pub fn data_dir(&self, at: usize) -> PathBuf {
        self.folder.path().join(self.name(at))
    }

    fn log_path(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("{}.log", self.name(at)))
    }

    /// How often a member said that it serves, over all its starts.
    pub fn said_ready(&self, at: usize) -> usize {
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
