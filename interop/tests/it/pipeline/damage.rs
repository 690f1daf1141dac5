//! What somebody with access to the storage can do to a vault, each undone afterwards.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use holdfast_policies::SnapshotId;
use holdfast_restore::FlawKind;

/// Kinds of tampering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    FlippedByteInPart,
    ShortenedPart,
    MissingPart,
    SwappedParts,
    EditedManifest,
    OlderManifestPutBack,
    NewestManifestRemoved,
}

impl Damage {
    pub(crate) const ALL: [Self; 7] = [
        Self::FlippedByteInPart,
        Self::ShortenedPart,
        Self::MissingPart,
        Self::SwappedParts,
        Self::EditedManifest,
        Self::OlderManifestPutBack,
        Self::NewestManifestRemoved,
    ];

    /// The names under which it may be found.
    pub(crate) const fn flaws(self) -> &'static [FlawKind] {
        match self {
            Self::FlippedByteInPart => &[FlawKind::PartChanged],
            Self::ShortenedPart => &[FlawKind::PartSize],
            Self::MissingPart => &[FlawKind::PartMissing],
            Self::SwappedParts => &[FlawKind::PartSwapped, FlawKind::PartSize],
            Self::EditedManifest => &[FlawKind::ManifestEdited],
            Self::OlderManifestPutBack => &[FlawKind::ManifestReplaced],
            Self::NewestManifestRemoved => &[FlawKind::HeadMissing],
        }
    }

    /// Whether the backup's own manifest stays genuine, so that it is still listed.
    pub(crate) const fn is_in_a_part(self) -> bool {
        matches!(
            self,
            Self::FlippedByteInPart | Self::ShortenedPart | Self::MissingPart | Self::SwappedParts
        )
    }
}

/// Files as they were; put back by [`Damaged::undo`].
pub(crate) struct Damaged {
    before: Vec<(PathBuf, Vec<u8>)>,
    moved: Option<(PathBuf, PathBuf)>,
}

impl Damaged {
    /// Damages backup `id`, the newest of the two or more below `objects`; `aside` is a free path
    /// on the same file system, outside of the vault.
    pub(crate) fn new(
        objects: &Path,
        aside: &Path,
        id: SnapshotId,
        damage: Damage,
    ) -> Result<Self> {
        let manifests = files(objects, "manifests")?;
        let [.., older, newest] = manifests.as_slice() else {
            anyhow::bail!("two backups are needed, there are {}", manifests.len());
        };
        let parts = files(objects, &id.to_string())?;
        let [first, second, ..] = parts.as_slice() else {
            anyhow::bail!("two parts are needed, there are {}", parts.len());
        };
        let mut done = Self {
            before: Vec::new(),
            moved: None,
        };
        match damage {
            Damage::FlippedByteInPart => {
                let mut bytes = done.keep(second)?;
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(second, bytes)?;
            }
            Damage::ShortenedPart => {
                let bytes = done.keep(first)?;
                fs::write(first, &bytes[..bytes.len() - 1])?;
            }
            Damage::MissingPart => done.take_away(first, aside)?,
            Damage::SwappedParts => {
                let [a, b] = [done.keep(first)?, done.keep(second)?];
                fs::write(first, b)?;
                fs::write(second, a)?;
            }
            Damage::EditedManifest => {
                let text = String::from_utf8(done.keep(newest)?)?;
                let edited = raise_revision(&text)?;
                ensure!(edited != text, "nothing was edited");
                fs::write(newest, edited)?;
            }
            Damage::OlderManifestPutBack => {
                done.keep(newest)?;
                fs::write(newest, fs::read(older)?)?;
            }
            Damage::NewestManifestRemoved => done.take_away(newest, aside)?,
        }
        Ok(done)
    }

    fn keep(&mut self, path: &Path) -> Result<Vec<u8>> {
        let bytes = fs::read(path)?;
        self.before.push((path.to_owned(), bytes.clone()));
        Ok(bytes)
    }

    fn take_away(&mut self, path: &Path, aside: &Path) -> Result<()> {
        move_file(path, aside)?;
        self.moved = Some((path.to_owned(), aside.to_owned()));
        Ok(())
    }

    /// Puts everything back, in place: an S3 server keeps what it knows of an object beside it.
    pub(crate) fn undo(self) -> Result<()> {
        for (path, bytes) in self.before {
            fs::write(path, bytes)?;
        }
        self.moved
            .map_or(Ok(()), |(path, aside)| move_file(&aside, &path))
    }
}

/// With its extended attributes, which copying would lose.
#[expect(clippy::disallowed_methods, reason = "damage need not be durable")]
fn move_file(from: &Path, to: &Path) -> Result<()> {
    Ok(fs::rename(from, to)?)
}

/// One digit of the first revision in a manifest is another one.
fn raise_revision(text: &str) -> Result<String> {
    let mark = "\"revision\"";
    let at = text.find(mark).context("no revision in the manifest")? + mark.len();
    let (before, after) = text.split_at(at);
    let digit = after
        .find(|c: char| c.is_ascii_digit())
        .context("no digit")?;
    let (gap, rest) = after.split_at(digit);
    let (old, rest) = rest.split_at(1);
    let new = if old == "9" { "8" } else { "9" };
    Ok(format!("{before}{gap}{new}{rest}"))
}

/// The files of all folders called `name`, in order; of a backup's folders, those with its parts.
fn files(objects: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(objects, &mut |path| {
        let parent = path.parent().filter(|parent| parent.ends_with(name));
        if parent.is_some_and(|parent| name == "manifests" || is_of_parts(parent)) {
            found.push(path.to_owned());
        }
    })?;
    found.sort();
    Ok(found)
}

fn is_of_parts(folder: &Path) -> bool {
    folder
        .parent()
        .is_some_and(|parent| parent.ends_with("parts"))
}

fn collect(folder: &Path, take: &mut impl FnMut(&Path)) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, take)?;
        } else {
            take(&path);
        }
    }
    Ok(())
}
