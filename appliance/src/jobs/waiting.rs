//! Backups while the vault cannot be reached: taken all the same, sealed, into a folder of this
//! host, and handed over in order when the vault is back.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use holdfast_policies::Generation;
use holdfast_restore::waiting::{Waiting, hand_over, make_room};
use holdfast_restore::{Error, ErrorKind, ReadOnly, ReadWrite, Signer, Trust, Vault, VaultSpec};
use tokio_util::sync::CancellationToken;

use super::shop::Shop;
use crate::config::{Settings, Source};
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::{keys, vaults};

/// The kind of job on the board.
pub(crate) const KIND: &str = "hand-over";

/// Waits between tries to hand over; the last one is kept to.
const PAUSES: [u64; 5] = [5, 15, 30, 60, 120];

/// Bytes of the disk that waiting backups leave free for everything else.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// Whether a vault that fails so may be back later, so that a backup should wait for it.
pub(super) fn is_reason(failure: &Failure) -> bool {
    matches!(
        failure.name(),
        ErrorName::Unavailable | ErrorName::Denied | ErrorName::Exhausted | ErrorName::NotFound
    )
}

/// Whether the vault failed, rather than the source or this host.
pub(super) fn is_of_vault(error: &Error) -> bool {
    match error {
        Error::Vault { .. } => !matches!(error.kind(), ErrorKind::Invalid),
        Error::ClockSkewed { .. } => true,
        _ => false,
    }
}

fn spec(settings: &Settings) -> VaultSpec {
    VaultSpec::Local {
        path: vaults::waiting_dir(settings),
    }
}

/// The folder for one more backup, with room in it. What had to go is logged: it is a loss.
pub(super) async fn folder(
    (settings, source): (&Settings, &Source),
    (signer, now): (&Signer, DateTime<Utc>),
    trust: &Trust,
) -> Result<Vault<ReadWrite>, Failure> {
    let name = &source.name;
    let what = format!("no backup of `{name}` can wait on this host for the vault");
    let limit = settings.config.restore.waiting_limit.bytes();
    if limit == 0 {
        let failure = Failure::new(ErrorName::Unavailable, what);
        return Err(failure.because_of("`restore.waiting_limit` is 0, and the vault is away"));
    }
    if vaults::local_ledger(settings, name)?.head.is_none() {
        let failure = Failure::new(ErrorName::Unavailable, what);
        return Err(failure.because_of("this host has taken none yet, and the vault is away"));
    }
    let made = Vault::open_or_create(&spec(settings), now, &signer.verifier()).await;
    let folder = made.or_fail(what.clone())?;
    let catalog = vaults::catalog_in(&folder, settings, name, trust).await?;
    // The next one is about as large as the last.
    let expected = catalog
        .newest()
        .map_or(0, |one| one.manifest.stored_bytes());
    let free = free_bytes(settings)?.saturating_sub(FREE_BYTES_MIN);
    let used = Waiting::of(&catalog).bytes;
    let limit = limit.min(used.saturating_add(free));
    let gone = make_room(&folder, &catalog, (limit, expected), (signer, now)).await;
    for id in gone.or_fail(what)? {
        tracing::error!(
            source = name.as_str(), snapshot_id = %id,
            "a backup that waited for the vault made room for a newer one and is lost"
        );
    }
    Ok(folder)
}

fn free_bytes(settings: &Settings) -> Result<u64, Failure> {
    let dir = settings.data_dir();
    let found = rustix::fs::statvfs(&dir).map_err(std::io::Error::from);
    let found = found.or_fail(format!("the disk of {} cannot be asked", dir.display()))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// What waits for a source; `None` where nothing does.
pub(crate) async fn look(
    settings: &Settings,
    source: &Source,
    trust: &Trust,
) -> Result<Option<Waiting>, Failure> {
    if !has_any(settings, source) {
        return Ok(None);
    }
    let folder = Vault::<ReadOnly>::open(&spec(settings)).await;
    let folder = folder.or_fail("the folder of waiting backups cannot be read")?;
    let catalog = vaults::catalog_in(&folder, settings, &source.name, trust).await?;
    let waiting = Waiting::of(&catalog);
    Ok((waiting.backups > 0).then_some(waiting))
}

/// A cheap look, for those who ask often.
fn has_any(settings: &Settings, source: &Source) -> bool {
    let VaultSpec::Local { path } = spec(settings) else {
        return false;
    };
    let manifests = path
        .join("clusters")
        .join(source.name.as_str())
        .join("manifests");
    fs::read_dir(manifests).is_ok_and(|mut entries| entries.next().is_some())
}

/// Hands over what waits before a new backup is taken, so that its place in the chain is behind
/// them. What stays is told of, and is no reason not to take it.
pub(super) async fn before(
    (settings, source): (&Settings, &Source),
    vault: &Vault<ReadWrite>,
    trust: &Trust,
) -> Vec<String> {
    match hand((settings, source), vault, trust).await {
        Ok(0) => Vec::new(),
        Ok(count) => vec![format!(
            "{count} backups that waited here are in the vault now"
        )],
        Err(failure) => vec![format!(
            "what waits here was not handed over: {}",
            failure.line()
        )],
    }
}

/// Hands over what waits. Returns how many backups are in the vault now that were not.
async fn hand(
    (settings, source): (&Settings, &Source),
    vault: &Vault<ReadWrite>,
    trust: &Trust,
) -> Result<usize, Failure> {
    if !has_any(settings, source) {
        return Ok(0);
    }
    let name = &source.name;
    let what = format!("the waiting backups of `{name}` were not handed over");
    let folder = Vault::<ReadWrite>::open(&spec(settings)).await;
    let folder = folder.or_fail(what.clone())?;
    let copied = hand_over(&folder, vault, name, trust, &|_| {}).await;
    let copied = copied.or_fail(what.clone())?;
    match copied.refused.first() {
        None => Ok(copied.backups.len()),
        Some(refused) => Err(Failure::new(ErrorName::Corrupt, what)
            .because_of(format!("{}: {}", refused.object, refused.reason))),
    }
}

/// Tries to hand over whatever waits for one source, until `stop`.
pub(super) async fn keep(
    shop: Arc<Shop>,
    source: Arc<Source>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let entry = shop.board.entry(KIND, source.name.as_str());
    let mut tries = 0_usize;
    loop {
        let last = PAUSES.len().saturating_sub(1);
        let pause = PAUSES.get(tries.min(last)).copied().unwrap_or(60);
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs(pause)) => {}
        }
        if !has_any(&shop.settings, &source) {
            tries = 0;
            continue;
        }
        entry.begin(shop.clock.now());
        let outcome = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            outcome = hand_all(&shop, &source) => outcome,
        };
        let summary = match outcome {
            Ok(count) => {
                tracing::info!(
                    source = source.name.as_str(),
                    count,
                    "waiting backups handed over"
                );
                shop.stored.send_replace(());
                tries = 0;
                Ok(format!("{count} backups handed over"))
            }
            Err(failure) => {
                let failure = failure.line();
                tracing::warn!(source = source.name.as_str(), failure, "backups wait here");
                tries = tries.saturating_add(1);
                Err(failure)
            }
        };
        entry.end(shop.clock.now(), summary);
        shop.refresh.send_replace(());
    }
}

async fn hand_all(shop: &Shop, source: &Source) -> Result<usize, Failure> {
    let settings = &shop.settings;
    let (signer, trust) = (keys::signer(settings)?, keys::trust(settings)?);
    let vault = vaults::write(settings, &signer, shop.clock.now()).await?;
    hand((settings, source), &vault, &trust).await
}

fn claim_file(settings: &Settings, source: &Source) -> PathBuf {
    let name = format!("{}.json", source.name);
    settings.data_dir().join("claims").join(name)
}

/// Keeps the generation that this host claimed: it may have to write in it when no vault answers.
pub(super) fn remember_claim(
    settings: &Settings,
    source: &Source,
    generation: Generation,
) -> Result<(), Failure> {
    let file = claim_file(settings, source);
    if let Some(dir) = file.parent() {
        keys::make_private_dir(dir)?;
    }
    let what = format!("{} cannot be written", file.display());
    let text = generation.0.to_string();
    holdfast_store::datadir::durable::write_file(&file, text.as_bytes()).or_fail(what)
}

/// The generation that this host claimed last. Who took over since is found out at the hand-over.
pub(super) fn last_claim(settings: &Settings, source: &Source) -> Result<Generation, Failure> {
    let file = claim_file(settings, source);
    let read = fs::read_to_string(&file).ok();
    let found = read.and_then(|text| text.trim().parse().ok());
    found.map(Generation).ok_or_else(|| {
        let name = &source.name;
        let what = format!("no backup of `{name}` can wait on this host for the vault");
        Failure::new(ErrorName::Unavailable, what)
            .because_of("this host never claimed the source, and the vault is away")
    })
}
