//! The decoded content of a backup, for whoever compares something with it.

use std::io;
use std::path::Path;

use holdfast_store::bolt::ReadAt;

use crate::error::{Error, Result};
use crate::key::Keys;
use crate::manifest::Manifest;
use crate::progress::{Phase, ProgressFn};
use crate::spool::{Spool, SpoolReader};
use crate::vault::Vault;
use crate::verify::{fetch_parts, open_key};

/// Random access to the bytes of the snapshot a backup was made from: decoded, every part
/// verified, in a sealed spool that is removed when this is dropped.
#[derive(Debug)]
pub struct Content(SpoolReader);

impl ReadAt for Content {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(offset, buffer)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }
}

/// Fetches and decodes a backup. Damage anywhere in it is an error.
pub async fn open<Mode: Sync>(
    vault: &Vault<Mode>,
    manifest: &Manifest,
    keys: &Keys,
    work_dir: &Path,
    progress: ProgressFn<'_>,
) -> Result<Content> {
    let key = open_key(vault, manifest, keys).await?;
    let work_dir = work_dir.to_owned();
    let spool = tokio::task::spawn_blocking(move || Spool::create(&work_dir)).await??;
    let phase = (Phase::Fetching, progress);
    let fetched = fetch_parts(vault, manifest, Some(&key), Some(spool), phase).await?;
    match fetched.spool {
        Some(spool) if fetched.flaws.is_empty() => Ok(Content(
            spool.into_reader(manifest.content.bytes, manifest.part_bytes),
        )),
        _ => Err(Error::Damaged {
            flaws: fetched.flaws,
        }),
    }
}
