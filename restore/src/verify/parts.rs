//! Reading the parts of a backup from the vault: digests first, then decryption, several at once.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::flaw::{Flaw, FlawKind};
use crate::manifest::Manifest;
use crate::part;
use crate::progress::{Phase, Progress, ProgressFn};
use crate::proof::Evidence;
use crate::seal::PartKey;
use crate::source::TrailerCheck;
use crate::spool::Spool;
use crate::vault::{Vault, layout};

/// Parts being read or opened at once. Each holds its stored and its plain bytes in memory; two
/// more may wait for the digest of the whole.
const PARTS_IN_FLIGHT: usize = 3;

/// Most damaged parts named.
const FLAWS_MAX: usize = 100;

/// What became of the parts.
#[derive(Debug)]
pub(crate) struct FetchedParts {
    read: u64,
    opened: u64,
    stored_bytes: u64,
    plain_bytes: u64,
    /// What is wrong with them.
    pub(crate) flaws: Vec<Flaw>,
    /// The plain bytes, when a spool was given and every part is right.
    pub(crate) spooled: Option<Spooled>,
}

/// All plain bytes of a backup.
#[derive(Debug)]
pub(crate) struct Spooled {
    pub(crate) spool: Spool,
    /// Whether they end in the digest of all before it; otherwise what is wrong.
    pub(crate) trailer: std::result::Result<(), String>,
}

impl FetchedParts {
    /// Adds what was done to the evidence.
    pub(crate) fn enter(&self, evidence: &mut Evidence) {
        evidence.parts_read = self.read;
        evidence.parts_opened = self.opened;
        evidence.stored_bytes = self.stored_bytes;
        evidence.plain_bytes = self.plain_bytes;
    }
}

/// A part that is right with its plain bytes, when there is a key, or what is wrong with it.
type Outcome = std::result::Result<(part::PartRecord, Option<Vec<u8>>), Flaw>;

/// Digests parts in their order, on a thread of its own.
struct WholeDigest {
    sender: mpsc::Sender<Vec<u8>>,
    check: JoinHandle<TrailerCheck>,
}

impl WholeDigest {
    fn start() -> Self {
        let (sender, mut parts) = mpsc::channel::<Vec<u8>>(1);
        let check = tokio::task::spawn_blocking(move || {
            let mut check = TrailerCheck::default();
            while let Some(part) = parts.blocking_recv() {
                check.update(&part);
            }
            check
        });
        Self { sender, check }
    }

    /// Hands on the next part.
    async fn update(&self, part: Vec<u8>) -> Result<()> {
        self.sender.send(part).await.map_err(|_gone| Error::Worker {
            reason: "the digest thread ended early".to_owned(),
        })
    }

    async fn finish(self) -> Result<std::result::Result<(), String>> {
        drop(self.sender);
        Ok(self.check.await?.finish())
    }
}

/// Reads every part, checks it and, with a key, opens it; with a spool, keeps the plain bytes in
/// it. Damage is named; an error means that the vault or the disk failed.
pub(crate) async fn fetch_parts<Mode: Sync>(
    vault: &Vault<Mode>,
    manifest: &Manifest,
    key: Option<&PartKey>,
    spool: Option<Spool>,
    (phase, progress): (Phase, ProgressFn<'_>),
) -> Result<FetchedParts> {
    let spool = spool.filter(|_| key.is_some()).map(Arc::new);
    let total = manifest.content.bytes;
    let mut fetched = FetchedParts {
        read: 0,
        opened: 0,
        stored_bytes: 0,
        plain_bytes: 0,
        flaws: Vec::new(),
        spooled: None,
    };
    let digest = spool.as_ref().map(|_spool| WholeDigest::start());
    let fetches: Vec<BoxFuture<'_, Result<Outcome>>> = (0..manifest.parts.len())
        .map(|index| fetch_part(vault, manifest, index, key, spool.as_ref()).boxed())
        .collect();
    let mut outcomes = futures::stream::iter(fetches).buffered(PARTS_IN_FLIGHT);
    while let Some(outcome) = outcomes.next().await {
        match outcome? {
            Ok((record, plain)) => {
                fetched.read += 1;
                fetched.stored_bytes += record.stored_bytes;
                fetched.plain_bytes += record.plain_bytes;
                fetched.opened += u64::from(plain.is_some());
                if let (Some(digest), Some(plain)) = (&digest, plain) {
                    digest.update(plain).await?;
                }
            }
            Err(flaw) if fetched.flaws.len() < FLAWS_MAX => fetched.flaws.push(flaw),
            Err(_) => {}
        }
        progress(Progress {
            phase,
            done: fetched.plain_bytes,
            total: Some(total),
        });
    }
    drop(outcomes);
    let trailer = match digest {
        Some(digest) => Some(digest.finish().await?),
        None => None,
    };
    if fetched.flaws.is_empty() {
        fetched.spooled = spool
            .and_then(Arc::into_inner)
            .zip(trailer)
            .map(|(spool, trailer)| Spooled { spool, trailer });
    }
    Ok(fetched)
}

async fn fetch_part<Mode: Sync>(
    vault: &Vault<Mode>,
    manifest: &Manifest,
    index: usize,
    key: Option<&PartKey>,
    spool: Option<&Arc<Spool>>,
) -> Result<Outcome> {
    let name = layout::part(&manifest.cluster, manifest.id, index);
    let Some(record) = manifest.parts.get(index).cloned() else {
        return Err(Error::ObjectMissing {
            object: name.to_string(),
        });
    };
    let stored = match vault.get(&name, record.stored_bytes).await {
        Ok(stored) => stored,
        Err(error @ Error::ObjectMissing { .. }) => {
            return Ok(Err(Flaw::new(FlawKind::PartMissing, name, error)));
        }
        Err(error @ Error::TooLarge { .. }) => {
            return Ok(Err(Flaw::new(FlawKind::PartSize, name, error)));
        }
        Err(other) => return Err(other),
    };
    let object = name.to_string();
    let (key, spool) = (key.cloned(), spool.cloned());
    let checked = record.clone();
    let outcome = tokio::task::spawn_blocking(move || {
        let Some(key) = key else {
            return part::check_stored(&object, &stored, &checked)
                .map(|()| None)
                .map_err(|error| (error, Digest::of(&stored)));
        };
        let plain = part::open_part(&object, &stored, &checked, &key)
            .map_err(|error| (error, Digest::of(&stored)))?;
        if let Some(spool) = spool {
            spool
                .write(index, &plain)
                .map_err(|error| (error, Digest::of(&stored)))?;
        }
        Ok(Some(plain))
    })
    .await?;
    match outcome {
        Ok(plain) => Ok(Ok((record, plain))),
        Err((error, found)) => classify(manifest, index, error, found).map(Err),
    }
}

/// Names what is wrong with a part; an error of the local disk stays an error.
fn classify(manifest: &Manifest, index: usize, error: Error, found: Digest) -> Result<Flaw> {
    let name = layout::part(&manifest.cluster, manifest.id, index);
    let is_others = |(other, record): (usize, &part::PartRecord)| {
        (other != index && record.stored_digest == found).then_some(other)
    };
    match error {
        Error::DigestMismatch { .. } | Error::SizeMismatch { .. } => {
            let other = manifest.parts.iter().enumerate().find_map(is_others);
            Ok(match other {
                Some(other) => {
                    Flaw::new(FlawKind::PartSwapped, name, format!("holds part {other}"))
                }
                None => Flaw::new(FlawKind::PartChanged, name, error),
            })
        }
        Error::Decrypt { .. } | Error::Malformed { .. } | Error::TooLarge { .. } => {
            Ok(Flaw::new(FlawKind::PartUnreadable, name, error))
        }
        other => Err(other),
    }
}
