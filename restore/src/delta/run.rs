//! What runs of deltas a vault holds, and whether each is the chain it claims to be.
//!
//! Only the records are read: they bind the payloads. A delta that is missing, damaged or in the
//! wrong place is a flaw, and ends what can be replayed there; what follows it counts again only
//! behind a later backup.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use holdfast_policies::{ClusterName, Generation};
use serde::Serialize;

use super::release::{DeltaRelease, RELEASE_BYTES_MAX};
use super::rows::{self, Item};
use super::{DELTA_BYTES_MAX, Head, Predecessor, RECORD_BYTES_MAX};
use crate::error::{Error, Result};
use crate::flaw::{Flaw, FlawKind};
use crate::key::{Keys, Trust};
use crate::part::length_of;
use crate::sign::{self, Signed};
use crate::vault::layout::{self, ObjectName};
use crate::vault::{Backup, Catalog, Folder, Listed, Vault};

/// Records read at once.
const READS_MAX: usize = 16;

/// Payloads read at once.
const PAYLOADS_MAX: usize = 4;

/// Most flaws named.
const FLAWS_MAX: usize = 100;

/// Deltas that follow each other without a gap, all of one generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The generation.
    pub generation: Generation,
    /// In order; at least one.
    pub deltas: Vec<Head>,
}

/// The changes that follow a backup, in a few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Following {
    /// Deltas with something that the backup does not have.
    pub deltas: u64,
    /// The revision to which they lead.
    pub to: i64,
    /// Until when they tell everything, by their writer's clock.
    pub until: DateTime<Utc>,
}

/// Everything a vault holds of one cluster's changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runs {
    /// By generation and number. A generation with a gap has several.
    pub runs: Vec<Run>,
    /// What is wrong with them.
    pub flaws: Vec<Flaw>,
}

impl Run {
    /// The revision its first delta begins after.
    pub fn from(&self) -> i64 {
        self.deltas.first().map_or(0, |first| first.record.from)
    }

    /// The newest revision in it.
    pub fn to(&self) -> i64 {
        self.deltas.last().map_or(0, |last| last.record.to)
    }

    /// Until when it tells everything, by its writer's clock.
    pub fn until(&self) -> Option<DateTime<Utc>> {
        self.deltas.last().map(|last| last.record.finished)
    }

    /// When `revision` is last known to have been the newest; `None`: a delta goes on beyond it.
    pub fn told_of(&self, revision: i64) -> Option<DateTime<Utc>> {
        let ending = self.deltas.iter().rev().map(|head| &head.record);
        let mut ending = ending.filter(|record| record.to == revision);
        ending.next().map(|record| record.finished)
    }

    /// Whether the backup can be followed by these deltas.
    pub fn follows(&self, backup: &Backup) -> bool {
        let revision = backup.manifest.content.revision;
        self.generation == backup.manifest.generation
            && (self.from()..=self.to()).contains(&revision)
    }

    /// The deltas needed after `revision` to come to `upto`, which they may not reach.
    pub fn between(&self, revision: i64, upto: i64) -> impl Iterator<Item = &Head> {
        let is_needed = move |one: &&Head| one.record.to > revision && one.record.from < upto;
        self.deltas.iter().filter(is_needed)
    }
}

impl Runs {
    /// The changes that follow a backup. Where one run ends at its revision and another begins
    /// there, that is the one that goes on.
    pub fn after(&self, backup: &Backup) -> Option<&Run> {
        self.runs.iter().rfind(|run| run.follows(backup))
    }

    /// The same in a few words; `None`: nothing is known of what followed.
    pub fn following(&self, backup: &Backup) -> Option<Following> {
        let run = self.after(backup)?;
        let revision = backup.manifest.content.revision;
        let until = run
            .until()
            .filter(|until| *until > backup.manifest.started)?;
        Some(Following {
            deltas: u64::try_from(run.between(revision, i64::MAX).count()).unwrap_or(u64::MAX),
            to: run.to(),
            until,
        })
    }

    /// The last delta of a generation, by number, of which a state of `revision` has all; 0: none.
    pub fn through(&self, generation: Generation, revision: i64) -> u64 {
        let own = self.runs.iter().filter(|run| run.generation == generation);
        let records = own.flat_map(|run| &run.deltas).map(|head| &head.record);
        let held = records.filter(|record| record.to <= revision);
        held.map(|record| record.number).max().unwrap_or(0)
    }

    /// What is wrong right behind a delta, so that nothing leads on from it.
    pub fn flaw_after(&self, generation: Generation, number: u64) -> Option<&Flaw> {
        let own = self.runs.iter().filter(|run| run.generation == generation);
        let numbers = own
            .flat_map(|run| &run.deltas)
            .map(|head| head.record.number);
        let next = numbers.filter(|one| *one > number).min();
        self.flaws.iter().find(|flaw| {
            let name = ObjectName::listed(&flaw.object);
            let place = name.as_ref().and_then(layout::delta_place);
            place.is_some_and(|(of, at)| {
                of == generation && at > number && next.is_none_or(|next| at <= next)
            })
        })
    }

    /// The highest revision in any delta; 0: none.
    pub fn highest_revision(&self) -> i64 {
        self.runs.iter().map(Run::to).max().unwrap_or(0)
    }

    /// The last delta begun at or before `time`.
    pub fn begun_by(&self, time: DateTime<Utc>) -> Option<&Head> {
        let runs = self.runs.iter().rev();
        let mut newest_first = runs.flat_map(|run| run.deltas.iter().rev());
        newest_first.find(|head| head.record.started <= time)
    }
}

/// Reads the records of all deltas. Links to backups are compared with `catalog`.
pub async fn survey<Mode: Sync>(
    vault: &Vault<Mode>,
    catalog: &Catalog,
    trust: &Trust,
) -> Result<Runs> {
    let cluster = &catalog.cluster;
    let listing = vault.list_with_odd(&Folder::Deltas.of(cluster)).await?;
    let mut flaws = listing.odd;
    let (releases, deltas): (Vec<Listed>, Vec<Listed>) = listing
        .objects
        .into_iter()
        .partition(|one| layout::is_delta_release(&one.name));
    let released = released(vault, cluster, releases, trust, &mut flaws).await?;
    let is_gone = |one: &Listed| {
        let place = layout::delta_place(&one.name);
        place.is_some_and(|(run, number)| released.get(&run).is_some_and(|gone| number <= *gone))
    };
    let deltas = deltas.into_iter().filter(|one| !is_gone(one));
    let read = |entry: Listed| {
        async move {
            let length = length_of(RECORD_BYTES_MAX);
            let start = match entry.bytes {
                0 => Ok(bytes::Bytes::new()),
                _ => vault.get_start(&entry.name, length).await,
            };
            match start {
                Ok(start) => {
                    let head = Head::read(entry.name.as_str(), &start, trust);
                    Ok(Some((entry, head)))
                }
                Err(Error::ObjectMissing { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        }
        .boxed()
    };
    let reads: Vec<BoxFuture<'_, Result<_>>> = deltas.map(read).collect();
    let read: Vec<(Listed, Result<Head>)> = futures::stream::iter(reads)
        .buffered(READS_MAX)
        .try_filter_map(|read| std::future::ready(Ok(read)))
        .try_collect()
        .await?;
    let mut places: BTreeMap<(Generation, u64), Head> = BTreeMap::new();
    for (entry, head) in read {
        match place(cluster, &entry, head) {
            Ok((place, head)) => {
                places.insert(place, head);
            }
            Err(flaw) => flaws.push(flaw),
        }
    }
    Ok(chain(catalog, places, &released, flaws))
}

/// Through which number the deltas of each generation were let go.
async fn released<Mode>(
    vault: &Vault<Mode>,
    cluster: &ClusterName,
    records: Vec<Listed>,
    trust: &Trust,
    flaws: &mut Vec<Flaw>,
) -> Result<BTreeMap<Generation, u64>> {
    let mut released = BTreeMap::new();
    for entry in records {
        let bytes = vault.get(&entry.name, RELEASE_BYTES_MAX).await;
        let opened =
            bytes.and_then(|bytes| sign::open::<DeltaRelease>(entry.name.as_str(), &bytes, trust));
        match opened {
            Ok(Signed { record, .. })
                if record.cluster == *cluster
                    && entry.name
                        == layout::delta_release(cluster, record.generation, record.through) =>
            {
                let through = released.entry(record.generation).or_insert(0);
                *through = record.through.max(*through);
            }
            Ok(_) => {
                let detail = "a release of another place";
                flaws.push(Flaw::new(FlawKind::RecordRefused, &entry.name, detail));
            }
            Err(Error::ObjectMissing { .. }) => {}
            Err(error @ (Error::Vault { .. } | Error::Io { .. })) => return Err(error),
            Err(error) => flaws.push(Flaw::new(FlawKind::RecordRefused, &entry.name, error)),
        }
    }
    Ok(released)
}

/// A record belongs to the place it was found at, or the flaw says what it is.
fn place(
    cluster: &ClusterName,
    entry: &Listed,
    head: Result<Head>,
) -> std::result::Result<((Generation, u64), Head), Flaw> {
    let Some(place) = layout::delta_place(&entry.name) else {
        let detail = "not a delta's name";
        return Err(Flaw::new(FlawKind::DeltaRefused, &entry.name, detail));
    };
    let head = head.map_err(|error| Flaw::new(FlawKind::DeltaRefused, &entry.name, error))?;
    let record = &head.record;
    if record.cluster != *cluster {
        let detail = format!("the delta is of cluster {}", record.cluster);
        return Err(Flaw::new(FlawKind::WrongCluster, &entry.name, detail));
    }
    if (record.generation, record.number) != place {
        let detail = format!("holds delta {}/{}", record.generation, record.number);
        return Err(Flaw::new(FlawKind::DeltaReplaced, &entry.name, detail));
    }
    let expected = length_of(head.bytes).saturating_add(record.part.stored_bytes);
    if entry.bytes != expected {
        let detail = format!("{} bytes, expected {expected}", entry.bytes);
        return Err(Flaw::new(FlawKind::DeltaChanged, &entry.name, detail));
    }
    Ok((place, head))
}

/// Cuts what is there into runs, and names every gap. Pure.
pub(crate) fn chain(
    catalog: &Catalog,
    places: BTreeMap<(Generation, u64), Head>,
    released: &BTreeMap<Generation, u64>,
    mut flaws: Vec<Flaw>,
) -> Runs {
    let cluster = &catalog.cluster;
    let mut runs: Vec<Run> = Vec::new();
    for ((generation, number), head) in places {
        let name = layout::delta(cluster, generation, number);
        let before = runs.last().filter(|run| run.generation == generation);
        let before = before.and_then(|run| run.deltas.last());
        let gone = released.get(&generation).copied().unwrap_or(0);
        let last = before.map_or(gone, |one| one.record.number);
        let expected = last.saturating_add(1);
        let named_before = flaws.len();
        if number != expected {
            let object = layout::delta(cluster, generation, expected);
            let detail = format!("gone; the next one there is {number}");
            flaws.push(Flaw::new(FlawKind::DeltaMissing, object, detail));
        } else if let Err(detail) = link(catalog, (before, gone), &head) {
            flaws.push(Flaw::new(FlawKind::DeltaReplaced, &name, detail));
        }
        let is_joined = flaws.len() == named_before && before.is_some();
        match runs.last_mut().filter(|_| is_joined) {
            Some(run) => run.deltas.push(head),
            None => runs.push(Run {
                generation,
                deltas: vec![head],
            }),
        }
    }
    flaws.truncate(FLAWS_MAX);
    Runs { runs, flaws }
}

/// Whether a delta is what follows `before`, or the beginning of a run.
fn link(
    catalog: &Catalog,
    (before, gone): (Option<&Head>, u64),
    head: &Head,
) -> std::result::Result<(), String> {
    match (&head.record.predecessor, before) {
        (Predecessor::Delta(digest), Some(before)) => {
            if *digest != before.digest {
                return Err("knows another digest of the delta before it".to_owned());
            }
            if head.record.from != before.record.to {
                return Err("does not begin where the delta before it ends".to_owned());
            }
            Ok(())
        }
        (Predecessor::Snapshot(link), None) => match catalog.chain.link_at(link.sequence) {
            Some(known) if known != link => {
                Err("knows another digest of the backup it builds on".to_owned())
            }
            _ => Ok(()),
        },
        // What it names was let go.
        (Predecessor::Delta(_), None) if gone > 0 => Ok(()),
        _ => Err("is no delta for this place".to_owned()),
    }
}

/// Reads a whole delta and opens it.
pub async fn payload<Mode>(vault: &Vault<Mode>, head: &Head, keys: &Keys) -> Result<Vec<u8>> {
    let record = &head.record;
    let name = layout::delta(&record.cluster, record.generation, record.number);
    let object = vault.get(&name, DELTA_BYTES_MAX).await?;
    let found = Head::read(name.as_str(), &object, &keys.trust)?;
    if found.digest != head.digest {
        return Err(Error::DigestMismatch {
            object: name.to_string(),
            expected: head.digest,
            actual: found.digest,
        });
    }
    let key = found.key(keys)?;
    tokio::task::spawn_blocking(move || found.open(name.as_str(), &object, &key)).await?
}

/// The newest revision at `time`, which falls into this delta.
pub async fn revision_at<Mode>(
    vault: &Vault<Mode>,
    head: &Head,
    time: DateTime<Utc>,
    keys: &Keys,
) -> Result<i64> {
    let payload = payload(vault, head, keys).await?;
    let record = &head.record;
    let (mut revision, limit) = (record.from, time.timestamp_millis());
    let object = layout::delta(&record.cluster, record.generation, record.number);
    rows::read(
        object.as_str(),
        &payload,
        (record.from, record.to),
        |item| {
            if let Item::Time {
                revision: seen,
                at_ms,
            } = item
                && at_ms <= limit
            {
                revision = revision.max(seen);
            }
            Ok(())
        },
    )?;
    Ok(revision)
}

/// A key was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    /// In this generation.
    pub generation: Generation,
    /// By this revision.
    pub revision: i64,
    /// No later than this, by the writer's clock.
    pub seen: DateTime<Utc>,
}

/// The last delete of `key` that any delta tells of.
pub async fn last_delete<Mode: Sync>(
    vault: &Vault<Mode>,
    runs: &Runs,
    key: &[u8],
    keys: &Keys,
) -> Result<Option<Deletion>> {
    let newest_first = runs
        .runs
        .iter()
        .rev()
        .flat_map(|run| run.deltas.iter().rev());
    let reads: Vec<BoxFuture<'_, Result<Option<Deletion>>>> = newest_first
        .filter(|head| head.record.events > 0)
        .map(|head| deletion_in(vault, head, key, keys).boxed())
        .collect();
    let mut found = futures::stream::iter(reads).buffered(PAYLOADS_MAX);
    while let Some(deletion) = found.next().await {
        if let Some(deletion) = deletion? {
            return Ok(Some(deletion));
        }
    }
    Ok(None)
}

async fn deletion_in<Mode>(
    vault: &Vault<Mode>,
    head: &Head,
    key: &[u8],
    keys: &Keys,
) -> Result<Option<Deletion>> {
    let payload = payload(vault, head, keys).await?;
    let record = &head.record;
    let name = layout::delta(&record.cluster, record.generation, record.number);
    let mut found = None;
    let range = (record.from, record.to);
    rows::read(name.as_str(), &payload, range, |item| {
        if let Item::Row { row, record } = item
            && row.is_tombstone
            && rows::key_of(record) == Some(key)
        {
            found = Some(row.revision.main);
        }
        Ok(())
    })?;
    Ok(found.map(|revision| Deletion {
        generation: record.generation,
        revision,
        seen: record.finished,
    }))
}

/// Reads every payload back: sizes and digests, and with identities all that is in them. What the
/// records show to be wrong comes first.
pub async fn verify<Mode: Sync>(
    vault: &Vault<Mode>,
    runs: &Runs,
    keys: &Keys,
) -> Result<Vec<Flaw>> {
    let heads = runs.runs.iter().flat_map(|run| &run.deltas);
    let mut flaws = runs.flaws.clone();
    flaws.extend(verify_each(vault, heads, keys).await?);
    flaws.truncate(FLAWS_MAX);
    Ok(flaws)
}

/// Reads the payloads of these deltas back, and says what is wrong with each.
pub async fn verify_each<'a, Mode: Sync>(
    vault: &Vault<Mode>,
    heads: impl Iterator<Item = &'a Head>,
    keys: &Keys,
) -> Result<Vec<Flaw>> {
    let reads: Vec<BoxFuture<'_, Result<Option<Flaw>>>> = heads
        .map(|head| verify_one(vault, head, keys).boxed())
        .collect();
    futures::stream::iter(reads)
        .buffered(PAYLOADS_MAX)
        .try_filter_map(|flaw| std::future::ready(Ok(flaw)))
        .try_collect()
        .await
}

async fn verify_one<Mode>(vault: &Vault<Mode>, head: &Head, keys: &Keys) -> Result<Option<Flaw>> {
    let record = &head.record;
    let name = layout::delta(&record.cluster, record.generation, record.number);
    let checked = match &keys.identities {
        Some(_) => payload(vault, head, keys).await.and_then(|payload| {
            let range = (record.from, record.to);
            rows::read(name.as_str(), &payload, range, |_item| Ok(()))
        }),
        None => vault
            .get(&name, DELTA_BYTES_MAX)
            .await
            .and_then(|object| head.check_stored(name.as_str(), &object)),
    };
    let kind = match &checked {
        Ok(()) => return Ok(None),
        Err(Error::ObjectMissing { .. }) => FlawKind::DeltaMissing,
        Err(Error::NoMatchingIdentity { .. }) => FlawKind::WrongIdentity,
        Err(error) if error.kind() == crate::error::ErrorKind::Corrupt => FlawKind::DeltaChanged,
        Err(Error::TooLarge { .. }) => FlawKind::DeltaChanged,
        Err(_) => return checked.map(|()| None),
    };
    Ok(checked.err().map(|error| Flaw::new(kind, &name, error)))
}
