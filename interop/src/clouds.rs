//! Other places for a vault than the usual S3 server: a second implementation of S3, and stand-ins
//! for Google Cloud Storage and Azure Blob Storage.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::peers::{Peer, Peers};
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

/// Makes a container with a signed request: url, account, container and key are its arguments.
const MAKE_CONTAINER: &str = r#"
const [url, account, container, key] = process.argv.slice(1);
const date = new Date().toUTCString(), version = "2021-08-06";
const text = "PUT" + "
".repeat(12) + `x-ms-date:${date}
x-ms-version:${version}
` +
  `/${account}/${account}/${container}
restype:container`;
const hmac = require("crypto").createHmac("sha256", Buffer.from(key, "base64"));
const signature = hmac.update(text, "utf8").digest("base64");
const headers = { "x-ms-date": date, "x-ms-version": version, "content-length": 0,
  authorization: `SharedKey ${account}:${signature}` };
require("http").request(url, { method: "PUT", headers }, (answer) => {
  answer.resume();
  if (answer.statusCode !== 201) { console.error(answer.statusCode); process.exit(1); }
}).end();
"#;

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

    /// A stand-in for Google Cloud Storage.
    ///
    /// # Errors
    /// When it cannot be built or does not come up.
    pub fn google(peers: &Peers) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("data");
        std::fs::create_dir_all(data.join(BUCKET))?;
        let address = free_address()?;
        let mut command = peers.command(Peer::FakeGcs)?;
        command
            .args(["-scheme", "http", "-host", "127.0.0.1", "-port"])
            .arg(address.port().to_string())
            .args(["-public-host", &address.to_string()])
            .arg("-filesystem-root")
            .arg(&data);
        let process = started("fake-gcs-server", &mut command, folder.path(), address)?;
        // The form that the object store library takes for servers without logins.
        let account = folder.path().join("account.json");
        let text = format!(
            "{{\"gcs_base_url\": \"http://{address}\", \"disable_oauth\": true, \
             \"client_email\": \"\", \"private_key\": \"\", \"private_key_id\": \"\"}}"
        );
        std::fs::write(&account, text)?;
        let vault = format!(
            "{{ gcs: {{ bucket: {BUCKET}, prefix: a/prefix, endpoint: \"http://{address}\", \
             allow_http: true, service_account_file: {} }} }}",
            account.display()
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
        let words = ["-e", MAKE_CONTAINER, &url, AZURE_ACCOUNT, BUCKET, AZURE_KEY];
        run::run(Command::new("node").args(words))?.success()?;
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
