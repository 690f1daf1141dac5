//! A real S3 server over a temporary folder.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use crate::peers::{Peer, Peers};
use crate::ports;
use crate::process::Process;

/// The access key of the server's root user.
pub const ACCESS_KEY: &str = "holdfast";
/// The secret of the server's root user.
pub const SECRET_KEY: &str = "holdfast-secret";

/// A running server; the objects of a bucket are plain files below [`S3::bucket_dir`].
#[derive(Debug)]
pub struct S3 {
    process: Process,
    address: SocketAddr,
    folder: TempDir,
}

impl S3 {
    /// Starts a server that has the given buckets.
    ///
    /// # Errors
    /// When it cannot be built or does not come up.
    pub fn start(peers: &Peers, buckets: &[&str]) -> Result<Self> {
        Self::start_with(peers, buckets, false)
    }

    /// The same without buckets, keeping versions: a bucket made there can have object lock.
    ///
    /// # Errors
    /// When it cannot be built or does not come up.
    pub fn start_versioned(peers: &Peers) -> Result<Self> {
        Self::start_with(peers, &[], true)
    }

    fn start_with(peers: &Peers, buckets: &[&str], is_versioned: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("data");
        std::fs::create_dir_all(&data)?;
        for bucket in buckets {
            std::fs::create_dir_all(data.join(bucket))?;
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let mut command = peers.command(Peer::Versitygw)?;
        command
            .env("ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("ROOT_SECRET_KEY", SECRET_KEY)
            .args(["--port", &address.to_string(), "posix"]);
        if is_versioned {
            let versions = folder.path().join("versions");
            std::fs::create_dir_all(&versions)?;
            command.arg("--versioning-dir").arg(versions);
        }
        command.arg(&data);
        let log = folder.path().join("log");
        let mut process = Process::start("versitygw", &mut command, &log)?;
        process.ready(|| TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok())?;
        Ok(Self {
            process,
            address,
            folder,
        })
    }

    /// `http://127.0.0.1:<port>`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The folder behind a bucket, for damage that the S3 protocol would not allow.
    pub fn bucket_dir(&self, bucket: &str) -> PathBuf {
        self.folder.path().join("data").join(bucket)
    }

    /// What the server wrote so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The folder of everything the server keeps.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }
}
