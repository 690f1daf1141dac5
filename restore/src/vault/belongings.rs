//! What belongs to the manifests of a catalog: their parts, their pins, the bytes of their records.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use holdfast_policies::{ClusterName, SnapshotId};

use super::layout::{self, ObjectName};
use super::{Listed, Vault};
use crate::error::{Error, Result};
use crate::flaw::{Flaw, FlawKind};
use crate::manifest::Manifest;
use crate::pin::Pin;
use crate::sign::Signed;

/// Objects read at once.
const READS_MAX: usize = 16;

/// Parts that are not there, or of another size.
pub(super) fn absent_parts(manifest: &Manifest, sizes: &BTreeMap<&ObjectName, u64>) -> Vec<Flaw> {
    let check = |(index, part): (usize, &crate::part::PartRecord)| {
        let name = layout::part(&manifest.cluster, manifest.id, index);
        match sizes.get(&name) {
            None => Some(Flaw::new(FlawKind::PartMissing, name, "not in the vault")),
            Some(bytes) if *bytes != part.stored_bytes => {
                let detail = format!("{bytes} bytes, expected {}", part.stored_bytes);
                Some(Flaw::new(FlawKind::PartSize, name, detail))
            }
            Some(_) => None,
        }
    };
    manifest
        .parts
        .iter()
        .enumerate()
        .filter_map(check)
        .collect()
}

/// The last pin record of each backup decides.
pub(super) fn pinned(cluster: &ClusterName, pins: &[Signed<Pin>]) -> BTreeSet<SnapshotId> {
    let mut last: BTreeMap<SnapshotId, &Pin> = BTreeMap::new();
    for pin in pins
        .iter()
        .map(|pin| &pin.record)
        .filter(|pin| pin.cluster == *cluster)
    {
        let newer = last
            .get(&pin.id)
            .is_none_or(|other| pin.number > other.number);
        if newer {
            last.insert(pin.id, pin);
        }
    }
    last.into_iter()
        .filter(|(_, pin)| pin.is_pinned)
        .map(|(id, _)| id)
        .collect()
}

/// Reads all that is listed. What was removed since is not there, and what no object of its kind
/// can be is an error of its own: it says nothing of the others.
pub(super) async fn fetch<Mode: Sync>(
    vault: &Vault<Mode>,
    listed: Vec<Listed>,
    limit: u64,
) -> Result<Vec<(Listed, Result<bytes::Bytes>)>> {
    let read = |entry: Listed| {
        async move {
            match vault.get(&entry.name, limit).await {
                Ok(bytes) => Ok(Some((entry, Ok(bytes)))),
                Err(error @ Error::TooLarge { .. }) => Ok(Some((entry, Err(error)))),
                Err(Error::ObjectMissing { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        }
        .boxed()
    };
    let reads: Vec<BoxFuture<'_, _>> = listed.into_iter().map(read).collect();
    futures::stream::iter(reads)
        .buffered(READS_MAX)
        .try_filter_map(|read| std::future::ready(Ok(read)))
        .try_collect()
        .await
}
