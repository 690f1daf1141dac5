//! Builds the real peers from `interop/peers`, once, under a lock shared by all test processes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow, bail};
use sha2::{Digest as _, Sha256};

/// The version of azurite that is installed.
const AZURITE_VERSION: &str = "3.35.0";

/// A program built from a Go module folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// The etcd server.
    Etcd,
    /// etcd's command line client.
    Etcdctl,
    /// etcd's offline tool.
    Etcdutl,
    /// The checker of etcd's database files.
    Bbolt,
    /// An S3 server over a local folder.
    Versitygw,
    /// etcd's load generator.
    Benchmark,
    /// Our own program on etcd's Go client library.
    Goclient,
    /// A search for one order that explains a small history.
    Checker,
    /// Another S3 server.
    Minio,
}

impl Peer {
    /// The program's file name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Etcdctl => "etcdctl",
            Self::Etcdutl => "etcdutl",
            Self::Bbolt => "bbolt",
            Self::Versitygw => "versitygw",
            Self::Benchmark => "benchmark",
            Self::Goclient => "goclient",
            Self::Checker => "checker",
            Self::Minio => "minio",
        }
    }

    /// The module folder under `interop/peers`: peers whose requirements clash are apart.
    const fn module(self) -> &'static str {
        match self {
            Self::Etcd | Self::Etcdctl | Self::Etcdutl | Self::Bbolt => ".",
            Self::Versitygw => "s3",
            Self::Benchmark => "benchmark",
            Self::Goclient => "goclient",
            Self::Checker => "checker",
            Self::Minio => "minio",
        }
    }

    const fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::Etcdctl => "go.etcd.io/etcd/etcdctl/v3",
            Self::Etcdutl => "go.etcd.io/etcd/etcdutl/v3",
            Self::Bbolt => "go.etcd.io/bbolt/cmd/bbolt",
            Self::Versitygw => "github.com/versity/versitygw/cmd/versitygw",
            Self::Benchmark => "go.etcd.io/etcd/v3/tools/benchmark",
            Self::Goclient | Self::Checker => ".",
            Self::Minio => "github.com/minio/minio",
        }
    }
}

/// The folder with the programs.
#[derive(Debug, Clone)]
pub struct Peers {
    bin: PathBuf,
}

impl Peers {
    /// The peers, or `None` after saying `SKIPPED` when there is no Go to build them with.
    ///
    /// # Panics
    /// Without Go when `CI=true`: there a skipped comparison is a failure.
    pub fn get() -> Option<Self> {
        static HAS_GO: OnceLock<bool> = OnceLock::new();
        let has_go = *HAS_GO.get_or_init(|| Command::new("go").arg("version").output().is_ok());
        if has_go {
            return Some(Self {
                bin: target_dir().join("peers/bin"),
            });
        }
        let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(
            !is_ci,
            "Go is missing: the comparisons with real peers cannot run"
        );
        say("SKIPPED: Go is missing, so the real peers cannot be built");
        None
    }

    /// Whether `peer` was built before, of whatever version.
    pub fn is_built(&self, peer: Peer) -> bool {
        self.bin.join(peer.name()).exists()
    }

    /// The path of `peer`, built first when its module changed.
    ///
    /// # Errors
    /// When the build fails.
    pub fn path(&self, peer: Peer) -> Result<PathBuf> {
        fs::create_dir_all(&self.bin)?;
        let lock = File::create(self.bin.join(".lock"))?;
        lock.lock()?;
        let program = self.bin.join(peer.name());
        let stamp = self.bin.join(format!("{}.sum", peer.name()));
        let module = workspace_dir().join("interop/peers").join(peer.module());
        let sum = module_sum(&module)?;
        if program.exists() && fs::read_to_string(&stamp).is_ok_and(|old| old == sum) {
            return Ok(program);
        }
        build(&module, peer, &program)?;
        fs::write(&stamp, sum)?;
        Ok(program)
    }

    /// Azurite, a stand-in for Azure Blob Storage, installed once with npm below the build folder;
    /// `None` after saying `SKIPPED` when there is no npm or it cannot install it.
    ///
    /// # Errors
    /// When the build folder cannot be written.
    pub fn azurite(&self) -> Result<Option<PathBuf>> {
        let folder = self.bin.join("azurite");
        fs::create_dir_all(&folder)?;
        let lock = File::create(self.bin.join(".azurite.lock"))?;
        lock.lock()?;
        let program = folder.join("node_modules/.bin/azurite-blob");
        if program.exists() {
            return Ok(Some(program));
        }
        let package = format!("azurite@{AZURITE_VERSION}");
        let installed = Command::new("npm")
            .args([
                "install",
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                "--prefix",
            ])
            .arg(&folder)
            .arg(&package)
            .output();
        match installed {
            Ok(output) if output.status.success() && program.exists() => Ok(Some(program)),
            Ok(output) => {
                let told = String::from_utf8_lossy(&output.stderr);
                let line = told.lines().next().unwrap_or_default();
                say(&format!("SKIPPED: npm does not install {package}: {line}"));
                Ok(None)
            }
            Err(_) => {
                say("SKIPPED: npm is missing, so azurite cannot be installed");
                Ok(None)
            }
        }
    }

    /// A command that runs `peer`.
    ///
    /// # Errors
    /// When the build fails.
    pub fn command(&self, peer: Peer) -> Result<Command> {
        Ok(Command::new(self.path(peer)?))
    }
}

fn build(module: &Path, peer: Peer, program: &Path) -> Result<()> {
    let output = Command::new("go")
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .args([
            "build",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags=-s -w",
            "-o",
        ])
        .arg(program)
        .arg(peer.package())
        .output()
        .context("start go build")?;
    if !output.status.success() {
        bail!(
            "go build {}: {}",
            peer.name(),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// Changes whenever a rebuild could give another program: pinned versions and our own Go source.
fn module_sum(module: &Path) -> Result<String> {
    let mut files: Vec<PathBuf> = fs::read_dir(module)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|ext| ext == "go" || ext == "mod" || ext == "sum")
        })
        .collect();
    files.sort();
    let mut hasher = Sha256::new();
    for file in files {
        hasher.update(fs::read(file)?);
    }
    Ok(hex::encode(hasher.finalize()))
}

/// The root of the workspace.
pub fn workspace_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The build folder of the running test.
///
/// # Panics
/// When the running program is not below a cargo build folder.
pub fn target_dir() -> PathBuf {
    let found = std::env::current_exe()
        .map_err(|error| anyhow!(error))
        .and_then(|exe| {
            let profile = exe
                .ancestors()
                .find(|dir| dir.join(".fingerprint").is_dir());
            let target = profile.and_then(Path::parent);
            target
                .map(Path::to_owned)
                .context("no build folder above the running program")
        });
    found.expect("tests run below cargo's build folder")
}

#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
fn say(text: &str) {
    eprintln!("{text}");
}
