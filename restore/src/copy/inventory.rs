//! What a vault holds of a cluster, by name and size, and what each name stands for.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, SnapshotId};

use crate::error::Result;
use crate::vault::{Folder, ObjectName, Vault, layout};

/// Every object of one cluster in one vault.
#[derive(Debug, Clone, Default)]
pub(super) struct Inventory {
    /// Size in bytes of each, and when it was stored by the vault's clock.
    pub(super) objects: BTreeMap<ObjectName, (u64, DateTime<Utc>)>,
}

/// What an object is to a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A commit record.
    Manifest,
    /// A part of this backup.
    Part(SnapshotId),
    /// A further envelope of this backup.
    Envelope(SnapshotId),
    /// Says that this backup was let go.
    Release(SnapshotId),
    /// Changes between backups.
    Delta,
    /// A signed record, of this backup or of the whole history.
    Record(Option<SnapshotId>),
    /// Says that deltas were let go.
    DeltaRelease,
    /// Of one vault only: marks of readers, and what no version known here writes.
    Own,
}

impl Inventory {
    pub(super) async fn read<Mode: Sync>(
        vault: &Vault<Mode>,
        cluster: &ClusterName,
    ) -> Result<Self> {
        let listed = vault.list(&layout::cluster_folder(cluster)).await?;
        let objects = listed.into_iter();
        let objects = objects.map(|one| (one.name, (one.bytes, one.modified)));
        Ok(Self {
            objects: objects.collect(),
        })
    }

    pub(super) fn bytes_of(&self, name: &ObjectName) -> Option<u64> {
        self.objects.get(name).map(|(bytes, _)| *bytes)
    }

    pub(super) fn names_of(&self, kind: Kind) -> impl Iterator<Item = &ObjectName> {
        let names = self.objects.keys();
        names.filter(move |name| kind_of(name) == kind)
    }
}

/// What a name stands for.
pub(super) fn kind_of(name: &ObjectName) -> Kind {
    let mut segments = name.as_str().split('/').skip(2);
    let (folder, next) = (segments.next().unwrap_or_default(), segments.next());
    let id = || next.and_then(|text| text.parse::<SnapshotId>().ok());
    // `ID.json`, then `ID.NUMBER.json`.
    let released = || {
        let stem = next?.strip_suffix(".json")?;
        let id = stem.split_once('.').map_or(stem, |(id, _)| id);
        id.parse::<SnapshotId>().ok()
    };
    match Folder::named(folder) {
        Some(Folder::Manifests) => Kind::Manifest,
        Some(Folder::Parts) => id().map_or(Kind::Own, Kind::Part),
        Some(Folder::Envelopes) => id().map_or(Kind::Own, Kind::Envelope),
        Some(Folder::Releases) => released().map_or(Kind::Own, Kind::Release),
        Some(Folder::Deltas) if layout::is_delta_release(name) => Kind::DeltaRelease,
        Some(Folder::Deltas) => Kind::Delta,
        Some(Folder::Uses) | None => Kind::Own,
        Some(Folder::Proofs | Folder::Pins) => Kind::Record(id()),
        Some(Folder::Ledger | Folder::Drills | Folder::Claims | Folder::Confirmations) => {
            Kind::Record(None)
        }
    }
}
