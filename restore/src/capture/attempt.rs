//! One attempt at a backup, from one member.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use holdfast_policies::{Generation, ID_RANDOM_BYTES, SnapshotId};
use holdfast_store::etcd_file::EtcdFile;
use tokio::time::Instant;

use super::cutter::{Cutter, Whole};
use super::{CaptureOptions, Captured, Position, ReadBack};
use crate::claim;
use crate::error::{Error, Result};
use crate::inspect::{self, Comparison};
use crate::key::{Signer, Trust};
use crate::manifest::{ContentRecord, MANIFEST_BYTES_MAX, Manifest, SourceHash, SourceRecord};
use crate::part::{self, PartRecord};
use crate::progress::{Phase, Progress, ProgressFn};
use crate::seal::{PartKey, Sealer};
use crate::source::{SnapshotStream, Source};
use crate::spool::{Spool, SpoolReader};
use crate::vault::{Catalog, Folder, ObjectName, ReadWrite, Vault, layout};

/// Parts being sealed or stored at once. Each holds its plain and its stored bytes in memory.
const PARTS_IN_FLIGHT: usize = 3;

/// Parts read back at once.
const READ_BACKS: usize = 4;

/// What an attempt works with.
pub(super) struct Run<'a> {
    pub(super) options: &'a CaptureOptions,
    pub(super) trust: &'a Trust,
    pub(super) source: &'a dyn Source,
    pub(super) vault: &'a Vault<ReadWrite>,
    pub(super) sealer: &'a Sealer,
    pub(super) signer: &'a Signer,
    pub(super) progress: ProgressFn<'a>,
}

impl Run<'_> {
    /// Reads one member to the end and commits. Parts of a failed attempt are removed as far as
    /// the vault lets us; nothing refers to them either way.
    pub(super) async fn attempt(
        &self,
        catalog: &Catalog,
        position: &Position,
        avoid: &[String],
    ) -> Result<Captured> {
        let stream = self.source.open(avoid).await?;
        let position = self.fence(catalog, position, &stream.source)?;
        let mut random = [0_u8; ID_RANDOM_BYTES];
        rand::RngExt::fill(&mut rand::rng(), &mut random);
        let id = SnapshotId::new(self.options.now, random);
        match self.collect(id, &position, stream).await {
            Ok((manifest, warnings)) => match self.still_owns(position.generation).await {
                Ok(()) => self.commit(manifest, warnings).await,
                Err(error) => {
                    self.discard(id).await;
                    Err(error)
                }
            },
            Err(error) => {
                self.discard(id).await;
                Err(error)
            }
        }
    }

    /// A backup takes its time: whoever took over meanwhile is the writer now.
    async fn still_owns(&self, ours: Generation) -> Result<()> {
        if let Some(office) = &self.options.office {
            let cluster = &self.options.cluster;
            office
                .still_held()
                .await
                .map_err(|reason| Error::OfficeLost {
                    cluster: cluster.clone(),
                    reason,
                })?;
        }
        if self.options.generation.is_none() {
            return Ok(());
        }
        claim::confirm(self.vault, &self.options.cluster, ours, self.trust).await
    }

    /// Another cluster than before is another history: it needs consent and a new generation.
    fn fence(
        &self,
        catalog: &Catalog,
        position: &Position,
        source: &SourceRecord,
    ) -> Result<Position> {
        let before = catalog
            .newest()
            .and_then(|backup| backup.manifest.source.cluster_id.as_ref());
        let (Some(expected), Some(found)) = (before, source.cluster_id.as_ref()) else {
            return Ok(position.clone());
        };
        if expected == found {
            return Ok(position.clone());
        }
        if !self.options.accept_new_cluster {
            return Err(Error::ClusterChanged {
                expected: expected.clone(),
                found: found.clone(),
            });
        }
        let generation = if self.options.generation.is_some() {
            position.generation
        } else {
            position.generation.next().unwrap_or(Generation(u64::MAX))
        };
        Ok(Position {
            generation,
            ..position.clone()
        })
    }

    /// Everything before the commit point.
    async fn collect(
        &self,
        id: SnapshotId,
        position: &Position,
        stream: SnapshotStream,
    ) -> Result<(Manifest, Vec<String>)> {
        let began = Instant::now();
        let work_dir = self.options.work_dir.clone();
        let spool = tokio::task::spawn_blocking(move || Spool::create(&work_dir)).await??;
        let spool = Arc::new(spool);
        let (key, encryption) = self.sealer.begin()?;
        let source = stream.source.clone();
        let mut warnings: Vec<String> = stream
            .divergent
            .iter()
            .map(|endpoint| format!("{endpoint} holds other data than the other members"))
            .collect();
        let (parts, whole) = self.store_parts(id, &key, &spool, stream).await?;
        (self.progress)(Progress {
            phase: Phase::Inspecting,
            done: 0,
            total: Some(whole.bytes),
        });
        let part_bytes = part::length_of(self.options.part_bytes);
        let (file, revision) = open_content(spool, whole, part_bytes).await?;
        let reading = tokio::task::spawn_blocking(move || read_content(&file, whole));
        // Both take their time, and the source is on another host or at least another core.
        let (content, told) = tokio::join!(reading, self.source.hash_kv(revision));
        let content = content??;
        let source_hash = self.settle_hash(&content, told, &mut warnings).await?;
        self.read_back(id, &parts).await?;
        let elapsed = chrono::TimeDelta::from_std(began.elapsed()).unwrap_or_default();
        let manifest = Manifest {
            id,
            cluster: self.options.cluster.clone(),
            generation: position.generation,
            pool: self.options.pool,
            sequence: position.sequence,
            predecessor: position.predecessor.clone(),
            started: self.options.now,
            finished: self.options.now + elapsed,
            source,
            content,
            source_hash,
            encryption,
            part_bytes,
            parts,
            writer: concat!("holdfast ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        Ok((manifest, warnings))
    }

    async fn store_parts(
        &self,
        id: SnapshotId,
        key: &PartKey,
        spool: &Arc<Spool>,
        stream: SnapshotStream,
    ) -> Result<(Vec<PartRecord>, Whole)> {
        let total = stream.expected_bytes;
        let mut cutter = Cutter::new(
            stream.chunks,
            stream.source.endpoint,
            self.options.part_bytes,
        );
        let mut in_flight: FuturesOrdered<BoxFuture<'_, Result<PartRecord>>> =
            FuturesOrdered::new();
        let mut records = Vec::new();
        let mut cut = 0;
        let mut has_ended = false;
        loop {
            tokio::select! {
                stored = in_flight.next(), if !in_flight.is_empty() => {
                    if let Some(record) = stored {
                        records.push(record?);
                    }
                }
                next = cutter.next(), if !has_ended && in_flight.len() < PARTS_IN_FLIGHT => {
                    match next? {
                        Some(plain) => {
                            let stored = self.store_part(id, cut, plain, key, spool);
                            in_flight.push_back(stored.boxed());
                            cut += 1;
                        }
                        None => has_ended = true,
                    }
                    let done = cutter.bytes();
                    (self.progress)(Progress { phase: Phase::Capturing, done, total });
                }
                else => break,
            }
        }
        Ok((records, cutter.finish()?))
    }

    async fn store_part(
        &self,
        id: SnapshotId,
        index: usize,
        plain: Vec<u8>,
        key: &PartKey,
        spool: &Arc<Spool>,
    ) -> Result<PartRecord> {
        let (key, spool) = (key.clone(), Arc::clone(spool));
        let sealed = tokio::task::spawn_blocking(move || {
            let sealed = part::seal_part(&plain, &key)?;
            spool.write(index, &plain)?;
            Ok::<_, Error>(sealed)
        })
        .await??;
        let name = layout::part(&self.options.cluster, id, index);
        self.vault.put_new(&name, sealed.stored).await?;
        Ok(sealed.record)
    }

    /// The source's own hash of the revision in the copy. One that differs means that the copy is
    /// not the source's data.
    async fn settle_hash(
        &self,
        content: &ContentRecord,
        told: Result<SourceHash>,
        warnings: &mut Vec<String>,
    ) -> Result<SourceHash> {
        let mut told = said(told);
        let is_unknown = |told| matches!(inspect::compare(content, told), Comparison::Unknown(_));
        if content.compact_revision == content.revision && is_unknown(&told) {
            // Compacted at its newest revision, as a cluster just restored is: see `fresh_hash_kv`.
            let fresh = said(self.source.fresh_hash_kv(content.revision).await);
            if !is_unknown(&fresh) {
                told = fresh;
            }
        }
        match inspect::compare(content, &told) {
            Comparison::Equal => {}
            Comparison::Unknown(reason) => {
                warnings.push(format!("the source's hash is not known: {reason}"));
            }
            Comparison::Different => {
                return Err(Error::Content {
                    reason: format!(
                        "HashKV of the copy at revision {} is {}, the source says otherwise",
                        content.revision, content.hash_kv
                    ),
                });
            }
        }
        Ok(told)
    }

    async fn read_back(&self, id: SnapshotId, parts: &[PartRecord]) -> Result<()> {
        let checks: Vec<BoxFuture<'_, Result<()>>> = parts
            .iter()
            .enumerate()
            .map(|(index, record)| self.read_back_part(id, index, record).boxed())
            .collect();
        futures::stream::iter(checks)
            .buffer_unordered(READ_BACKS)
            .try_collect()
            .await
    }

    async fn read_back_part(
        &self,
        id: SnapshotId,
        index: usize,
        record: &PartRecord,
    ) -> Result<()> {
        let name = layout::part(&self.options.cluster, id, index);
        let object = name.to_string();
        match self.options.read_back {
            ReadBack::None => Ok(()),
            ReadBack::Sizes => match self.vault.size(&name).await? {
                Some(actual) if actual == record.stored_bytes => Ok(()),
                Some(actual) => {
                    let expected = record.stored_bytes;
                    Err(Error::SizeMismatch {
                        object,
                        expected,
                        actual,
                    })
                }
                None => Err(Error::ObjectMissing { object }),
            },
            ReadBack::Bytes => {
                let stored = self.vault.get(&name, record.stored_bytes).await?;
                let record = record.clone();
                tokio::task::spawn_blocking(move || part::check_stored(&object, &stored, &record))
                    .await?
            }
        }
    }

    /// The commit point.
    async fn commit(&self, manifest: Manifest, warnings: Vec<String>) -> Result<Captured> {
        let bytes = manifest.encode(self.signer)?;
        let link = manifest.link(crate::digest::Digest::of(&bytes));
        let name = layout::manifest(&self.options.cluster, manifest.sequence);
        match self.vault.put_new(&name, bytes).await {
            Ok(()) => Ok(Captured {
                manifest,
                link,
                warnings,
            }),
            Err(Error::ObjectExists { .. }) => {
                // Somebody else's manifest is in this place for good: ours never was.
                self.discard(manifest.id).await;
                Err(Error::Overtaken {
                    cluster: manifest.cluster.clone(),
                    sequence: manifest.sequence,
                    by: self.winner(&name).await,
                })
            }
            // It may be stored in spite of the error, so its parts must stay.
            Err(error) => Err(error),
        }
    }

    /// Who took the place, in the words of the manifest that is there.
    async fn winner(&self, name: &ObjectName) -> String {
        let trust = &self.options.trust;
        let read = async {
            let bytes = self.vault.get(name, MANIFEST_BYTES_MAX).await?;
            Manifest::decode(name.as_str(), &bytes, trust)
        };
        match read.await {
            Ok(signed) => format!(
                "backup {}, signed with the key {}",
                signed.record.id,
                signed.by.fingerprint()
            ),
            Err(_) => "an appliance whose signing key is not trusted here".to_owned(),
        }
    }

    async fn discard(&self, id: SnapshotId) {
        let remove = async {
            let folder = Folder::Parts.of_backup(&self.options.cluster, id);
            for part in self.vault.list(&folder).await? {
                self.vault.remove(&part.name).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = remove.await {
            tracing::warn!(snapshot_id = %id, %error, "parts of a failed backup stay behind");
        }
    }
}

/// What the source told, or why it did not.
fn said(answer: Result<SourceHash>) -> SourceHash {
    answer.unwrap_or_else(|error| SourceHash::Unavailable {
        reason: error.to_string(),
    })
}

/// The decoded copy, and its newest revision.
async fn open_content(
    spool: Arc<Spool>,
    whole: Whole,
    part_bytes: u64,
) -> Result<(EtcdFile<SpoolReader>, i64)> {
    let spool = Arc::into_inner(spool).ok_or_else(|| Error::Worker {
        reason: "a part is still being written".to_owned(),
    })?;
    tokio::task::spawn_blocking(move || {
        let unreadable = |error| inspect::unreadable(&error);
        let file =
            EtcdFile::open(spool.into_reader(whole.bytes, part_bytes)).map_err(unreadable)?;
        let revision = file.revision().map_err(unreadable)?;
        Ok((file, revision))
    })
    .await?
}

fn read_content(file: &EtcdFile<SpoolReader>, whole: Whole) -> Result<ContentRecord> {
    let content = file.survey(|_pair| ()).content;
    let content = content.map_err(|error| inspect::unreadable(&error))?;
    inspect::inspect(file, &content, (whole.bytes, whole.digest))
}
