//! Replay: a backup's content and the changes after it become the content at a later revision.
//!
//! Offline: no server, no leases that run out, no permissions. The rows of the deltas go behind the
//! backup's own into a new database file, in a sealed spool. Rows that the backup has already are
//! skipped, so a delta that began before it does no harm. What the source said of its content at
//! the time is compared with the result.

mod content;

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use holdfast_store::bolt::ReadAt;
use holdfast_store::etcd_file::EtcdFile;
use serde::Serialize;

use crate::delta::rows::{self, Item};
use crate::delta::{DELTA_BYTES_MAX, Head, Predecessor, RECORD_BYTES_MAX};
use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::flaw::{Flaw, FlawKind};
use crate::inspect::unreadable;
use crate::key::Keys;
use crate::manifest::SourceHash;
use crate::part::length_of;
use crate::plan::{Replay, RestorePlan};
use crate::progress::{Phase, Progress, ProgressFn};
use crate::spool::{Spool, SpoolReader};
use crate::vault::{ReadOnly, Vault, layout};

/// Deltas read at once.
const READS_MAX: usize = 8;

/// What the source said of its content at a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Told {
    /// The revision, at or before that of the result.
    pub revision: i64,
    /// The compaction behind which the hash was computed.
    pub compact_revision: i64,
    /// HashKV there.
    pub hash: u32,
}

/// What was replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Deltas.
    pub deltas: u64,
    /// The newest hash that the source told of a state on the way, with which the result was
    /// compared. `None`: it told none.
    pub compared: Option<Told>,
}

/// The changes of a plan, checked, in a sealed spool.
#[derive(Debug)]
pub(crate) struct Changes {
    spool: Spool,
    ranges: Vec<(i64, i64)>,
    upto: i64,
    told: Option<Told>,
}

/// Reads the deltas of a plan and checks them as a chain.
pub(crate) async fn fetch(
    vault: &Vault<ReadOnly>,
    plan: &RestorePlan,
    replay: &Replay,
    (keys, spool): (&Keys, Spool),
    progress: ProgressFn<'_>,
) -> Result<Changes> {
    let spool = Arc::new(spool);
    let numbers = replay.first..replay.first.saturating_add(replay.count);
    let reads: Vec<BoxFuture<'_, Result<Head>>> = numbers
        .zip(0_usize..)
        .map(|(number, index)| {
            let spool = Arc::clone(&spool);
            read(vault, (plan, replay), (number, index), keys, spool).boxed()
        })
        .collect();
    let mut heads = futures::stream::iter(reads).buffered(READS_MAX);
    let mut ranges = Vec::new();
    let (mut before, mut told, mut done) = (None::<(Digest, i64)>, None, 0_u64);
    while let Some(head) = heads.next().await {
        let reached = before.map_or(replay.after, |(_, to)| to);
        let head = head.map_err(|error| broken_at(error, replay, reached))?;
        let record = &head.record;
        if let Some((digest, to)) = before
            && (record.predecessor != Predecessor::Delta(digest) || record.from != to)
        {
            let object = layout::delta(&plan.cluster, replay.generation, record.number);
            let error = Error::malformed(object.as_str(), "does not follow the delta before it");
            return Err(broken_at(error, replay, to));
        }
        before = Some((head.digest, record.to));
        ranges.push((record.from, record.to));
        told = told_by(record.to, &record.source_hash, replay.upto).or(told);
        done = done.saturating_add(record.part.plain_bytes);
        progress(Progress {
            phase: Phase::Fetching,
            done,
            total: Some(replay.bytes),
        });
    }
    drop(heads);
    let last = before.map_or(Digest::of(&[]), |(digest, _)| digest);
    if last != replay.last {
        return Err(Error::DigestMismatch {
            object: "the last delta".to_owned(),
            expected: replay.last,
            actual: last,
        });
    }
    let spool = Arc::into_inner(spool).ok_or_else(|| Error::Worker {
        reason: "a reader of deltas is left over".to_owned(),
    })?;
    Ok(Changes {
        spool,
        ranges,
        upto: replay.upto,
        told,
    })
}

/// Damage in the middle of the changes: what is there before it can still be restored.
fn broken_at(error: Error, replay: &Replay, reached: i64) -> Error {
    let kind = match &error {
        Error::ObjectMissing { .. } => FlawKind::DeltaMissing,
        error if error.kind() == ErrorKind::Corrupt => FlawKind::DeltaChanged,
        _ => return error,
    };
    let object = match &error {
        Error::ObjectMissing { object }
        | Error::Malformed { object, .. }
        | Error::Signature { object, .. }
        | Error::Stranger { object, .. }
        | Error::DigestMismatch { object, .. }
        | Error::SizeMismatch { object, .. }
        | Error::Decrypt { object, .. } => object.clone(),
        _ => return error,
    };
    Error::Unreachable {
        what: format!("revision {}", replay.upto),
        nearest: Some(reached.max(replay.after)),
        flaw: Some(Box::new(Flaw::new(kind, object, &error))),
        reason: format!("a change on the way is damaged: {error}"),
    }
}

/// Whether the keys at hand open the first and the last delta of a plan.
pub(crate) async fn check(
    vault: &Vault<ReadOnly>,
    plan: &RestorePlan,
    replay: &Replay,
    keys: &Keys,
) -> Result<()> {
    for number in [replay.first, replay.through()] {
        let name = layout::delta(&plan.cluster, replay.generation, number);
        let checked = match vault.get_start(&name, length_of(RECORD_BYTES_MAX)).await {
            Ok(start) => Head::read(name.as_str(), &start, &keys.trust),
            Err(error) => Err(error),
        };
        let reached = replay.after;
        let head = checked.map_err(|error| broken_at(error, replay, reached))?;
        head.key(keys).map(drop)?;
    }
    Ok(())
}

fn told_by(to: i64, told: &SourceHash, upto: i64) -> Option<Told> {
    match told {
        SourceHash::Told {
            hash,
            revision,
            compact_revision,
            ..
        } if *revision == to && to <= upto => Some(Told {
            revision: to,
            compact_revision: *compact_revision,
            hash: *hash,
        }),
        _ => None,
    }
}

/// Reads one delta, checks all of it, and keeps its payload.
async fn read(
    vault: &Vault<ReadOnly>,
    (plan, replay): (&RestorePlan, &Replay),
    (number, index): (u64, usize),
    keys: &Keys,
    spool: Arc<Spool>,
) -> Result<Head> {
    let name = layout::delta(&plan.cluster, replay.generation, number);
    let object = vault.get(&name, DELTA_BYTES_MAX).await?;
    let head = Head::read(name.as_str(), &object, &keys.trust)?;
    let record = &head.record;
    let place = (&record.cluster, record.generation, record.number);
    if place != (&plan.cluster, replay.generation, number) {
        return Err(Error::malformed(name.as_str(), "is of another place"));
    }
    let key = head.key(keys)?;
    tokio::task::spawn_blocking(move || {
        let payload = head.open(name.as_str(), &object, &key)?;
        let range = (head.record.from, head.record.to);
        rows::read(name.as_str(), &payload, range, |_item| Ok(()))?;
        spool.write(index, &payload)?;
        Ok(head)
    })
    .await?
}

impl Changes {
    /// Every row after `base` and up to the wanted revision, in order, and every lease.
    fn each<F>(&self, base: i64, mut visit: F) -> Result<()>
    where
        F: FnMut(Item<'_>) -> Result<()>,
    {
        for (index, range) in self.ranges.iter().enumerate() {
            let payload = self.spool.read(index)?;
            rows::read("delta", &payload, *range, |item| match item {
                Item::Row { row, .. }
                    if !(base < row.revision.main && row.revision.main <= self.upto) =>
                {
                    Ok(())
                }
                Item::Time { .. } => Ok(()),
                item => visit(item),
            })?;
        }
        Ok(())
    }

    /// Replays them onto `base` into a new file in `spool`. Blocks.
    pub(crate) fn onto<R: ReadAt>(
        &self,
        base: &EtcdFile<R>,
        spool: Spool,
    ) -> Result<EtcdFile<SpoolReader>> {
        let reader = content::write(base, self, spool, None)?;
        EtcdFile::open(reader).map_err(|error| unreadable(&error))
    }

    /// The same, and then what a compaction at this revision drops is left out. Blocks.
    pub(crate) fn onto_compacted<R: ReadAt>(
        &self,
        base: &EtcdFile<R>,
        spool: Spool,
        compact_revision: i64,
    ) -> Result<SpoolReader> {
        content::write(base, self, spool, Some(compact_revision))
    }

    /// What was done with them.
    pub(crate) fn replayed(&self) -> Replayed {
        Replayed {
            deltas: u64::try_from(self.ranges.len()).unwrap_or(u64::MAX),
            compared: self.told,
        }
    }

    /// The result against the wanted revision and what the source said. Blocks.
    pub(crate) fn check<R: ReadAt>(&self, file: &EtcdFile<R>) -> Result<()> {
        let revision = file.revision().map_err(|error| unreadable(&error))?;
        let refused = |reason: String| Err(Error::RebuildMismatch { reason });
        if revision != self.upto {
            return refused(format!("replayed to {revision}, not to {}", self.upto));
        }
        let Some(told) = self.told else {
            return Ok(());
        };
        let found = file.hash_kv_behind(told.revision, told.compact_revision);
        let hash = found.map_err(|error| unreadable(&error))?.hash;
        if hash != told.hash {
            return refused(format!(
                "after the replay HashKV at revision {} is {hash}, the source said {}",
                told.revision, told.hash
            ));
        }
        Ok(())
    }
}
