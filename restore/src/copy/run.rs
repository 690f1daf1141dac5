//! Making a copy: what the plan says, checked on the way.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use holdfast_policies::{ClusterName, SnapshotId};
use serde::Serialize;

use super::inventory::Inventory;
use super::plan::{Lacking, Plan};
use crate::delta::{DELTA_BYTES_MAX, Head};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::key::Trust;
use crate::manifest::MANIFEST_BYTES_MAX;
use crate::part::{self, PartRecord};
use crate::progress::{Phase, Progress, ProgressFn};
use crate::sign;
use crate::vault::{Backup, Catalog, ObjectName, ReadWrite, Vault, layout};

/// Objects on their way at once. Each is held in memory whole.
const IN_FLIGHT: usize = 3;

/// Largest record copied, in bytes.
const RECORD_BYTES_MAX: u64 = 16 << 20;

/// Largest envelope copied, in bytes.
const ENVELOPE_BYTES_MAX: u64 = 1 << 20;

/// What a copy came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// Backups that are in the copy now and were not.
    pub backups: Vec<SnapshotId>,
    /// Deltas that were copied.
    pub deltas: u64,
    /// Objects that were copied, all kinds together.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What belongs into the copy and was not copied, and why. Everything else was.
    pub refused: Vec<Refused>,
    /// Objects of the first vault that no trusted key signed: they count for nothing and stay
    /// where they are.
    pub left_out: Vec<Refused>,
}

/// What became of one object.
enum Outcome {
    Carried(u64),
    Refused(Refused),
    LeftOut(Refused),
}

/// An object that was not copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Its name.
    pub object: String,
    /// Why not.
    pub reason: String,
}

impl Refused {
    fn new(object: &ObjectName, reason: &Error) -> Self {
        Self {
            object: object.to_string(),
            reason: reason.to_string(),
        }
    }

    pub(super) fn size(object: &ObjectName, found: u64, expected: u64) -> Self {
        Self {
            object: object.to_string(),
            reason: format!("the copy has {found} bytes under this name, not {expected}"),
        }
    }
}

/// How an object is known to be what it should be.
#[derive(Debug, Clone, Copy)]
enum Proof<'a> {
    /// By its size and digest in a signed manifest.
    Part(&'a PartRecord),
    /// By the digest of a manifest already read.
    Manifest(Digest),
    /// By the signature of its record, and that record's digest of what follows.
    Delta,
    /// By its signature.
    Record,
    /// Not at all before it is opened: an envelope is bound by the recipient in the manifest.
    Opened,
}

struct Run<'a, Mode> {
    from: &'a Vault<Mode>,
    to: &'a Vault<ReadWrite>,
    trust: &'a Trust,
    progress: ProgressFn<'a>,
    total: u64,
    copied: Copied,
}

/// Copies what `to` lacks of a cluster's backups in `from`. What is damaged, or stands in the copy
/// with other content, is told and left out; a vault that fails ends the run, and the next one goes
/// on from there.
pub async fn copy_cluster<Mode: Sync>(
    from: &Vault<Mode>,
    to: &Vault<ReadWrite>,
    cluster: &ClusterName,
    trust: &Trust,
    progress: ProgressFn<'_>,
) -> Result<Copied> {
    // What is in the catalog is in the inventory, which is read after it, unless it was removed.
    let catalog = Catalog::load(from, cluster, trust, None).await?;
    let first = Inventory::read(from, cluster).await?;
    let here = Inventory::read(to, cluster).await?;
    same_history(&catalog, to, &here).await?;
    let plan = Plan::make(&catalog, &first, &here);
    let mut run = Run {
        from,
        to,
        trust,
        progress,
        total: plan.backups.iter().map(Lacking::bytes).sum(),
        copied: Copied {
            refused: plan.refused.clone(),
            ..Copied::default()
        },
    };
    run.copied.left_out.extend(doubted(&catalog));
    run.all(&plan.explained, Proof::Record).await?;
    for lacking in &plan.backups {
        run.backup(lacking).await?;
    }
    // Each is known by the one before it: they come one after the other.
    run.copied.deltas = run.all(&plan.deltas, Proof::Delta).await?;
    run.all(&plan.records, Proof::Record).await?;
    if run.copied.refused.is_empty() {
        run.all(&plan.released, Proof::Record).await?;
    }
    Ok(run.copied)
}

/// Two vaults with different backups in one place of the chain are not copies of one another. It is
/// enough to look at the newest that both have: a manifest names the one before by its digest.
async fn same_history(catalog: &Catalog, to: &Vault<ReadWrite>, here: &Inventory) -> Result<()> {
    let name_of = |backup: &Backup| layout::manifest(&catalog.cluster, backup.manifest.sequence);
    let mut common = catalog.backups.iter().rev();
    let Some(backup) = common.find(|one| here.objects.contains_key(&name_of(one))) else {
        return Ok(());
    };
    let name = name_of(backup);
    match to.get(&name, MANIFEST_BYTES_MAX).await {
        Ok(bytes) if Digest::of(&bytes) == backup.link.digest => Ok(()),
        Ok(_) | Err(Error::TooLarge { .. }) => Err(Error::ObjectExists {
            object: name.to_string(),
        }),
        Err(Error::ObjectMissing { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Manifests and releases of the first vault that cannot be believed; they stay where they are.
fn doubted(catalog: &Catalog) -> impl Iterator<Item = Refused> {
    let flaws = catalog.flaws.iter().filter(|flaw| {
        let kinds = [
            crate::FlawKind::ManifestEdited,
            crate::FlawKind::ManifestStranger,
            crate::FlawKind::ManifestReplaced,
            crate::FlawKind::WrongCluster,
        ];
        kinds.contains(&flaw.kind)
    });
    flaws.map(|flaw| Refused {
        object: flaw.object.clone(),
        reason: format!("{}: {}", flaw.kind.words(), flaw.detail),
    })
}

impl Lacking<'_> {
    fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, part)| part.stored_bytes).sum()
    }
}

impl<Mode: Sync> Run<'_, Mode> {
    /// One backup: parts and envelopes, then the manifest. One that is damaged in the first vault,
    /// or was let go there meanwhile, is left out.
    async fn backup(&mut self, lacking: &Lacking<'_>) -> Result<()> {
        let refused = self.copied.refused.len();
        let parts = lacking.parts.iter();
        let parts = parts.map(|(name, part)| (name, Proof::Part(part)));
        let envelopes = lacking.envelopes.iter();
        let envelopes = envelopes.map(|name| (name, Proof::Opened));
        self.some(parts.chain(envelopes).collect()).await?;
        let Some(manifest) = &lacking.manifest else {
            return Ok(());
        };
        if self.copied.refused.len() > refused {
            return Ok(());
        }
        let digest = lacking.backup.link.digest;
        if self.some(vec![(manifest, Proof::Manifest(digest))]).await? > 0 {
            self.copied.backups.push(lacking.backup.id());
        }
        Ok(())
    }

    /// Objects that are known in one way, one after the other. Returns how many were copied.
    async fn all(&mut self, names: &[ObjectName], proof: Proof<'_>) -> Result<u64> {
        let mut count = 0_u64;
        for name in names {
            count = count.saturating_add(self.some(vec![(name, proof)]).await?);
        }
        Ok(count)
    }

    /// Several at once, in any order.
    async fn some(&mut self, objects: Vec<(&ObjectName, Proof<'_>)>) -> Result<u64> {
        let (from, to, trust) = (self.from, self.to, self.trust);
        let carry = |(name, proof): (_, _)| carry(from, to, trust, (name, proof)).boxed();
        let carried: Vec<BoxFuture<'_, Result<Outcome>>> = objects.into_iter().map(carry).collect();
        let mut carried = futures::stream::iter(carried).buffer_unordered(IN_FLIGHT);
        let mut count = 0_u64;
        while let Some(outcome) = carried.try_next().await? {
            match outcome {
                Outcome::Carried(bytes) => {
                    count = count.saturating_add(1);
                    self.copied.objects = self.copied.objects.saturating_add(1);
                    self.copied.bytes = self.copied.bytes.saturating_add(bytes);
                }
                Outcome::Refused(refused) => self.copied.refused.push(refused),
                Outcome::LeftOut(refused) => self.copied.left_out.push(refused),
            }
            (self.progress)(Progress {
                phase: Phase::Copying,
                done: self.copied.bytes,
                total: Some(self.total),
            });
        }
        Ok(count)
    }
}

/// One object: read, checked, stored, and its size looked up again.
async fn carry<Mode: Sync>(
    from: &Vault<Mode>,
    to: &Vault<ReadWrite>,
    trust: &Trust,
    (name, proof): (&ObjectName, Proof<'_>),
) -> Result<Outcome> {
    let refuse = |error: &Error| Ok(Outcome::Refused(Refused::new(name, error)));
    let bytes = match from.get(name, proof.bytes_max()).await {
        Ok(bytes) => bytes,
        // Pruned since it was listed.
        Err(error @ Error::ObjectMissing { .. }) if matches!(proof, Proof::Record) => {
            return Ok(Outcome::LeftOut(Refused::new(name, &error)));
        }
        Err(error @ (Error::ObjectMissing { .. } | Error::TooLarge { .. })) => {
            return refuse(&error);
        }
        Err(error) => return Err(error),
    };
    match proof.check(name, bytes.clone(), trust).await {
        Ok(()) => {}
        Err(error) if matches!(proof, Proof::Record) => {
            return Ok(Outcome::LeftOut(Refused::new(name, &error)));
        }
        Err(error) => return refuse(&error),
    }
    let length = part::length(&bytes);
    match to.put_new(name, bytes).await {
        Ok(()) => {}
        Err(error @ Error::ObjectExists { .. }) => return refuse(&error),
        Err(error) => return Err(error),
    }
    match to.size(name).await? {
        Some(found) if found == length => Ok(Outcome::Carried(length)),
        Some(found) => Ok(Outcome::Refused(Refused::size(name, found, length))),
        None => Err(Error::ObjectMissing {
            object: name.to_string(),
        }),
    }
}

impl Proof<'_> {
    const fn bytes_max(self) -> u64 {
        match self {
            Self::Part(record) => record.stored_bytes,
            Self::Manifest(_) => MANIFEST_BYTES_MAX,
            Self::Delta => DELTA_BYTES_MAX,
            Self::Record => RECORD_BYTES_MAX,
            Self::Opened => ENVELOPE_BYTES_MAX,
        }
    }

    /// Whether the bytes are what they should be. Digests of large ones are made elsewhere than on
    /// the threads that talk to the vaults.
    async fn check(self, name: &ObjectName, bytes: Bytes, trust: &Trust) -> Result<()> {
        let object = name.to_string();
        match self {
            Self::Part(record) => {
                let record = record.clone();
                let check = move || part::check_stored(&object, &bytes, &record);
                tokio::task::spawn_blocking(check).await?
            }
            Self::Manifest(expected) => match Digest::of(&bytes) {
                actual if actual == expected => Ok(()),
                actual => Err(Error::DigestMismatch {
                    object,
                    expected,
                    actual,
                }),
            },
            Self::Delta => {
                let trust = trust.clone();
                let place = layout::delta_place(name);
                let check = move || {
                    let head = Head::read(&object, &bytes, &trust)?;
                    if place != Some((head.record.generation, head.record.number)) {
                        return Err(Error::malformed(&object, "a delta of another place"));
                    }
                    head.check_stored(&object, &bytes)
                };
                tokio::task::spawn_blocking(check).await?
            }
            Self::Record => {
                let limit = bytes.len();
                let signed = sign::vouch(&object, &bytes, trust, limit)?;
                if signed == bytes.len() {
                    Ok(())
                } else {
                    Err(Error::malformed(&object, "more than a signed record"))
                }
            }
            Self::Opened => Ok(()),
        }
    }
}
