//! What an attacker, a bad disk or a clumsy hand does to a vault: on a copy, in a folder.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{ErrorName, Failure, OrFail as _};

/// Most files one vault of the demonstration holds.
const FILES_MAX: usize = 10_000;

/// Copies the folder `from` to `to`, which must not exist.
pub(super) fn copy_folder(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir(to).or_fail(format!("{} was not made", to.display()))?;
    for file in files(from)? {
        let relative = file.strip_prefix(from).unwrap_or(&file);
        let target = to.join(relative);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).or_fail(format!("{} was not made", parent.display()))?;
        }
        fs::copy(&file, &target).or_fail(format!("{} was not copied", file.display()))?;
    }
    Ok(())
}

/// Every file below `folder`, sorted.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut open = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(next) = open.pop() {
        let what = || format!("{} was not listed", next.display());
        for entry in fs::read_dir(&next).or_fail(what())? {
            let path = entry.or_fail(what())?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path);
            }
        }
        if found.len() > FILES_MAX {
            return Err(Failure::new(ErrorName::Exhausted, what()));
        }
    }
    found.sort();
    Ok(found)
}

/// The last file in the folder called `folder` below `vault`: parts, manifests, ...
pub(super) fn last_in(vault: &Path, folder: &str) -> Result<PathBuf, Failure> {
    let is_inside = |file: &PathBuf| file.iter().any(|name| name == folder);
    files(vault)?.into_iter().rfind(is_inside).ok_or_else(|| {
        Failure::new(
            ErrorName::NotFound,
            format!("no file in `{folder}` of {}", vault.display()),
        )
    })
}

/// Flips one bit in the middle of `file`.
pub(super) fn flip_a_bit(file: &Path) -> Result<(), Failure> {
    let what = || format!("{} was not changed", file.display());
    let mut bytes = fs::read(file).or_fail(what())?;
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 1;
    }
    fs::write(file, bytes).or_fail(what())
}

/// Replaces the first `old` in `file` by `new`, as an editor of a manifest does.
pub(super) fn edit(file: &Path, old: &str, new: &str) -> Result<(), Failure> {
    let what = || format!("{} was not edited", file.display());
    let text = fs::read_to_string(file).or_fail(what())?;
    if !text.contains(old) {
        return Err(
            Failure::new(ErrorName::NotFound, what()).because_of(format!("no `{old}` in it"))
        );
    }
    fs::write(file, text.replacen(old, new, 1)).or_fail(what())
}

/// Whether any file below `folder` holds `text` in clear.
pub(super) fn is_readable_in(folder: &Path, text: &str) -> Result<bool, Failure> {
    for file in files(folder)? {
        let bytes = fs::read(&file).or_fail(format!("{} was not read", file.display()))?;
        if bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
        {
            return Ok(true);
        }
    }
    Ok(false)
}
