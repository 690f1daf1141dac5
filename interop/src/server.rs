//! One running member of a one-member cluster: real etcd or ours, with the same flags.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::peers::{Peer, Peers};
use crate::process::Process;
use crate::{holdfast, http, ports, wait};

/// Whose program answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Real etcd.
    Etcd,
    /// `holdfast store`.
    Holdfast,
}

/// How a server is started; everything else is etcd's default.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Whose program.
    pub kind: Kind,
    /// The member's name.
    pub name: String,
    /// An existing data directory, or none for a new one in a temporary folder.
    pub data_dir: Option<PathBuf>,
    /// The peer port, when the data directory was made for one.
    pub peer_port: Option<u16>,
    /// The cluster token.
    pub token: String,
    /// Further flags, as on a command line.
    pub flags: Vec<String>,
}

impl ServerOptions {
    /// A new member of the given kind.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            name: "m0".to_owned(),
            data_dir: None,
            peer_port: None,
            token: "interop".to_owned(),
            flags: Vec::new(),
        }
    }

    /// The same with another data directory, made for `peer_port`.
    #[must_use]
    pub fn data_dir(mut self, dir: &Path, peer_port: u16) -> Self {
        self.data_dir = Some(dir.to_owned());
        self.peer_port = Some(peer_port);
        self
    }

    /// The same with a further flag.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }
}

/// A running server; killed on drop.
#[derive(Debug)]
pub struct Server {
    process: Process,
    address: SocketAddr,
    options: ServerOptions,
    peers: Peers,
    folder: TempDir,
}

impl Server {
    /// Starts a new member of `kind` and waits until it is healthy.
    ///
    /// # Errors
    /// When it does not come up; the log is part of the error.
    pub fn start(peers: &Peers, kind: Kind) -> Result<Self> {
        Self::start_with(peers, ServerOptions::new(kind))
    }

    /// Starts a member as told and waits until it is healthy.
    ///
    /// # Errors
    /// When it does not come up; the log is part of the error.
    pub fn start_with(peers: &Peers, options: ServerOptions) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        Self::boot(peers, options, folder, ports::free()?)
    }

    fn boot(peers: &Peers, mut options: ServerOptions, folder: TempDir, port: u16) -> Result<Self> {
        let data_dir = options
            .data_dir
            .take()
            .unwrap_or_else(|| folder.path().join("data"));
        let peer_port = options.peer_port.map_or_else(ports::free, Ok)?;
        options.data_dir = Some(data_dir);
        options.peer_port = Some(peer_port);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut command = command(peers, &options, port)?;
        let log = folder.path().join("log");
        let said_before = said_ready(&log);
        let mut process = Process::start(&format!("{:?}", options.kind), &mut command, &log)?;
        // A store that refuses to serve its data is up as well, and says so by its health.
        let has_said_ready = || said_ready(&log) > said_before;
        process.ready(|| {
            has_said_ready()
                .then(|| http::get(address, "/health").ok())
                .flatten()
        })?;
        Ok(Self {
            process,
            address,
            options,
            peers: peers.clone(),
            folder,
        })
    }

    /// Ends the member with SIGTERM and starts it again on the same data and ports.
    ///
    /// # Errors
    /// When it does not end or come up.
    pub fn restart(self) -> Result<Self> {
        Ok(self.restart_timed()?.0)
    }

    /// As [`Server::restart`], with the time from start to serving.
    ///
    /// # Errors
    /// When it does not end or come up.
    pub fn restart_timed(self) -> Result<(Self, Duration)> {
        let Self {
            process,
            address,
            options,
            peers,
            folder,
        } = self;
        process.stop()?;
        let start = wait::now();
        let server = Self::boot(&peers, options, folder, address.port())?;
        Ok((server, start.elapsed()))
    }

    /// Ends the member with SIGKILL and starts it again on the same data and ports.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn restart_after_kill(self) -> Result<Self> {
        let Self {
            process,
            address,
            options,
            peers,
            folder,
        } = self;
        process.kill()?;
        Self::boot(&peers, options, folder, address.port())
    }

    /// Ends the member with SIGTERM; the folder with its data stays until the return value drops.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(self) -> Result<(ExitStatus, TempDir)> {
        Ok((self.process.stop()?, self.folder))
    }

    /// The client address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The peer address.
    ///
    /// # Panics
    /// Never: a started server has one.
    pub fn peer_address(&self) -> SocketAddr {
        let port = self.options.peer_port.expect("set at start");
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// `http://127.0.0.1:<port>`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The folder with the member's data.
    ///
    /// # Panics
    /// Never: a started server has one.
    pub fn data_dir(&self) -> &Path {
        self.options.data_dir.as_deref().expect("set at start")
    }

    /// Whose program this is.
    pub fn kind(&self) -> Kind {
        self.options.kind
    }

    /// The process id.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// What the member wrote so far.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

/// How often the member has said that it serves; the log of a restarted one goes on.
fn said_ready(log: &Path) -> usize {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.matches("ready to serve client requests").count()
}

/// The command line of a member that is its whole cluster.
fn command(peers: &Peers, options: &ServerOptions, port: u16) -> Result<Command> {
    let mut command = match options.kind {
        Kind::Etcd => peers.command(Peer::Etcd)?,
        Kind::Holdfast => {
            let mut command = holdfast::command()?;
            command.arg("store");
            command
        }
    };
    let data_dir = options.data_dir.as_ref().context("no data directory")?;
    let client = format!("http://127.0.0.1:{port}");
    let peer = format!(
        "http://127.0.0.1:{}",
        options.peer_port.context("no peer port")?
    );
    command
        .arg(format!("--name={}", options.name))
        .arg(format!("--data-dir={}", data_dir.display()))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster={}={peer}", options.name))
        .arg(format!("--initial-cluster-token={}", options.token))
        .args(&options.flags);
    Ok(command)
}
