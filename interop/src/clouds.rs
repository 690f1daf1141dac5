//! Other places for a vault than the usual S3 server: a second implementation of S3, and a
//! stand-in for Azure Blob Storage. There is none for Google's: the one that can be had
//! (fake-gcs-server 1.56) has no create-only upload in the form that the object store library uses.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::peers::{Peer, Peers, workspace_dir};
use crate::ports;
use crate::process::Process;
use crate::run;
use crate::s3::{ACCESS_KEY, SECRET_KEY};

/// The bucket, or the container, of the vault.
pub const BUCKET: &str = "backups";

/// Azurite's only account.
const AZURE_ACCOUNT: &str = "devstoreaccount1";

/// Its key, which its documentation names.
const AZURE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A running server and how a vault on it is configured.
#[derive(Debug)]
pub struct Cloud {
    process: Process,
    vault: String,
    folder: TempDir,
}

impl Cloud {
    /// `MinIO`, with the bucket as a folder of its data.
    ///
    /// # Errors
    /// When it cannot be built or does not come up.
    pub fn minio(peers: &Peers) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("data");
        std::fs::create_dir_all(data.join(BUCKET))?;
        let address = free_address()?;
        let mut command = peers.command(Peer::Minio)?;
        command
            .env("MINIO_ROOT_USER", ACCESS_KEY)
            .env("MINIO_ROOT_PASSWORD", SECRET_KEY)
            .env("MINIO_BROWSER", "off")
            .env("HOME", folder.path())
            .args(["server", "--quiet", "--address", &address.to_string()])
            .arg(&data);
        let process = started("minio", &mut command, folder.path(), address)?;
        let credentials = folder.path().join("credentials");
        let text =
            format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
        std::fs::write(&credentials, text)?;
        let vault = format!(
            "{{ s3: {{ bucket: {BUCKET}, prefix: a/prefix, endpoint: \"http://{address}\", \
             allow_http: true, credentials_file: {} }} }}",
            credentials.display()
        );
        Ok(Self {
            process,
            vault,
            folder,
        })
    }

    /// A stand-in for Azure Blob Storage; `None` where it cannot be had.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn azure(peers: &Peers) -> Result<Option<Self>> {
        let Some(program) = peers.azurite()? else {
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        let address = free_address()?;
        let mut command = Command::new(program);
        command
            .args(["--silent", "--skipApiVersionCheck", "--disableTelemetry"])
            .args(["--blobHost", "127.0.0.1", "--blobPort"])
            .arg(address.port().to_string())
            .arg("--location")
            .arg(folder.path().join("data"));
        let process = started("azurite", &mut command, folder.path(), address)?;
        let url = format!("http://{address}/{AZURE_ACCOUNT}/{BUCKET}?restype=container");
        let script = workspace_dir().join("interop/peers/azure/container.js");
        let words = [&url, AZURE_ACCOUNT, BUCKET, AZURE_KEY];
        run::run(Command::new("node").arg(script).args(words))?.success()?;
        let key = folder.path().join("key");
        std::fs::write(&key, format!("{AZURE_KEY}\n"))?;
        let vault = format!(
            "{{ azure: {{ account: {AZURE_ACCOUNT}, container: {BUCKET}, prefix: a/prefix, \
             endpoint: \"http://{address}/{AZURE_ACCOUNT}\", allow_http: true, \
             access_key_file: {} }} }}",
            key.display()
        );
        Ok(Some(Self {
            process,
            vault,
            folder,
        }))
    }

    /// The vault's place, as `restore.vault` takes it.
    pub fn vault(&self) -> &str {
        &self.vault
    }

    /// What the server wrote so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The folder of everything it keeps.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?)))
}

fn started(
    name: &str,
    command: &mut Command,
    folder: &Path,
    address: SocketAddr,
) -> Result<Process> {
    let mut process = Process::start(name, command, &folder.join("log"))?;
    process
        .ready(|| TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok())
        .with_context(|| format!("{name} at {address}"))?;
    Ok(process)
}
