//! A vault is tried out again when its credentials or authorities were rotated: new ones that lack
//! a permission are told of at once, not by the first backup or prune that needs it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast_restore::{ReadWrite, Vault, VaultSpec};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::board::{Board, Entry};
use crate::clock::Clock;
use crate::config::{FIRST, Settings};
use crate::failure::{Failure, OrFail as _};
use crate::vaults::doctor;

/// How often files are looked at.
const PERIOD: Duration = Duration::from_secs(5);

/// The kind of job on the board; its source is the vault's name.
pub(crate) const KIND: &str = "check";

/// What tells one content of a file from another.
type Stamp = Option<(SystemTime, u64)>;

/// One vault with files.
struct Watched {
    spec: VaultSpec,
    files: Vec<PathBuf>,
    stamps: Vec<Stamp>,
    entry: Entry,
}

/// Looks at the files of every vault until `stop`.
pub(crate) async fn keep(
    settings: Arc<Settings>,
    clock: Clock,
    board: Board,
    refresh: watch::Sender<()>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let mut watched = watched(&settings, &board);
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(PERIOD) => {}
        }
        for vault in &mut watched {
            let now = stamps(&vault.files);
            if now == vault.stamps {
                continue;
            }
            vault.stamps = now;
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = check(vault, &clock) => {}
            }
            refresh.send_replace(());
        }
    }
}

fn watched(settings: &Settings, board: &Board) -> Vec<Watched> {
    let copies = settings.config.restore.copies.iter();
    let copies = copies.map(|one| (one.name.as_str(), settings.resolve_vault(&one.vault)));
    let all = std::iter::once((FIRST, settings.vault())).chain(copies);
    let with_files = all.filter_map(|(name, spec)| {
        let files: Vec<PathBuf> = spec.files().into_iter().map(|(_, file)| file).collect();
        (!files.is_empty()).then(|| Watched {
            stamps: stamps(&files),
            entry: board.entry(KIND, name),
            spec,
            files,
        })
    });
    with_files.collect()
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |file: &PathBuf| {
        let found = fs::metadata(file).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    files.iter().map(stamp).collect()
}

async fn check(vault: &Watched, clock: &Clock) {
    let location = vault.spec.location();
    vault.entry.begin(clock.now());
    let summary = match examine(&vault.spec, clock).await {
        Ok(bad) if bad.is_empty() => {
            tracing::info!(vault = location, "checked after its files changed");
            Ok("fit, since its files changed".to_owned())
        }
        Ok(bad) => {
            let findings = bad.join("; ");
            tracing::error!(vault = location, findings, "unfit since its files changed");
            Err(format!("unfit since its files changed: {findings}"))
        }
        Err(failure) => {
            let failure = failure.line();
            tracing::error!(vault = location, failure, "unfit since its files changed");
            Err(format!("unfit since its files changed: {failure}"))
        }
    };
    vault.entry.end(clock.now(), summary);
}

/// What backups need and is not there any more.
async fn examine(spec: &VaultSpec, clock: &Clock) -> Result<Vec<String>, Failure> {
    let vault = Vault::<ReadWrite>::open(spec).await;
    let vault = vault.or_fail(format!("the vault {} cannot be written", spec.location()))?;
    let findings = doctor::examine(&vault, spec, clock).await;
    let bad = findings.iter().filter(|one| one.is_needed && !one.is_good);
    let told = bad.map(|one| match one.next {
        Some(next) => format!("{}: {}; {next}", one.name, one.detail),
        None => format!("{}: {}", one.name, one.detail),
    });
    Ok(told.collect())
}
