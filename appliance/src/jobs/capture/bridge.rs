//! From the end of the run before to the backup that begins the next: the old run is carried on up
//! to it, where the source still has the changes; what it has not is a gap.

use std::time::Duration;

use chrono::{DateTime, Utc};
use holdfast_restore::delta::gap::DeltaGap;
use holdfast_restore::delta::{Followed, Head, RunWriter, Session, SessionOptions, run};
use holdfast_restore::follow::Now;
use holdfast_restore::{Error, Manifest, Result};
use tokio::time::Instant;

use super::run::Tools;

/// How long one delta is gathered.
const EVERY: Duration = Duration::from_millis(500);

/// Longest wait for the old run to come to the backup: the next run waits for it, and must not be
/// overtaken by a compaction meanwhile.
const PATIENCE: Duration = Duration::from_mins(1);

/// The wait after a failure that may pass.
const WAIT: Duration = Duration::from_secs(1);

/// How far the old run came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    to: i64,
    until: DateTime<Utc>,
    /// Why it did not come to the backup.
    missed: Option<String>,
}

/// The last delta before the run that begins on `base`.
pub(super) async fn before(tools: &Tools, base: &Manifest) -> Result<Option<Head>> {
    run::last(&tools.vault, &base.cluster, &tools.trust).await
}

/// Carries the run that ends with `before` on up to revision `base`, unless it is `broken`.
pub(super) async fn close(
    tools: &Tools,
    before: &Head,
    broken: Option<&str>,
    base: i64,
    (source, now): (&dyn Followed, Now<'_>),
) -> End {
    let mut end = End {
        to: before.record.to,
        until: before.record.finished,
        missed: broken.map(str::to_owned),
    };
    // Captured beyond the backup, by whoever had the turn before: the source must have that too.
    if end.missed.is_none()
        && end.to > base
        && let Err(Error::CaptureBroken { reason, .. }) = source.feed(end.to).await
    {
        end.missed = Some(reason);
    }
    let options = SessionOptions::new(EVERY);
    let mut session = Session::new(RunWriter::resume(before), options);
    let began = Instant::now();
    let mut failure = None;
    while end.missed.is_none() && end.to < base {
        if began.elapsed() > PATIENCE {
            let why = failure.unwrap_or_else(|| "there was too much of it".to_owned());
            end.missed = Some(format!("the run before was not carried on in time: {why}"));
            break;
        }
        let keys = (&tools.sealer, &tools.signer);
        match session.step(source, &tools.vault, keys, now).await {
            Ok(stored) => {
                if let Some(stored) = stored {
                    (end.to, end.until) = (stored.to, stored.until);
                }
            }
            Err(Error::CaptureBroken { reason, .. }) => end.missed = Some(reason),
            Err(error) if error.ends_run() => end.missed = Some(error.to_string()),
            Err(error) => {
                failure = Some(error.to_string());
                tokio::time::sleep(WAIT).await;
            }
        }
    }
    end
}

impl End {
    /// What lies between it and `base`, where any state is missing.
    pub(super) fn gap(self, before: &Head, base: &Manifest, at: DateTime<Utc>) -> Option<DeltaGap> {
        let (from, to) = (self.to, base.content.revision);
        let (ours, theirs) = (&before.record.source.cluster_id, &base.source.cluster_id);
        let is_same = ours.is_none() || theirs.is_none() || ours == theirs;
        // The backup itself is the state after its revision.
        if is_same && (from..=from.saturating_add(1)).contains(&to) {
            return None;
        }
        let is_covered = is_same && self.missed.is_none() && from >= to;
        (!is_covered).then(|| DeltaGap {
            cluster: base.cluster.clone(),
            generation: base.generation,
            from,
            since: self.until,
            to,
            until: base.started,
            reason: self
                .missed
                .unwrap_or_else(|| "the source is another cluster now".to_owned()),
            at,
        })
    }
}
