//! The tracked files and those about to be: what `git` knows and does not ignore.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

/// One file; text only when it is UTF-8 and not a fixture.
#[derive(Debug)]
pub(super) struct File {
    /// Size in bytes.
    pub(super) size: u64,
    /// The text, for everything that is not binary.
    pub(super) text: Option<String>,
}

/// Paths relative to the root, in order.
#[derive(Debug, Default)]
pub(super) struct Tree {
    files: BTreeMap<String, File>,
}

impl Tree {
    /// Reads every file of the work tree at `root`.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let output = Command::new("git")
            .current_dir(root)
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .output()?;
        if !output.status.success() {
            bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
        }
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&output.stdout).split('\0') {
            let full = root.join(path);
            if path.is_empty() || !full.is_file() {
                continue;
            }
            let size = full.metadata()?.len();
            let text = if is_fixture(path) {
                None
            } else {
                String::from_utf8(std::fs::read(&full)?).ok()
            };
            files.insert(path.to_owned(), File { size, text });
        }
        Ok(Self { files })
    }

    /// A tree for the tests of the rules.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |text: &str| File {
            size: u64::try_from(text.len()).unwrap(),
            text: Some(text.to_owned()),
        };
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), file(text)))
            .collect();
        Self { files }
    }

    /// How many files there are.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Every file.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// Path and text of the files whose name ends in `suffix`.
    pub(super) fn texts<'a>(
        &'a self,
        suffix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> + 'a {
        let with_text = |(path, file): (&'a str, &'a File)| Some((path, file.text.as_deref()?));
        self.files()
            .filter_map(with_text)
            .filter(move |(path, _)| path.ends_with(suffix))
    }

    /// The text of one file.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.text.as_deref()
    }

    /// Whether `path` is a file, or a folder with files in it.
    pub(super) fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.files.contains_key(path) || self.files.keys().any(|file| file.starts_with(&folder))
    }

    /// Whether some file or folder ends in `path` at a folder boundary: `api/kv.rs` is found in
    /// `store/src/api/kv.rs`.
    pub(super) fn exists_below(&self, path: &str) -> bool {
        let inner = format!("/{}", path.trim_end_matches('/'));
        let folder = format!("{inner}/");
        self.exists(path)
            || self
                .files
                .keys()
                .any(|file| file.ends_with(&inner) || file.contains(&folder))
    }
}

/// Files that a program wrote and a test reads.
pub(super) fn is_fixture(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "fixtures" || part == "snapshots" || part == "golden")
}
