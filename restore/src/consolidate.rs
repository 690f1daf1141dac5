//! Consolidation: a backup and the changes after it become a new backup, without asking the source.
//!
//! A restore has then less to replay. The new backup is at a revision for which the source told
//! its HashKV, and compacted where the source was by then, so that it is proven like any other. It
//! is of the same generation: what was captured later follows it.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::StreamExt as _;
use holdfast_policies::{Generation, SnapshotId};
use holdfast_store::bolt::ReadAt as _;
use holdfast_store::etcd_file::EtcdFile;

use crate::delta::Head;
use crate::delta::run::Runs;
use crate::digest::Digester;
use crate::error::{Error, Result};
use crate::inspect::unreadable;
use crate::key::Keys;
use crate::manifest::{SourceHash, SourceRecord};
use crate::part::length_of;
use crate::plan::{Replay, RestoreOptions, RestorePlan, Target, Upto, plan_replay};
use crate::progress::ProgressFn;
use crate::rebuild::{Fetched, check_content, fetch};
use crate::source::{ObservedRevision, SnapshotStream, Source};
use crate::spool::{Spool, SpoolReader};
use crate::vault::{Backup, Catalog, ReadOnly, Vault};

/// `source.kind` in the manifest of a backup made this way.
pub const KIND: &str = "consolidation";

/// Bytes handed on at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Which backup and which deltas become a new backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsolidationPlan {
    /// What is fetched and replayed.
    pub restore: RestorePlan,
    /// The generation of all of them, and of the new backup.
    pub generation: Generation,
    /// When its state was the newest, by the clock of whoever captured it: the time that the new
    /// backup has.
    pub time: DateTime<Utc>,
    source: SourceRecord,
    told: SourceHash,
    compact_revision: i64,
}

impl ConsolidationPlan {
    /// The backup that it begins from.
    pub fn base(&self) -> SnapshotId {
        self.restore.id
    }

    /// The revision of the new backup.
    pub fn revision(&self) -> i64 {
        self.restore.revision
    }

    /// Deltas that a restore need not replay any more.
    pub fn deltas(&self) -> u64 {
        let replay = self.restore.replay.as_ref();
        replay.map_or(0, |replay| replay.count)
    }
}

/// What can be consolidated: the changes after the newest sound backup, up to the last state of
/// which the source told its hash. `None`: there is nothing. `work_dir`: where copies are spooled.
/// Pure.
pub fn plan_consolidation(
    catalog: &Catalog,
    runs: &Runs,
    work_dir: &Path,
) -> Result<Option<ConsolidationPlan>> {
    let sound = |one: &&Backup| !one.is_damaged();
    let Some(base) = catalog.backups.iter().rev().find(sound) else {
        return Ok(None);
    };
    let own = &base.manifest;
    let generation = own.generation;
    let is_ours = catalog.newest_generation() == Some(generation);
    let run = runs.after(base).filter(|_| is_ours);
    let deltas = run.into_iter().flat_map(|run| run.deltas.iter().rev());
    let newest = catalog
        .newest()
        .map_or(own.started, |one| one.manifest.started);
    let found = deltas
        .take_while(|head| head.record.to > own.content.revision)
        .find_map(|head| Some((head, compaction_told(head)?)));
    let Some((head, compact_revision)) = found.filter(|(head, _)| head.record.finished > newest)
    else {
        return Ok(None);
    };
    let record = &head.record;
    let options = RestoreOptions {
        work_dir: Some(work_dir.to_owned()),
        ..RestoreOptions::single(Target::Etcd, work_dir.join("none"), "none", "http://none")
    };
    let restore = plan_replay(catalog, runs, Upto::After(base.id(), record.to), &options)?;
    let through = restore.replay.as_ref().map_or(0, Replay::through);
    Ok(Some(ConsolidationPlan {
        generation,
        time: record.finished,
        source: SourceRecord {
            kind: KIND.to_owned(),
            endpoint: format!("{} and deltas through {generation}/{through}", base.id()),
            ..own.source.clone()
        },
        told: record.source_hash.clone(),
        compact_revision,
        restore,
    }))
}

/// Where the source was compacted when it told the hash of this delta's end.
fn compaction_told(head: &Head) -> Option<i64> {
    match &head.record.source_hash {
        SourceHash::Told {
            revision,
            compact_revision,
            ..
        } if *revision == head.record.to && compact_revision < revision => Some(*compact_revision),
        _ => None,
    }
}

/// The content of a plan, checked: a source that a backup is taken of.
#[derive(Debug)]
pub struct Consolidated {
    plan: ConsolidationPlan,
    content: Arc<SpoolReader>,
}

/// Fetches, replays and checks what `plan` says; [`crate::capture()`] makes the backup of it, at
/// the plan's time and in its generation.
pub async fn consolidate(
    vault: &Vault<ReadOnly>,
    plan: ConsolidationPlan,
    keys: &Keys,
    progress: ProgressFn<'_>,
) -> Result<Consolidated> {
    let work_dir = plan.restore.work_dir.clone();
    let spool = tokio::task::spawn_blocking(move || Spool::create(&work_dir)).await??;
    let fetched = fetch(vault, &plan.restore, (keys, spool), progress).await?;
    let compact_revision = plan.compact_revision;
    let content = tokio::task::spawn_blocking(move || {
        let Fetched {
            manifest,
            spooled,
            changes,
        } = fetched;
        let reader = (spooled.spool).into_reader(manifest.content.bytes, manifest.part_bytes);
        let base = EtcdFile::open(reader).map_err(|error| unreadable(&error))?;
        check_content(&base, &manifest)?;
        let Some((changes, spool)) = changes else {
            return Err(Error::Refused {
                reason: "a consolidation without changes".to_owned(),
            });
        };
        let reader = changes.onto_compacted(&base, spool, compact_revision)?;
        drop(base);
        let file = EtcdFile::open(&reader).map_err(|error| unreadable(&error))?;
        changes.check(&file)?;
        drop(file);
        Ok(reader)
    });
    Ok(Consolidated {
        plan,
        content: Arc::new(content.await??),
    })
}

#[async_trait]
impl Source for Consolidated {
    async fn open(&self, _avoid: &[String]) -> Result<SnapshotStream> {
        let bytes = self.content.len();
        let state = (Arc::clone(&self.content), 0_u64, Some(Digester::default()));
        let chunks = futures::stream::try_unfold(state, |(content, at, digester)| async move {
            let Some(digester) = digester else {
                return Ok(None);
            };
            let read = tokio::task::spawn_blocking(move || next_chunk(content, at, digester));
            read.await?.map(Some)
        });
        Ok(SnapshotStream {
            source: self.plan.source.clone(),
            divergent: Vec::new(),
            expected_bytes: Some(bytes.saturating_add(length_of(crate::source::TRAILER_BYTES))),
            chunks: chunks.boxed(),
        })
    }

    async fn hash_kv(&self, _revision: i64) -> Result<SourceHash> {
        Ok(self.plan.told.clone())
    }

    async fn latest_revision(&self) -> Result<ObservedRevision> {
        Ok(ObservedRevision {
            revision: self.plan.revision(),
            cluster_id: self.plan.source.cluster_id.clone(),
        })
    }

    fn describe(&self) -> String {
        self.plan.source.endpoint.clone()
    }
}

/// A stream's place: what is read, how far, and the digest until its end.
type Place = (Arc<SpoolReader>, u64, Option<Digester>);

/// The next bytes; behind the last ones the digest of all.
fn next_chunk(
    content: Arc<SpoolReader>,
    at: u64,
    mut digester: Digester,
) -> Result<(Bytes, Place)> {
    let left = content.len().saturating_sub(at);
    if left == 0 {
        let digest = Bytes::copy_from_slice(digester.finish().as_bytes());
        return Ok((digest, (content, at, None)));
    }
    let length = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
    let chunk = content.shared_at(at, length);
    let chunk = chunk.map_err(|error| unreadable(&error))?;
    digester.update(&chunk);
    let next = at.saturating_add(length_of(length));
    Ok((chunk, (content, next, Some(digester))))
}
