//! Key files: read with a limit, created once with mode 0600.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use holdfast_store::datadir::durable;
use zeroize::Zeroizing;

use super::KEY_FILE_BYTES_MAX;
use super::signing::SIGNING_PREFIX;
use crate::error::{Error, Result};

/// What a file holds that nobody else should read.
const SECRET_MARKS: [&str; 4] = ["SECRET-KEY", "AGE-PLUGIN-", "PRIVATE KEY", SIGNING_PREFIX];

pub(super) fn read_key_file(path: &Path) -> Result<Zeroizing<String>> {
    let file = fs::File::open(path).map_err(Error::io("open key file", path))?;
    let metadata = file.metadata().map_err(Error::io("read", path))?;
    if metadata.len() > KEY_FILE_BYTES_MAX {
        return Err(Error::TooLarge {
            object: path.display().to_string(),
            limit: KEY_FILE_BYTES_MAX,
        });
    }
    let mut text = Zeroizing::new(String::new());
    file.take(KEY_FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(Error::io("read key file", path))?;
    let is_secret = SECRET_MARKS.iter().any(|mark| text.contains(mark));
    if is_secret && metadata.mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "secret key file is readable by others");
    }
    Ok(text)
}

/// Writes a secret into a new file (mode 0600) and syncs it; an existing file is never replaced.
pub(super) fn write_secret(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(Error::io("create key file", path))?;
    file.write_all(bytes)
        .map_err(Error::io("write key file", path))?;
    file.sync_all().map_err(Error::io("sync key file", path))?;
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        durable::sync_dir(folder).map_err(Error::io("sync", folder))?;
    }
    Ok(())
}
