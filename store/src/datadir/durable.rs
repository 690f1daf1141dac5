//! The one place where files become durable: sync of files and folders, and rename.
//!
//! A rename counts once the folder that holds the name is synced. An error of a sync is never
//! retried: the kernel may have dropped the pages that did not reach the disk.
//!
//! What is made here holds user data, so that only its owner may look into it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Makes the bytes of `file` durable, and the metadata needed to read them back.
pub fn sync_data(file: &File) -> io::Result<()> {
    rustix::fs::fdatasync(file)?;
    Ok(())
}

/// Makes a folder, and those above it that are missing, for its owner alone.
pub fn private_dir_all(folder: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(folder)
}

/// Makes the names in `folder` durable.
pub fn sync_dir(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The folder that holds `path`'s name.
pub fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Opens `path` to read and write, or makes an empty file there whose name is durable.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(path)?;
    sync_dir(parent_of(path))?;
    Ok(file)
}

/// Renames `from` to `to` in a way that survives a power loss after this returns.
///
/// A file at `to` is replaced; a folder at `to` must be absent or empty.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the helper that also syncs the folder"
    )]
    std::fs::rename(from, to)?;
    sync_dir(parent_of(to))?;
    if parent_of(from) != parent_of(to) {
        sync_dir(parent_of(from))?;
    }
    Ok(())
}

/// Writes `bytes` to `path` whole or not at all: temporary file, sync, rename, sync of the folder.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = with_suffix(path, ".tmp");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    rename(&temporary, path)
}

/// Removes `path` and makes that durable; a file that is not there is no error.
pub fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Ok(()) => sync_dir(parent_of(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Creates `path` (which must not exist) filled with `len` zero bytes, durable but for its name.
///
/// Real zeros rather than a hole: a later write inside them changes no metadata of the file, so
/// its sync is one write to the disk, and it cannot fail for want of space.
pub fn create_zeroed(path: &Path, len: u64) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)?;
    let zeros = vec![0; ZERO_CHUNK_BYTES];
    let mut left = len;
    while left > 0 {
        let part = usize::try_from(left).map_or(ZERO_CHUNK_BYTES, |left| left.min(zeros.len()));
        file.write_all(zeros.get(..part).unwrap_or(&zeros))?;
        left = left.saturating_sub(u64::try_from(part).unwrap_or(left));
        if left > 0 {
            // In pieces: another file's sync waits for what is on its way to the disk.
            sync_data(&file)?;
        }
    }
    file.sync_all()?;
    Ok(file)
}

/// Gives `len` bytes at `offset` of `file` back to the disk; they read as zeros from then on.
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    use rustix::fs::FallocateFlags;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, flags, offset, len)?)
}

/// `path` with `suffix` added to its last component.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

const ZERO_CHUNK_BYTES: usize = 1 << 20;
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
