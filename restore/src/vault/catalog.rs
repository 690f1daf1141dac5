//! What is in a vault for one cluster: backups, proofs, pins, releases, and what is wrong.
//!
//! Everything is read from the vault; success and freshness are what is there. A listing that is
//! not complete makes no catalog at all.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use holdfast_policies::{
    BackupFact, ByteSize, ClusterName, Generation, Level, Sequence, SnapshotId,
};

use super::belongings::{absent_parts, fetch, pinned};
use super::layout::{self, Folder, ObjectName};
use super::trash::{Released, Trashed};
use super::{Listed, Vault};
use crate::chain::{Chain, Place};
use crate::claim;
use crate::confirmation::{CONFIRMATION_BYTES_MAX, Confirmation};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::flaw::{Flaw, FlawKind};
use crate::in_use;
use crate::key::{Trust, Verifier};
use crate::ledger::{self, Ledger};
use crate::manifest::{Link, MANIFEST_BYTES_MAX, Manifest};
use crate::pin::{PIN_BYTES_MAX, Pin};
use crate::proof::{PROOF_BYTES_MAX, Proof};
use crate::release::{self, RELEASE_BYTES_MAX, Release};
use crate::sign::{self, Record, Signed};

/// One backup that exists: its manifest is genuine and in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// The commit record.
    pub manifest: Manifest,
    /// Names the manifest by digest.
    pub link: Link,
    /// The key that signed the manifest.
    pub by: Verifier,
    /// When the vault saw the manifest, by the vault's own clock.
    pub observed: DateTime<Utc>,
    /// Verifications of exactly this manifest, oldest first.
    pub proofs: Vec<Proof>,
    /// What the listing shows to be wrong: parts missing or of another size.
    pub flaws: Vec<Flaw>,
    /// An operator asked to keep it.
    pub is_pinned: bool,
    /// An object lock does not let it go before this, where the vault has one.
    pub locked_until: Option<DateTime<Utc>>,
    /// Marks of those who read it, old ones included.
    pub uses: Vec<Listed>,
}

impl Backup {
    /// Its id.
    pub fn id(&self) -> SnapshotId {
        self.manifest.id
    }

    /// The last verification found damage, or parts are not there.
    pub fn is_damaged(&self) -> bool {
        let counts = |flaw: &Flaw| flaw.kind != FlawKind::WrongIdentity;
        !self.flaws.is_empty()
            || self
                .proofs
                .last()
                .is_some_and(|proof| proof.flaws.iter().any(counts))
    }

    /// The level of proof it stands at: the highest reached since damage was last seen.
    pub fn level(&self) -> Option<Level> {
        if !self.flaws.is_empty() {
            return None;
        }
        if self.is_damaged() {
            return self.proofs.last().and_then(|proof| proof.level);
        }
        let proven = self.proofs.iter().rev().take_while(|proof| {
            proof
                .flaws
                .iter()
                .all(|flaw| flaw.kind == FlawKind::WrongIdentity)
        });
        proven
            .filter_map(|proof| proof.level)
            .max()
            .max(Some(Level::L0))
    }

    /// Who reads it at `now`, in a word.
    pub fn reader(&self, now: DateTime<Utc>) -> Option<&'static str> {
        let live = self.uses.iter().find(|mark| in_use::is_live(mark, now));
        live.map(in_use::reader_of)
    }

    /// What decisions need to know at `now`.
    pub fn fact(&self, now: DateTime<Utc>) -> BackupFact {
        BackupFact {
            id: self.manifest.id,
            generation: self.manifest.generation,
            pool: self.manifest.pool,
            sequence: self.manifest.sequence,
            time: self.manifest.started,
            observed: Some(self.observed),
            revision: self.manifest.content.revision,
            size: ByteSize::new(self.manifest.stored_bytes()),
            level: self.level(),
            is_signed: true,
            is_damaged: self.is_damaged(),
            is_pinned: self.is_pinned,
            is_in_use: self.reader(now).is_some(),
            needs: Vec::new(),
        }
    }
}

/// What a vault holds for one cluster.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// The cluster.
    pub cluster: ClusterName,
    /// Backups, oldest first by their place in the chain. Released ones are not among them.
    pub backups: Vec<Backup>,
    /// Backups in the trash, oldest first.
    pub trash: Vec<Trashed>,
    /// Every backup that was let go: those in the trash, being removed and removed.
    pub released: Vec<Released>,
    /// What is wrong with the history as a whole.
    pub flaws: Vec<Flaw>,
    /// Keys that signed manifests here and are not trusted, as `restore.trusted_signers` takes
    /// them. Whoever writes to the vault can bring in any.
    pub strangers: BTreeSet<String>,
    /// Highest revision and newest manifest known, from the vault and the appliance together.
    pub ledger: Ledger,
    /// Revisions that restores bumped to, as far as the vault was told.
    pub bumps: Vec<i64>,
    /// The newest generation taken, and by whom.
    pub claim: claim::Newest,
    /// Parts of no backup: left by a run that did not come to its end.
    pub orphans: Vec<Listed>,
    /// Times up to this place were found right by an operator.
    pub confirmed: Option<Sequence>,
    pub(crate) chain: Chain,
    /// The last step of backups that were brought back.
    pub(crate) returned: BTreeMap<SnapshotId, Release>,
}

impl Catalog {
    /// Reads a cluster's catalog. `local` is the appliance's own ledger, which an attacker who
    /// rolls the vault back cannot reach.
    pub async fn load<Mode: Sync>(
        vault: &Vault<Mode>,
        cluster: &ClusterName,
        trust: &Trust,
        local: Option<&Ledger>,
    ) -> Result<Self> {
        let mut reading = Reading::default();
        reading.flaws.extend(vault.doubt().cloned());
        // Others write and prune meanwhile. A manifest is stored before the ledger knows of it, and
        // a release before anything is removed: read the other way round, nothing is missed.
        let in_vault = ledger::read_vault(vault, cluster, trust).await?;
        let (mut ledger, bumps) = (in_vault.ledger, in_vault.bumps);
        reading.flaws.extend(in_vault.flaws);
        if let Some(local) = local {
            ledger.merge(local);
        }
        reading.read_manifests(vault, cluster, trust).await?;
        let proofs: Vec<Signed<Proof>> = reading
            .records(vault, (cluster, Folder::Proofs), trust, PROOF_BYTES_MAX)
            .await?;
        let pins: Vec<Signed<Pin>> = reading
            .records(vault, (cluster, Folder::Pins), trust, PIN_BYTES_MAX)
            .await?;
        let confirmations: Vec<Signed<Confirmation>> = reading
            .records(
                vault,
                (cluster, Folder::Confirmations),
                trust,
                CONFIRMATION_BYTES_MAX,
            )
            .await?;
        let parts = reading.list(vault, &Folder::Parts.of(cluster)).await?;
        let uses = reading.list(vault, &Folder::Uses.of(cluster)).await?;
        let locks = reading.read_locks(vault, cluster).await?;
        let releases = reading.read_releases(vault, cluster, trust).await?;
        let (claim, refused) = claim::newest(vault, cluster, trust).await?;
        reading.flaws.extend(refused);
        Ok(reading.conclude(
            cluster,
            releases,
            Beside {
                proofs,
                pins,
                parts,
                uses,
                ledger,
                bumps,
                claim,
                confirmations,
                locks,
            },
        ))
    }

    /// The backup with this id. One in the trash is not among them.
    pub fn get(&self, id: SnapshotId) -> Result<&Backup> {
        self.backups
            .iter()
            .find(|backup| backup.id() == id)
            .ok_or_else(|| self.no_backup(id))
    }

    /// The newest backup.
    pub fn newest(&self) -> Option<&Backup> {
        self.backups.last()
    }

    /// The newest generation, of a backup or of a claim.
    pub fn newest_generation(&self) -> Option<Generation> {
        let of_backup = self.newest().map(|backup| backup.manifest.generation);
        of_backup.max(self.claim.as_ref().map(|(claim, _)| claim.generation))
    }

    /// What decisions need to know about every backup at `now`.
    pub fn facts(&self, now: DateTime<Utc>) -> Vec<BackupFact> {
        self.backups.iter().map(|backup| backup.fact(now)).collect()
    }

    /// The highest revision known to have been seen, backups included.
    pub fn highest_revision(&self) -> i64 {
        let in_backups = self
            .backups
            .iter()
            .map(|backup| backup.manifest.content.revision)
            .max();
        self.ledger.highest.max(in_backups.unwrap_or(0))
    }
}

struct Beside {
    proofs: Vec<Signed<Proof>>,
    pins: Vec<Signed<Pin>>,
    parts: Vec<Listed>,
    uses: Vec<Listed>,
    ledger: Ledger,
    bumps: Vec<i64>,
    claim: claim::Newest,
    confirmations: Vec<Signed<Confirmation>>,
    locks: BTreeMap<Sequence, DateTime<Utc>>,
}

#[derive(Default)]
struct Reading {
    manifests: Vec<(Signed<Manifest>, DateTime<Utc>)>,
    places: BTreeMap<Sequence, Place>,
    flaws: Vec<Flaw>,
    strangers: BTreeSet<String>,
}

impl Reading {
    /// What is in a folder; names that cannot be an object's are flaws.
    async fn list<Mode: Sync>(
        &mut self,
        vault: &Vault<Mode>,
        folder: &ObjectName,
    ) -> Result<Vec<Listed>> {
        let listing = vault.list_with_odd(folder).await?;
        self.flaws.extend(listing.odd);
        Ok(listing.objects)
    }

    async fn read_manifests<Mode: Sync>(
        &mut self,
        vault: &Vault<Mode>,
        cluster: &ClusterName,
        trust: &Trust,
    ) -> Result<()> {
        let listed = self.list(vault, &Folder::Manifests.of(cluster)).await?;
        let objects = fetch(vault, listed, MANIFEST_BYTES_MAX).await?;
        for (entry, bytes) in objects {
            let Some(sequence) = layout::manifest_sequence(&entry.name) else {
                self.flaws.push(Flaw::new(
                    FlawKind::RecordRefused,
                    &entry.name,
                    "not a manifest's name",
                ));
                continue;
            };
            let read = bytes.and_then(|bytes| Manifest::decode(entry.name.as_str(), &bytes, trust));
            if let Err(Error::Stranger { key, .. }) = &read {
                self.strangers.insert(key.clone());
            }
            match place(cluster, sequence, &entry.name, read) {
                Ok(signed) => {
                    let own = signed.record.link(signed.digest);
                    let predecessor = signed.record.predecessor.clone();
                    self.places
                        .insert(sequence, Place::Sound { own, predecessor });
                    self.manifests.push((signed, entry.modified));
                }
                Err(flaw) => {
                    self.places.insert(sequence, Place::Unsound);
                    self.flaws.push(flaw);
                }
            }
        }
        Ok(())
    }

    /// Locks of manifests, which say how long the rest of their backup is locked too.
    async fn read_locks<Mode: Sync>(
        &self,
        vault: &Vault<Mode>,
        cluster: &ClusterName,
    ) -> Result<BTreeMap<Sequence, DateTime<Utc>>> {
        let mut locks = BTreeMap::new();
        if vault.object_lock().is_none() {
            return Ok(locks);
        }
        for (signed, _) in &self.manifests {
            let sequence = signed.record.sequence;
            let name = layout::manifest(cluster, sequence);
            match vault.locked_until(&name).await {
                Ok(until) => locks.extend(until.map(|until| (sequence, until))),
                // Removed since it was listed.
                Err(Error::Vault { source, .. })
                    if matches!(*source, object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(locks)
    }

    async fn read_releases<Mode: Sync>(
        &mut self,
        vault: &Vault<Mode>,
        cluster: &ClusterName,
        trust: &Trust,
    ) -> Result<Vec<Released>> {
        let releases = (cluster, Folder::Releases);
        let signed: Vec<(Signed<Release>, Listed)> = self
            .listed_records(vault, releases, trust, RELEASE_BYTES_MAX)
            .await?;
        let mut mine = Vec::new();
        for (Signed { record, .. }, listed) in signed {
            if record.cluster != *cluster {
                let detail = format!("of cluster {}", record.cluster);
                let flaw = Flaw::new(FlawKind::WrongCluster, &listed.name, detail);
                self.flaws.push(flaw);
                continue;
            }
            mine.push(Released {
                release: record,
                stored: listed.modified,
                is_present: false,
            });
        }
        Ok(release::last_steps(mine))
    }

    /// Signed records of a folder; those that cannot be believed are named and left out.
    async fn records<T: Record, Mode: Sync>(
        &mut self,
        vault: &Vault<Mode>,
        (cluster, folder): (&ClusterName, Folder),
        trust: &Trust,
        limit: u64,
    ) -> Result<Vec<Signed<T>>> {
        let records = self
            .listed_records(vault, (cluster, folder), trust, limit)
            .await?;
        Ok(records.into_iter().map(|(record, _)| record).collect())
    }

    /// The same, with what the listing says of each.
    async fn listed_records<T: Record, Mode: Sync>(
        &mut self,
        vault: &Vault<Mode>,
        (cluster, folder): (&ClusterName, Folder),
        trust: &Trust,
        limit: u64,
    ) -> Result<Vec<(Signed<T>, Listed)>> {
        let listed = self.list(vault, &folder.of(cluster)).await?;
        let mut records = Vec::new();
        for (entry, bytes) in fetch(vault, listed, limit).await? {
            let read = bytes.and_then(|bytes| sign::open::<T>(entry.name.as_str(), &bytes, trust));
            match read {
                Ok(signed) => records.push((signed, entry)),
                // Without a proof less is proven, which is all that it can do. A pin or a release
                // that does not count changes what goes.
                Err(error @ Error::Stranger { .. }) if folder == Folder::Proofs => {
                    self.flaws
                        .push(Flaw::new(FlawKind::RecordStranger, &entry.name, error));
                }
                Err(error) => {
                    self.flaws
                        .push(Flaw::new(FlawKind::RecordRefused, &entry.name, error));
                }
            }
        }
        Ok(records)
    }

    fn conclude(self, cluster: &ClusterName, steps: Vec<Released>, beside: Beside) -> Catalog {
        let Self {
            mut manifests,
            places,
            mut flaws,
            strangers,
        } = self;
        manifests.sort_by_key(|(signed, _)| signed.record.sequence);
        let (mut released, returned): (Vec<Released>, Vec<Released>) =
            steps.into_iter().partition(|one| one.release.is_gone());
        let returned = returned.into_iter().map(|one| one.release);
        let returned = returned.map(|one| (one.link.id, one)).collect();
        let released_links: BTreeMap<Sequence, Link> = released
            .iter()
            .map(|one| (one.release.link.sequence, one.release.link.clone()))
            .collect();
        let chain = Chain {
            places,
            released: released_links,
            head: beside.ledger.head.clone(),
        };
        flaws.extend(chain.flaws(cluster));
        for one in &mut released {
            one.is_present = chain.places.contains_key(&one.release.link.sequence);
        }
        let gone: BTreeMap<SnapshotId, &Released> = released
            .iter()
            .map(|one| (one.release.link.id, one))
            .collect();
        flaws.extend(put_back(cluster, &manifests, &gone));
        // Bytes of a backup that was let go stay for a while: they are not nobody's.
        let named: BTreeSet<String> = manifests
            .iter()
            .map(|(signed, _)| signed.record.id.to_string())
            .collect();
        let (mut backups, mut trash) = (Vec::new(), Vec::new());
        for backup in whole(cluster, manifests, &beside) {
            match gone.get(&backup.id()) {
                None => backups.push(backup),
                Some(one) if one.release.is_trashed() => trash.push(Trashed {
                    backup,
                    release: one.release.clone(),
                    stored: one.stored,
                }),
                Some(_) => {}
            }
        }
        let orphans = beside
            .parts
            .iter()
            .filter(|part| !named.contains(part.name.folder_name()))
            .cloned()
            .collect();
        let confirmed = confirmed(cluster, &beside.confirmations);
        let cluster = cluster.clone();
        Catalog {
            cluster,
            backups,
            trash,
            released,
            flaws,
            strangers,
            ledger: beside.ledger,
            bumps: beside.bumps,
            claim: beside.claim,
            orphans,
            confirmed,
            chain,
            returned,
        }
    }
}

/// The highest place whose time an operator vouches for.
fn confirmed(cluster: &ClusterName, words: &[Signed<Confirmation>]) -> Option<Sequence> {
    let words = words.iter().map(|word| &word.record);
    let own = words.filter(|word| word.cluster == *cluster);
    own.map(|word| word.sequence).max()
}

/// A manifest stored after its backup was let go. One that is still there is removed in its time.
fn put_back(
    cluster: &ClusterName,
    manifests: &[(Signed<Manifest>, DateTime<Utc>)],
    gone: &BTreeMap<SnapshotId, &Released>,
) -> Vec<Flaw> {
    let is_put_back = |(signed, stored): &&(Signed<Manifest>, DateTime<Utc>)| {
        gone.get(&signed.record.id)
            .is_some_and(|one| *stored > one.stored)
    };
    let flaw = |(signed, _): &(Signed<Manifest>, DateTime<Utc>)| {
        let object = layout::manifest(cluster, signed.record.sequence);
        let detail = "stored after it was let go";
        Flaw::new(FlawKind::ReleasedPresent, object, detail)
    };
    manifests.iter().filter(is_put_back).map(flaw).collect()
}

/// Manifests with what belongs to them.
fn whole(
    cluster: &ClusterName,
    manifests: Vec<(Signed<Manifest>, DateTime<Utc>)>,
    beside: &Beside,
) -> Vec<Backup> {
    let mut proofs: BTreeMap<Digest, Vec<Proof>> = BTreeMap::new();
    for proof in beside.proofs.iter().map(|proof| &proof.record) {
        if proof.cluster == *cluster {
            proofs
                .entry(proof.manifest)
                .or_default()
                .push(proof.clone());
        }
    }
    let sizes: BTreeMap<&ObjectName, u64> = beside
        .parts
        .iter()
        .map(|part| (&part.name, part.bytes))
        .collect();
    let pinned = pinned(cluster, &beside.pins);
    let uses_of = |id: SnapshotId| {
        let folder = id.to_string();
        let is_of = |mark: &&Listed| mark.name.folder_name() == folder;
        beside.uses.iter().filter(is_of).cloned().collect()
    };
    let belongings = |(signed, observed): (Signed<Manifest>, DateTime<Utc>)| {
        let mut proofs = proofs.remove(&signed.digest).unwrap_or_default();
        proofs.sort_by_key(|proof| proof.at);
        Backup {
            link: signed.record.link(signed.digest),
            by: signed.by,
            flaws: absent_parts(&signed.record, &sizes),
            is_pinned: pinned.contains(&signed.record.id),
            locked_until: beside.locks.get(&signed.record.sequence).copied(),
            uses: uses_of(signed.record.id),
            manifest: signed.record,
            observed,
            proofs,
        }
    };
    manifests.into_iter().map(belongings).collect()
}

/// A decoded manifest belongs to the place it was found at, or the flaw says what it is.
fn place(
    cluster: &ClusterName,
    sequence: Sequence,
    name: &ObjectName,
    read: Result<Signed<Manifest>>,
) -> std::result::Result<Signed<Manifest>, Flaw> {
    match read {
        Ok(signed) if signed.record.cluster != *cluster => Err(Flaw::new(
            FlawKind::WrongCluster,
            name,
            format!("the manifest is of cluster {}", signed.record.cluster),
        )),
        Ok(signed) if signed.record.sequence != sequence => Err(Flaw::new(
            FlawKind::ManifestReplaced,
            name,
            format!("holds the manifest of place {}", signed.record.sequence),
        )),
        Ok(signed) => Ok(signed),
        Err(error @ Error::Stranger { .. }) => {
            Err(Flaw::new(FlawKind::ManifestStranger, name, error))
        }
        Err(error) => Err(Flaw::new(FlawKind::ManifestEdited, name, error)),
    }
}
