//! A real etcd, where one is to be had: given, on the PATH, built before, or built now with Go.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::client::Client;
use super::commands::SERVING_PATIENCE;
use crate::failure::{ErrorName, Failure, OrFail as _};

/// Longest wait for a build of etcd, from the moment its scene begins.
const BUILD_PATIENCE: Duration = Duration::from_mins(2);

/// The package of etcd's server, pinned in `interop/peers/go.mod`.
const PACKAGE: &str = "go.etcd.io/etcd/server/v3";

/// Where the program comes from.
#[derive(Debug)]
pub(super) enum Etcd {
    /// It is there.
    Ready(PathBuf),
    /// It is being built since the beginning of the demonstration.
    Building(JoinSet<Result<PathBuf, String>>),
    /// There is none, for this reason.
    Missing(String),
}

impl Etcd {
    /// Looks for the program; starts to build it where only Go is there.
    pub(super) fn look_for(given: Option<&Path>) -> Self {
        if let Some(given) = given {
            return Self::Ready(given.to_owned());
        }
        let built = built_places().into_iter().find(|place| place.is_file());
        if let Some(found) = built.or_else(|| on_path("etcd")) {
            return Self::Ready(found);
        }
        let module = Path::new("interop/peers");
        if !module.join("go.mod").is_file() {
            return Self::Missing(
                "no etcd on the PATH, and not in a checkout that could build one".to_owned(),
            );
        }
        match on_path("go") {
            None => Self::Missing("no etcd on the PATH and no Go to build it with".to_owned()),
            Some(go) => {
                let mut building = JoinSet::new();
                building.spawn(build(go, module.to_owned()));
                Self::Building(building)
            }
        }
    }

    /// The program, or why there is none; waits for a build, but not for ever.
    pub(super) async fn program(self) -> Result<PathBuf, String> {
        match self {
            Self::Ready(program) => Ok(program),
            Self::Missing(reason) => Err(reason),
            Self::Building(mut building) => {
                match tokio::time::timeout(BUILD_PATIENCE, building.join_next()).await {
                    Ok(Some(Ok(built))) => built,
                    Ok(Some(Err(error))) => Err(format!("building etcd broke off: {error}")),
                    Ok(None) => Err("building etcd never began".to_owned()),
                    Err(_elapsed) => {
                        let seconds = BUILD_PATIENCE.as_secs();
                        Err(format!(
                            "building etcd takes longer than {seconds} s; run it again"
                        ))
                    }
                }
            }
        }
    }
}

/// Beside this program (`target/<profile>/holdfast`) and in the folder it runs in.
fn built_places() -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("target/peers/bin/etcd")];
    if let Ok(program) = std::env::current_exe()
        && let Some(target) = program.parent().and_then(Path::parent)
    {
        places.push(target.join("peers/bin/etcd"));
    }
    places
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

async fn build(go: PathBuf, module: PathBuf) -> Result<PathBuf, String> {
    let program = std::path::absolute("target/peers/bin/etcd").map_err(|e| e.to_string())?;
    let built = Command::new(go)
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .args([
            "build",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags=-s -w",
            "-o",
        ])
        .arg(&program)
        .arg(PACKAGE)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| error.to_string())?;
    if built.status.success() {
        return Ok(program);
    }
    let complaint = String::from_utf8_lossy(&built.stderr).into_owned();
    let last = complaint
        .lines()
        .last()
        .unwrap_or("go build failed")
        .to_owned();
    Err(format!("etcd was not built: {last}"))
}

/// A running etcd on loopback.
#[derive(Debug)]
pub(super) struct RunningEtcd {
    child: Child,
    /// Where clients connect.
    pub(super) endpoint: String,
}

impl RunningEtcd {
    /// Starts it on `data_dir`, or on what a restore wrote there.
    pub(super) async fn start(
        program: &Path,
        data_dir: &Path,
        log: &Path,
        peer_url: &str,
    ) -> Result<(Self, Client), Failure> {
        let endpoint = format!("http://127.0.0.1:{}", free_port()?);
        let log = std::fs::File::create(log).or_fail(format!("{} not opened", log.display()))?;
        let child = Command::new(program)
            .arg("--data-dir")
            .arg(data_dir)
            .args([
                "--listen-client-urls",
                &endpoint,
                "--advertise-client-urls",
                &endpoint,
            ])
            .args([
                "--listen-peer-urls",
                peer_url,
                "--initial-advertise-peer-urls",
                peer_url,
            ])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            .args(["--log-level", "warn"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .or_fail(format!("{} was not started", program.display()))?;
        let running = Self { child, endpoint };
        let client = Client::connect(&running.endpoint, SERVING_PATIENCE).await?;
        Ok((running, client))
    }

    /// Ends it.
    pub(super) async fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().await.or_fail("etcd was not ended")
    }
}

/// A port of loopback that nobody listens on now.
pub(super) fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").or_fail("no free port on loopback")?;
    let address = listener.local_addr().or_fail("no free port on loopback")?;
    match address.port() {
        0 => Err(Failure::new(
            ErrorName::Unavailable,
            "no free port on loopback",
        )),
        port => Ok(port),
    }
}
