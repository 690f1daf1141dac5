//! A cluster of several members on loopback whose links can be cut: real etcd or ours, with the
//! same flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_proto::etcd::rpc;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::Client;
use crate::failpoints::Failpoints;
use crate::mesh::{Links, Mesh, address_of};
use crate::peers::{Peer, Peers};
use crate::process::Process;
use crate::server::Kind;
use crate::{holdfast, http, ports, wait};

/// How long a member may take to say who leads.
const STATUS_MAX: Duration = Duration::from_secs(2);

/// How a cluster is started; everything else is etcd's default.
#[derive(Debug, Clone)]
pub struct LinkedOptions {
    /// Whose program.
    pub kind: Kind,
    /// Founding members.
    pub count: usize,
    /// Whether there are links between the members that can be cut; without, they are direct.
    pub has_links: bool,
    /// Further flags of every member.
    pub flags: Vec<String>,
}

/// Where a member is reached and where its data lies.
#[derive(Debug)]
struct Place {
    client: SocketAddr,
    /// Where other members reach it: a proxy.
    peer_front: SocketAddr,
    /// Where it listens for them.
    peer_behind: SocketAddr,
    /// Where its failpoints are driven, if it has any.
    failpoints: SocketAddr,
    data_dir: PathBuf,
    log: PathBuf,
}

/// Running members; killed on drop.
#[derive(Debug)]
pub struct Linked {
    options: LinkedOptions,
    peers: Peers,
    places: Vec<Place>,
    /// `None` while a member is down.
    processes: Vec<Option<Process>>,
    mesh: Mesh,
    _folder: TempDir,
}

impl Linked {
    /// Starts `count` members and waits until each is healthy. Call it on a tokio runtime, which
    /// carries the links.
    ///
    /// # Errors
    /// When one does not come up; its log is part of the error.
    pub async fn start(peers: &Peers, kind: Kind, count: usize) -> Result<Self> {
        let options = LinkedOptions {
            kind,
            count,
            has_links: true,
            flags: Vec::new(),
        };
        Self::start_with(peers, options).await
    }

    /// As [`Linked::start`], with further flags.
    ///
    /// # Errors
    /// When one does not come up; its log is part of the error.
    pub async fn start_with(peers: &Peers, options: LinkedOptions) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut mesh = Mesh::new();
        let mut places = Vec::new();
        for member in 0..options.count {
            let address = address_of(member);
            let peer_behind = (address, ports::free()?).into();
            let peer_front = if options.has_links {
                (address, ports::free()?).into()
            } else {
                peer_behind
            };
            let place = Place {
                client: (address, ports::free()?).into(),
                peer_front,
                peer_behind,
                failpoints: (address, ports::free()?).into(),
                data_dir: folder.path().join(format!("m{member}")),
                log: folder.path().join(format!("m{member}.log")),
            };
            if options.has_links {
                mesh.stand_before(member, place.peer_front, place.peer_behind)
                    .await?;
            }
            places.push(place);
        }
        let mut cluster = Self {
            processes: places.iter().map(|_| None).collect(),
            options,
            peers: peers.clone(),
            places,
            mesh,
            _folder: folder,
        };
        for member in 0..cluster.len() {
            cluster.launch(member)?;
        }
        for member in 0..cluster.len() {
            cluster.wait_healthy(member).await?;
        }
        Ok(cluster)
    }

    /// How many members were founded.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The links between the members.
    pub fn links(&self) -> &Links {
        self.mesh.links()
    }

    /// `http://<client address>` of a member.
    pub fn endpoint(&self, member: usize) -> String {
        self.places
            .get(member)
            .map_or_else(String::new, |place| format!("http://{}", place.client))
    }

    /// The endpoints of all members.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.len())
            .map(|member| self.endpoint(member))
            .collect()
    }

    /// The failpoints of a member of ours: real etcd and a release have none.
    ///
    /// # Errors
    /// When there is no such member.
    pub fn failpoints(&self, member: usize) -> Result<Failpoints> {
        Ok(Failpoints::at(self.place(member)?.failpoints))
    }

    /// Where the data of a member that is down lies.
    ///
    /// # Errors
    /// When it runs.
    pub fn data_dir(&self, member: usize) -> Result<&std::path::Path> {
        ensure!(!self.is_up(member), "member {member} runs");
        Ok(&self.place(member)?.data_dir)
    }

    /// What a member wrote so far.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn log(&self, member: usize) -> Result<String> {
        Ok(std::fs::read_to_string(&self.place(member)?.log)?)
    }

    /// Waits until a member ends by itself.
    ///
    /// # Errors
    /// When it still runs after `max`.
    pub async fn wait_ended(&mut self, member: usize, max: Duration) -> Result<ExitStatus> {
        let mut process = self.slot(member)?.take().context("the member is down")?;
        // The links run on this runtime: waiting must not stop it.
        let waited = tokio::task::spawn_blocking(move || {
            let ended = process.wait_end(max);
            (process, ended)
        });
        let (process, ended) = waited.await?;
        if ended.is_err() {
            *self.slot(member)? = Some(process);
        }
        ended
    }

    /// The process id of a member.
    ///
    /// # Errors
    /// When it is down.
    pub fn process_id(&self, member: usize) -> Result<u32> {
        let process = self.processes.get(member).and_then(Option::as_ref);
        Ok(process.context("the member is down")?.id())
    }

    /// Starts a member that is down, without waiting for it.
    ///
    /// # Errors
    /// When its program cannot be started.
    pub fn launch(&mut self, member: usize) -> Result<()> {
        self.launch_told(member, "")
    }

    /// The same, with failpoints that are told something from the start on: `a=panic;b=off`.
    ///
    /// # Errors
    /// When its program cannot be started.
    pub fn launch_told(&mut self, member: usize, points: &str) -> Result<()> {
        let mut command = self.command(member)?;
        command.env("GOFAIL_FAILPOINTS", points);
        let name = format!("{:?} m{member}", self.options.kind);
        let log = self.place(member)?.log.clone();
        let process = Process::start(&name, &mut command, &log)?;
        *self.slot(member)? = Some(process);
        Ok(())
    }

    /// Waits until a member says that it is healthy.
    ///
    /// # Errors
    /// When it ends or does not become healthy in time; its log is part of the error.
    pub async fn wait_healthy(&mut self, member: usize) -> Result<()> {
        let address = self.place(member)?.client;
        let mut process = self.slot(member)?.take().context("the member is down")?;
        // The links run on this runtime: waiting must not stop it.
        let waited = tokio::task::spawn_blocking(move || {
            let ready = process.ready(|| {
                http::get(address, "/health")
                    .ok()
                    .filter(|(status, _)| *status == 200)
            });
            (process, ready)
        });
        let (process, ready) = waited.await?;
        *self.slot(member)? = Some(process);
        ready.map(drop)
    }

    /// Ends a member with SIGKILL.
    ///
    /// # Errors
    /// When it is down already or cannot be reaped.
    pub fn kill(&mut self, member: usize) -> Result<()> {
        let process = self.slot(member)?.take().context("the member is down")?;
        process.kill().map(drop)
    }

    /// Whether a member runs.
    pub fn is_up(&self, member: usize) -> bool {
        self.processes.get(member).is_some_and(Option::is_some)
    }

    /// Stops a member's clock and work, as a paused machine does.
    ///
    /// # Errors
    /// When it is down.
    pub fn pause(&mut self, member: usize) -> Result<()> {
        self.signal(member, Signal::STOP)
    }

    /// Lets a paused member go on.
    ///
    /// # Errors
    /// When it is down.
    pub fn resume(&mut self, member: usize) -> Result<()> {
        self.signal(member, Signal::CONT)
    }

    /// The member that a majority of the reachable ones calls the leader, once there is one.
    ///
    /// # Errors
    /// When there is none within a minute.
    pub async fn leader(&self) -> Result<usize> {
        let end = wait::now() + wait::READY_MAX;
        loop {
            let mut said = Vec::new();
            for member in (0..self.len()).filter(|member| self.is_up(*member)) {
                if let Some(status) = status(&self.endpoint(member)).await {
                    let own = status.header.map_or(0, |header| header.member_id);
                    said.push((member, own, status.leader));
                }
            }
            let found = said.iter().find(|(_, own, _)| {
                let votes = said.iter().filter(|(_, _, leader)| leader == own);
                *own != 0 && votes.count() > said.len() / 2
            });
            if let Some((member, ..)) = found {
                return Ok(*member);
            }
            ensure!(wait::now() < end, "no leader: {said:x?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn signal(&mut self, member: usize, signal: Signal) -> Result<()> {
        let process = self.slot(member)?.as_ref().context("the member is down")?;
        let pid = Pid::from_raw(i32::try_from(process.id())?).context("process id 0")?;
        Ok(kill_process(pid, signal)?)
    }

    fn place(&self, member: usize) -> Result<&Place> {
        self.places.get(member).context("no such member")
    }

    fn slot(&mut self, member: usize) -> Result<&mut Option<Process>> {
        self.processes.get_mut(member).context("no such member")
    }

    fn command(&self, member: usize) -> Result<Command> {
        let place = self.place(member)?;
        let mut command = match self.options.kind {
            Kind::Etcd => self.peers.command(Peer::Etcd)?,
            Kind::Holdfast => {
                let mut command = holdfast::command()?;
                command.arg("store");
                command.env("GOFAIL_HTTP", place.failpoints.to_string());
                command
            }
        };
        let founders: Vec<String> = self
            .places
            .iter()
            .enumerate()
            .map(|(number, place)| format!("m{number}=http://{}", place.peer_front))
            .collect();
        command
            .arg(format!("--name=m{member}"))
            .arg(format!("--data-dir={}", place.data_dir.display()))
            .arg(format!("--listen-client-urls=http://{}", place.client))
            .arg(format!("--advertise-client-urls=http://{}", place.client))
            .arg(format!("--listen-peer-urls=http://{}", place.peer_behind))
            .arg(format!(
                "--initial-advertise-peer-urls=http://{}",
                place.peer_front
            ))
            .arg(format!("--initial-cluster={}", founders.join(",")))
            .arg("--initial-cluster-token=interop")
            .args(&self.options.flags);
        if self.options.has_links {
            command.arg("--feature-gates=SetMemberLocalAddr=true");
        }
        Ok(command)
    }
}

/// What a member says of itself, if it answers.
pub async fn status(endpoint: &str) -> Option<rpc::StatusResponse> {
    let asked = async {
        let mut client = Client::connect(endpoint).await.ok()?;
        let answer = client
            .maintenance
            .status(rpc::StatusRequest {})
            .await
            .ok()?;
        Some(answer.into_inner())
    };
    tokio::time::timeout(STATUS_MAX, asked).await.ok()?
}
