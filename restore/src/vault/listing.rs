//! Listings that go on past names which cannot be an object's.
//!
//! One such name (a slip with another tool, a symbolic link to a folder above it) ends a listing
//! of the object store library, and a vault that cannot be listed is of no use to anybody. So a
//! listing that failed is made once more here, name by name, and tells what it left out. What the
//! medium itself fails to tell is an error as before: a listing is complete or there is none.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path;

use super::layout::ObjectName;
use super::{LISTED_MAX, Listed};
use crate::error::{Error, Result};
use crate::flaw::{Flaw, FlawKind};

/// Most names that are told as left out.
const ODD_MAX: usize = 10_000;

/// Deepest folder that is looked into; a vault's own are six deep.
const DEPTH_MAX: usize = 32;

/// Objects asked for at once.
const PAGE_MAX: usize = 1000;

/// Every object below a folder, and what is no object.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The objects, sorted by name.
    pub objects: Vec<Listed>,
    /// Names that were left out.
    pub odd: Vec<Flaw>,
}

impl Listing {
    fn push(&mut self, listed: Listed, folder: &str) -> Result<()> {
        if self.objects.len() >= LISTED_MAX {
            return Err(too_large(folder, LISTED_MAX));
        }
        self.objects.push(listed);
        Ok(())
    }

    fn leave_out(&mut self, name: &str, why: &str, folder: &str) -> Result<()> {
        if self.odd.len() >= ODD_MAX {
            return Err(too_large(folder, ODD_MAX));
        }
        let object = name.escape_debug();
        self.odd.push(Flaw::new(FlawKind::NameRefused, object, why));
        Ok(())
    }
}

fn too_large(folder: &str, limit: usize) -> Error {
    Error::TooLarge {
        object: format!("listing of {folder}"),
        limit: u64::try_from(limit).unwrap_or(u64::MAX),
    }
}

/// How a listing is made name by name.
#[derive(Clone)]
pub(super) enum Lister {
    /// By walking a local folder.
    Folder(PathBuf),
    /// By pages that get smaller around a name that cannot be read.
    Pages(Arc<dyn PaginatedListStore>),
    /// Not at all: a store made elsewhere.
    None,
}

impl std::fmt::Debug for Lister {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Folder(_) => "Folder",
            Self::Pages(_) => "Pages",
            Self::None => "None",
        })
    }
}

impl Lister {
    /// What is below `folder` of a vault at `prefix`, after the usual way failed with `error`.
    pub(super) async fn go_on(
        &self,
        prefix: &path::Path,
        folder: &ObjectName,
        error: Error,
    ) -> Result<Listing> {
        let mut listing = match self {
            Self::Folder(root) => {
                let (root, folder) = (root.clone(), folder.clone());
                tokio::task::spawn_blocking(move || walk(&root, &folder)).await??
            }
            Self::Pages(store) if odd_key(&error).is_some() => {
                pages(store.as_ref(), prefix, folder).await?
            }
            Self::Pages(_) | Self::None => return Err(error),
        };
        listing.objects.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listing)
    }
}

/// The name that made a listing fail.
fn odd_key(error: &Error) -> Option<String> {
    let Error::Vault { source, .. } = error else {
        return None;
    };
    match source.as_ref() {
        object_store::Error::InvalidPath { source } => key_of(source),
        _ => None,
    }
}

fn key_of(error: &path::Error) -> Option<String> {
    match error {
        path::Error::EmptySegment { path }
        | path::Error::BadSegment { path, .. }
        | path::Error::NonUnicode { path, .. } => Some(path.clone()),
        _ => None,
    }
}

/// Asks for smaller pages until the page is the odd name alone, then goes on behind it.
async fn pages(
    store: &dyn PaginatedListStore,
    prefix: &path::Path,
    folder: &ObjectName,
) -> Result<Listing> {
    let in_store = match prefix.as_ref() {
        "" => format!("{folder}/"),
        prefix => format!("{prefix}/{folder}/"),
    };
    let within = |key: &str| match prefix.as_ref() {
        "" => key.to_owned(),
        prefix => key
            .strip_prefix(prefix)
            .map_or(key, |rest| rest.trim_start_matches('/'))
            .to_owned(),
    };
    let mut listing = Listing::default();
    let (mut offset, mut size) = (None, PAGE_MAX);
    loop {
        let options = PaginatedListOptions {
            offset: offset.clone(),
            max_keys: Some(size),
            ..PaginatedListOptions::default()
        };
        let asked = store.list_paginated(Some(&in_store), options).await;
        let error = match asked {
            Ok(page) => {
                let keys = page.result.objects.iter();
                offset = keys.map(|one| one.location.to_string()).max();
                for meta in page.result.objects {
                    if let Some(name) = ObjectName::listed(&within(meta.location.as_ref())) {
                        let (bytes, modified) = (meta.size, meta.last_modified);
                        let listed = Listed {
                            name,
                            bytes,
                            modified,
                        };
                        listing.push(listed, folder.as_str())?;
                    }
                }
                size = size.saturating_mul(2).min(PAGE_MAX);
                if page.page_token.is_none() || offset.is_none() {
                    return Ok(listing);
                }
                continue;
            }
            Err(error) => super::failed("list", folder)(error),
        };
        match odd_key(&error) {
            Some(_) if size > 1 => size /= 2,
            Some(key) if offset.as_ref() != Some(&key) => {
                listing.leave_out(&within(&key), "no object's name", folder.as_str())?;
                offset = Some(key);
            }
            _ => return Err(error),
        }
    }
}

/// Walks a local folder, symbolic links followed as the object store library does.
fn walk(root: &Path, folder: &ObjectName) -> Result<Listing> {
    let mut listing = Listing::default();
    let mut above = Vec::new();
    let mut dir = root.to_path_buf();
    for segment in ["."].into_iter().chain(folder.as_str().split('/')) {
        dir.push(segment);
        match fs::metadata(&dir) {
            Ok(found) if found.is_dir() => above.push(id_of(&found)),
            Ok(_) => return Ok(listing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(listing),
            Err(error) => return Err(Error::io("list", &dir)(error)),
        }
    }
    walk_into(&dir, folder.as_str(), &mut above, &mut listing)?;
    Ok(listing)
}

fn walk_into(
    dir: &Path,
    folder: &str,
    above: &mut Vec<(u64, u64)>,
    listing: &mut Listing,
) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let entry = entry.map_err(Error::io("list", dir))?;
        let file_name = entry.file_name();
        let lossy = file_name.to_string_lossy();
        let name = format!("{folder}/{lossy}");
        let is_sound = file_name.to_str().is_some() && path::Path::parse(&name).is_ok();
        if !is_sound {
            listing.leave_out(&name, "no object's name", folder)?;
            continue;
        }
        let path = entry.path();
        let found = match fs::metadata(&path) {
            Ok(found) => found,
            // Removed since, or a link to nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) if is_link_loop(&error) => {
                listing.leave_out(&name, "a symbolic link to itself", folder)?;
                continue;
            }
            Err(error) => return Err(Error::io("look up", &path)(error)),
        };
        if found.is_file() {
            push_file(&name, &lossy, &found, listing)?;
        } else if found.is_dir() && above.contains(&id_of(&found)) {
            listing.leave_out(&name, "a symbolic link to a folder above it", folder)?;
        } else if found.is_dir() && above.len() >= DEPTH_MAX {
            listing.leave_out(&name, "too deep for a vault", folder)?;
        } else if found.is_dir() {
            above.push(id_of(&found));
            walk_into(&path, &name, above, listing)?;
            above.pop();
        }
    }
    Ok(())
}

fn push_file(name: &str, last: &str, found: &Metadata, listing: &mut Listing) -> Result<()> {
    // The library's own files of uploads that have not ended.
    let is_upload = last.split_once('#').is_some_and(|(_, rest)| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
    });
    let (Some(object), false) = (ObjectName::listed(name), is_upload) else {
        return Ok(());
    };
    let listed = Listed {
        name: object,
        bytes: found.len(),
        modified: found.modified().map_err(Error::io("look up", name))?.into(),
    };
    listing.push(listed, name)
}

fn id_of(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

fn is_link_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

#[cfg(test)]
mod tests;
