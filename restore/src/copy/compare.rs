//! Whether two vaults hold the same backups of a cluster, byte by byte, and what is missing where.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use holdfast_policies::{ClusterName, Generation, Sequence, SnapshotId};
use serde::{Deserialize, Serialize};

use super::inventory::{Inventory, Kind, kind_of};
use crate::delta::DELTA_BYTES_MAX;
use crate::delta::release::{DeltaRelease, RELEASE_BYTES_MAX};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::key::Trust;
use crate::progress::{Phase, Progress, ProgressFn};
use crate::sign;
use crate::vault::{Catalog, ObjectName, Vault, layout};

/// Objects compared at once. Each is held in memory whole.
const IN_FLIGHT: usize = 3;

/// Largest object compared, in bytes: no kind has larger ones.
const OBJECT_BYTES_MAX: u64 = DELTA_BYTES_MAX;

/// What a comparison found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Objects that both hold alike.
    pub same: u64,
    /// Their bytes, on one side.
    pub bytes: u64,
    /// Objects of backups that were let go, which need not be on both sides.
    pub let_go: u64,
    /// Objects of one side alone by their nature: marks of readers, parts of no backup, proofs made
    /// at the copy.
    pub own: u64,
    /// Everything else.
    pub differences: Vec<Difference>,
}

/// An object that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its name.
    pub object: String,
    /// In what it differs.
    pub kind: DifferenceKind,
    /// What was found.
    pub detail: String,
}

/// In what an object differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DifferenceKind {
    /// Not in the first vault.
    MissingInFirst,
    /// Not in the second.
    MissingInSecond,
    /// Other bytes, and nothing says which are right.
    Different,
    /// The first has bytes that a signed manifest contradicts.
    DamagedInFirst,
    /// The second has.
    DamagedInSecond,
    /// Both have.
    DamagedInBoth,
}

impl DifferenceKind {
    /// In words, with the names of the two vaults.
    pub fn words(self, first: &str, second: &str) -> String {
        match self {
            Self::MissingInFirst => format!("MISSING in {first}"),
            Self::MissingInSecond => format!("MISSING in {second}"),
            Self::Different => "DIFFERENT".to_owned(),
            Self::DamagedInFirst => format!("DAMAGED in {first}"),
            Self::DamagedInSecond => format!("DAMAGED in {second}"),
            Self::DamagedInBoth => "DAMAGED in both".to_owned(),
        }
    }

    /// Whether bytes are wrong, rather than not there.
    pub const fn is_damage(self) -> bool {
        !matches!(self, Self::MissingInFirst | Self::MissingInSecond)
    }
}

/// How two vaults are compared.
#[derive(Debug, Clone, Copy)]
pub struct CompareOptions {
    /// Read every byte on both sides. Otherwise names and sizes.
    pub reads_bytes: bool,
}

/// What may be missing on one side, and what digests are known.
#[derive(Default)]
struct Known {
    released: BTreeSet<SnapshotId>,
    released_places: BTreeSet<Sequence>,
    released_deltas: BTreeMap<Generation, u64>,
    digests: BTreeMap<ObjectName, (u64, Digest)>,
}

/// Compares what two vaults hold of a cluster. A listing that is not complete is an error.
pub async fn compare<A: Sync, B: Sync>(
    (first, second): (&Vault<A>, &Vault<B>),
    cluster: &ClusterName,
    trust: &Trust,
    options: CompareOptions,
    progress: ProgressFn<'_>,
) -> Result<Compared> {
    let mut known = Known::default();
    known.add(&Catalog::load(first, cluster, trust, None).await?);
    known.add(&Catalog::load(second, cluster, trust, None).await?);
    let there = Inventory::read(first, cluster).await?;
    let here = Inventory::read(second, cluster).await?;
    known.add_deltas(first, &there, trust).await?;
    known.add_deltas(second, &here, trust).await?;
    let mut compared = Compared::default();
    let names: BTreeSet<&ObjectName> = there.objects.keys().chain(here.objects.keys()).collect();
    let mut both = Vec::new();
    for name in names {
        match (there.bytes_of(name), here.bytes_of(name)) {
            (Some(one), Some(other)) if kind_of(name) != Kind::Own => {
                both.push((name, one, other));
            }
            (in_first, _) => compared.one_sided(name, in_first.is_some(), &known),
        }
    }
    let total = both.iter().map(|(_, one, _)| *one).sum();
    let look = |(name, one, other): (&ObjectName, u64, u64)| {
        let (name, known) = (name.clone(), &known);
        async move {
            let found = if one == other && options.reads_bytes {
                read_both((first, second), &name, one, known).await?
            } else {
                sizes(&name, (one, other), known)
            };
            Ok::<_, Error>((one, found))
        }
        .boxed()
    };
    let looks: Vec<BoxFuture<'_, _>> = both.into_iter().map(look).collect();
    let mut looks = futures::stream::iter(looks).buffered(IN_FLIGHT);
    let mut done = 0_u64;
    while let Some((bytes, found)) = looks.try_next().await? {
        done = done.saturating_add(bytes);
        if found.is_none() {
            compared.same = compared.same.saturating_add(1);
            compared.bytes = compared.bytes.saturating_add(bytes);
        }
        compared.differences.extend(found);
        progress(Progress {
            phase: Phase::Comparing,
            done,
            total: Some(total),
        });
    }
    let named = |one: &Difference| one.object.clone();
    compared.differences.sort_by_key(named);
    Ok(compared)
}

impl Known {
    fn add(&mut self, catalog: &Catalog) {
        for one in &catalog.released {
            self.released.insert(one.release.link.id);
            self.released_places.insert(one.release.link.sequence);
        }
        for backup in &catalog.backups {
            let manifest = &backup.manifest;
            for (index, part) in manifest.parts.iter().enumerate() {
                let name = layout::part(&manifest.cluster, manifest.id, index);
                let known = (part.stored_bytes, part.stored_digest);
                self.digests.insert(name, known);
            }
        }
    }

    /// Releases of deltas, as far as a trusted key signed them.
    async fn add_deltas<Mode>(
        &mut self,
        vault: &Vault<Mode>,
        inventory: &Inventory,
        trust: &Trust,
    ) -> Result<()> {
        for name in inventory.names_of(Kind::DeltaRelease) {
            let bytes = match vault.get(name, RELEASE_BYTES_MAX).await {
                Ok(bytes) => bytes,
                Err(Error::ObjectMissing { .. } | Error::TooLarge { .. }) => continue,
                Err(error) => return Err(error),
            };
            if let Ok(signed) = sign::open::<DeltaRelease>(name.as_str(), &bytes, trust) {
                let (generation, through) = (signed.record.generation, signed.record.through);
                let known = self.released_deltas.entry(generation).or_default();
                *known = through.max(*known);
            }
        }
        Ok(())
    }

    /// Whether an object belongs to something that was let go.
    fn is_let_go(&self, name: &ObjectName) -> bool {
        match kind_of(name) {
            Kind::Part(id) | Kind::Envelope(id) | Kind::Record(Some(id)) => {
                self.released.contains(&id)
            }
            Kind::Manifest => layout::manifest_sequence(name)
                .is_some_and(|place| self.released_places.contains(&place)),
            Kind::Delta => layout::delta_place(name).is_some_and(|(generation, number)| {
                let through = self.released_deltas.get(&generation);
                through.is_some_and(|through| number <= *through)
            }),
            Kind::Release(_) | Kind::Record(None) | Kind::DeltaRelease | Kind::Own => false,
        }
    }
}

impl Compared {
    fn one_sided(&mut self, name: &ObjectName, is_in_first: bool, known: &Known) {
        let is_own = match kind_of(name) {
            Kind::Own => true,
            // Of no backup.
            Kind::Part(_) => !known.digests.contains_key(name),
            // The first prunes old ones and the copy keeps them; drills and proofs may be made
            // from the copy.
            Kind::Record(_) | Kind::DeltaRelease => !is_in_first,
            Kind::Manifest | Kind::Envelope(_) | Kind::Release(_) | Kind::Delta => false,
        };
        if known.is_let_go(name) {
            self.let_go = self.let_go.saturating_add(1);
        } else if is_own {
            self.own = self.own.saturating_add(1);
        } else {
            let kind = if is_in_first {
                DifferenceKind::MissingInSecond
            } else {
                DifferenceKind::MissingInFirst
            };
            self.differences.push(Difference {
                object: name.to_string(),
                kind,
                detail: "not there".to_owned(),
            });
        }
    }
}

/// Which side is damaged, where a manifest says what is right.
const fn blame(is_first_right: bool, is_second_right: bool) -> Option<DifferenceKind> {
    match (is_first_right, is_second_right) {
        (true, true) => None,
        (true, false) => Some(DifferenceKind::DamagedInSecond),
        (false, true) => Some(DifferenceKind::DamagedInFirst),
        (false, false) => Some(DifferenceKind::DamagedInBoth),
    }
}

fn sizes(name: &ObjectName, (one, other): (u64, u64), known: &Known) -> Option<Difference> {
    let kind = match known.digests.get(name) {
        Some((bytes, _)) => blame(one == *bytes, other == *bytes)?,
        None if one == other => return None,
        None => DifferenceKind::Different,
    };
    Some(Difference {
        object: name.to_string(),
        kind,
        detail: format!("{one} and {other} bytes"),
    })
}

async fn read_both<A, B>(
    (first, second): (&Vault<A>, &Vault<B>),
    name: &ObjectName,
    bytes: u64,
    known: &Known,
) -> Result<Option<Difference>> {
    let difference = |kind, detail: String| {
        Ok(Some(Difference {
            object: name.to_string(),
            kind,
            detail,
        }))
    };
    if bytes > OBJECT_BYTES_MAX {
        let detail = format!("{bytes} bytes: no object of a vault is as large");
        return difference(DifferenceKind::Different, detail);
    }
    let Some(one) = digest_of(first, name, bytes).await? else {
        return difference(DifferenceKind::MissingInFirst, "went away".to_owned());
    };
    let Some(other) = digest_of(second, name, bytes).await? else {
        return difference(DifferenceKind::MissingInSecond, "went away".to_owned());
    };
    let kind = match known.digests.get(name) {
        Some((_, digest)) => blame(one == *digest, other == *digest),
        None => (one != other).then_some(DifferenceKind::Different),
    };
    match kind {
        None => Ok(None),
        Some(kind) => difference(
            kind,
            format!("digests {} and {}", one.short(), other.short()),
        ),
    }
}

async fn digest_of<Mode>(
    vault: &Vault<Mode>,
    name: &ObjectName,
    bytes: u64,
) -> Result<Option<Digest>> {
    match vault.get(name, bytes).await {
        Ok(read) => {
            let digest = tokio::task::spawn_blocking(move || Digest::of(&read));
            Ok(Some(digest.await?))
        }
        Err(Error::ObjectMissing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
