//! The appliance's command line over a configured folder, with a real etcd as its source.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::holdfast;
use holdfast_interop::peers::Peers;
use holdfast_interop::run::{self, Output};
use holdfast_interop::s3::{ACCESS_KEY, S3, SECRET_KEY};
use holdfast_interop::server::Server;
use serde_json::Value;
use tempfile::TempDir;

/// The source that `holdfast init` writes, to be replaced.
const BUNDLED: &str = "    - name: bundled\n      kind: bundled\n";

/// The vault that `holdfast init` writes, to be replaced.
const LOCAL_VAULT: &str = "    local:\n      path: holdfast-data/vault\n";

/// The bucket of a vault on S3.
const BUCKET: &str = "backups";

/// A folder with `holdfast.yaml`, keys and a vault.
pub(crate) struct Appliance {
    folder: TempDir,
    s3: Option<S3>,
}

impl Appliance {
    /// A folder with nothing in it, for a configuration of the test's own.
    pub(crate) fn bare() -> Result<Self> {
        Ok(Self {
            folder: tempfile::tempdir()?,
            s3: None,
        })
    }

    /// A new one that backs up `server`.
    pub(crate) fn new(server: &Server) -> Result<Self> {
        let made = Self::bare()?;
        made.run(&["init"])?.success()?;
        let path = made.path("holdfast.yaml");
        let text = std::fs::read_to_string(&path)?;
        let source = format!(
            "    - name: interop\n      kind:\n        etcd:\n          endpoints: [\"{}\"]\n",
            server.endpoint()
        );
        let changed = text
            .replace(BUNDLED, &source)
            .replace("  enabled: true\n", "  enabled: false\n");
        ensure!(
            changed != text,
            "not the configuration that was expected:\n{text}"
        );
        std::fs::write(&path, changed)?;
        Ok(made)
    }

    /// A new one that backs up `server` into a vault on a real S3 server.
    pub(crate) fn on_s3(peers: &Peers, server: &Server) -> Result<Self> {
        let s3 = S3::start(peers, &[BUCKET])?;
        let made = Self::new(server)?;
        let credentials = made.path("s3-credentials");
        let text =
            format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
        std::fs::write(&credentials, text)?;
        let vault = format!(
            "    s3:\n      bucket: {BUCKET}\n      endpoint: {}\n      force_path_style: true\n      \
             allow_http: true\n      credentials_file: {}\n",
            s3.endpoint(),
            credentials.display()
        );
        made.edit(LOCAL_VAULT, &vault)?;
        Ok(Self {
            s3: Some(s3),
            ..made
        })
    }

    /// Replaces a piece of the configuration.
    pub(crate) fn edit(&self, from: &str, to: &str) -> Result<()> {
        let path = self.path("holdfast.yaml");
        let text = std::fs::read_to_string(&path)?;
        ensure!(text.contains(from), "no {from:?} in:\n{text}");
        std::fs::write(&path, text.replace(from, to))?;
        Ok(())
    }

    /// Names of the objects in the vault on S3.
    pub(crate) fn objects(&self) -> Result<Vec<String>> {
        let s3 = self.s3.as_ref().context("the vault is not on S3")?;
        let files = shape(&s3.bucket_dir(BUCKET))?;
        let names = files.into_iter().map(|(name, _)| name);
        // The server keeps uploads in progress in a folder of its own.
        Ok(names.filter(|name| !name.starts_with('.')).collect())
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command line, in the folder.
    pub(crate) fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = holdfast::command()?;
        command.current_dir(self.folder.path()).args(words);
        Ok(command)
    }

    /// Runs a command line to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Result<Output> {
        run::run(&mut self.command(words)?)
    }

    /// What a command line answers, for a program.
    pub(crate) fn ask(&self, words: &[&str]) -> Result<Value> {
        run::run(self.command(words)?.args(["-w", "json"]))?.json()
    }

    /// Names in the folder that begin with `name`.
    pub(crate) fn named(&self, name: &str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.folder.path())? {
            let entry = entry?.file_name().to_string_lossy().into_owned();
            if entry.trim_start_matches('.').starts_with(name) {
                found.push(entry);
            }
        }
        Ok(found)
    }
}

/// Sizes below this depend on the digits of ids.
const SMALL_BYTES: u64 = 64 * 1024;

/// Names of all files below `folder` and the sizes of large ones, in order: tells a whole directory
/// from a part of one.
pub(crate) fn shape(folder: &Path) -> Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder)?.to_string_lossy().into_owned();
                let bytes = path.metadata()?.len();
                found.push((name, if bytes < SMALL_BYTES { 0 } else { bytes }));
            }
        }
    }
    found.sort();
    Ok(found)
}
