//! Keeping copies: each copy of each source is a task of its own, so that none waits for another.
//!
//! A copy is brought up to date when something was stored in the first vault, and looked at now and
//! then besides. One that fails is tried again, less and less often, for ever.

use std::sync::Arc;
use std::time::Duration;

use holdfast_restore::copy::{Copied, copy_cluster};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::board::Entry;
use super::shop::Shop;
use super::turn;
use crate::config::{CopyVault, Source};
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::{keys, vaults};

/// How often a copy that lacks nothing is looked at.
const PERIOD: Duration = Duration::from_mins(10);

/// Waits after each failure in a row; the last one is kept to.
const PAUSES: [u64; 6] = [5, 15, 30, 60, 150, 300];

/// The kind of job on the board.
pub(crate) const KIND: &str = "copy";

/// What the board calls a copy of a source.
pub(crate) fn place(source: &str, vault: &str) -> String {
    format!("{source}/{vault}")
}

/// Keeps one copy of one source until `stop`, whenever it is this daemon's turn.
pub(super) async fn keep(
    shop: Arc<Shop>,
    source: Arc<Source>,
    copy: CopyVault,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let place = place(source.name.as_str(), copy.name.as_str());
    let entry = shop.board.entry(KIND, &place);
    let (_nobody_asks, mut requests) = mpsc::channel::<()>(1);
    let (mut turn, mut stored) = (shop.turn.clone(), shop.stored.subscribe());
    while let Some(held) = turn::next(&mut turn, &mut requests, |(), _| {}, &stop).await {
        let shift = stop.child_token();
        let rounds = rounds((&shop, &entry), (&source, &copy), &mut stored, &shift);
        turn::during(&mut turn, &held, &shift, rounds).await;
        entry.stand_by();
    }
    Ok(())
}

async fn rounds(
    (shop, entry): (&Shop, &Entry),
    (source, copy): (&Source, &CopyVault),
    stored: &mut watch::Receiver<()>,
    shift: &CancellationToken,
) {
    let mut failures = 0_usize;
    loop {
        stored.mark_unchanged();
        entry.begin(shop.clock.now());
        let outcome = tokio::select! {
            () = shift.cancelled() => return,
            outcome = one(shop, source, copy) => outcome,
        };
        let (source, vault) = (source.name.as_str(), copy.name.as_str());
        let summary = match outcome {
            Ok(copied) => {
                if copied.objects > 0 {
                    let (backups, objects) = (copied.backups.len(), copied.objects);
                    tracing::info!(source, vault, backups, objects, "copied");
                }
                failures = 0;
                Ok(line(&copied))
            }
            Err(failure) => {
                let failure = failure.line();
                tracing::warn!(source, vault, failure, "the copy is not up to date");
                failures = failures.saturating_add(1);
                Err(failure)
            }
        };
        entry.end(shop.clock.now(), summary);
        shop.refresh.send_replace(());
        let pause = pause(failures);
        tokio::select! {
            () = shift.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            // A new backup is no reason to try a vault that fails sooner than its pause ends.
            Ok(()) = stored.changed(), if failures == 0 => {}
        }
    }
}

/// How long to wait after so many failures in a row.
fn pause(failures: usize) -> Duration {
    match failures.checked_sub(1) {
        None => PERIOD,
        Some(before) => {
            let last = PAUSES.len().saturating_sub(1);
            PAUSES
                .get(before.min(last))
                .map_or(PERIOD, |seconds| Duration::from_secs(*seconds))
        }
    }
}

/// What a copy came to, in a line.
fn line(copied: &Copied) -> String {
    match copied.objects {
        0 => "up to date".to_owned(),
        objects => format!(
            "{} backups, {} deltas, {objects} objects copied",
            copied.backups.len(),
            copied.deltas
        ),
    }
}

/// Brings a copy up to date once.
async fn one(shop: &Shop, source: &Source, copy: &CopyVault) -> Result<Copied, Failure> {
    let settings = &shop.settings;
    let (signer, trust) = (keys::signer(settings)?, keys::trust(settings)?);
    let cluster = &source.name;
    let first = vaults::read(settings).await?;
    let to = vaults::copies::write(settings, copy, (&signer, shop.clock.now()), false).await?;
    let copied = copy_cluster(&first, &to, cluster, &trust, &|_| {})
        .await
        .or_fail(format!("`{cluster}` was not copied to `{}`", copy.name))?;
    match copied.refused.first() {
        None => Ok(copied),
        Some(refused) => {
            let count = copied.refused.len();
            let what = format!("{count} objects of `{cluster}` are not in `{}`", copy.name);
            Err(Failure::new(ErrorName::Corrupt, what)
                .because_of(format!("{}: {}", refused.object, refused.reason)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_fails_is_tried_less_and_less_often_and_for_ever() {
        assert_eq!(pause(0), PERIOD);
        assert!((1..20).all(|count| pause(count) <= pause(count + 1)));
        assert_eq!(pause(usize::MAX), Duration::from_mins(5));
    }
}
