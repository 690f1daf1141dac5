//! The appliance's command line over a configured folder, with a real etcd as its source.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use holdfast_interop::holdfast;
use holdfast_interop::run::{self, Output};
use holdfast_interop::server::Server;
use tempfile::TempDir;

/// The source that `holdfast init` writes, to be replaced.
const BUNDLED: &str = "    - name: bundled\n      kind: bundled\n";

/// A folder with `holdfast.yaml`, keys and a local vault.
pub(crate) struct Appliance {
    folder: TempDir,
}

impl Appliance {
    /// A new one that backs up `server`.
    pub(crate) fn new(server: &Server) -> Result<Self> {
        let made = Self {
            folder: tempfile::tempdir()?,
        };
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
