//! What a copy lacks, in the order in which it must come. Pure.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_policies::SnapshotId;

use super::inventory::{Inventory, Kind, kind_of};
use super::run::Refused;
use crate::part::PartRecord;
use crate::vault::{Backup, Catalog, ObjectName, layout};

/// What is to be copied.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    /// Releases of backups that the copy does not hold: they explain gaps in its chain.
    pub(super) explained: Vec<ObjectName>,
    /// Backups, oldest first.
    pub(super) backups: Vec<Lacking<'a>>,
    /// Changes between backups, in their order.
    pub(super) deltas: Vec<ObjectName>,
    /// Signed records.
    pub(super) records: Vec<ObjectName>,
    /// Releases of backups that the copy holds, after everything else.
    pub(super) released: Vec<ObjectName>,
    /// What stands in the copy with another size, and is not written over.
    pub(super) refused: Vec<Refused>,
}

/// What a backup lacks in the copy.
#[derive(Debug)]
pub(super) struct Lacking<'a> {
    pub(super) backup: &'a Backup,
    /// Its parts with what its manifest says of them.
    pub(super) parts: Vec<(ObjectName, &'a PartRecord)>,
    pub(super) envelopes: Vec<ObjectName>,
    /// Its manifest, unless that is there already.
    pub(super) manifest: Option<ObjectName>,
}

impl<'a> Plan<'a> {
    /// Compares what is `first` and `here`; `catalog` is what in the first can be believed.
    pub(super) fn make(catalog: &'a Catalog, first: &Inventory, here: &Inventory) -> Self {
        let mut plan = Self::default();
        let envelopes = envelopes(first);
        // What is in the trash is whole, and may be brought back.
        let trashed = catalog.trash.iter().map(|one| &one.backup);
        for backup in catalog.backups.iter().chain(trashed) {
            let belonging = envelopes.get(&backup.id()).map_or(&[][..], Vec::as_slice);
            plan.add_backup(backup, belonging, here);
        }
        let held: BTreeSet<SnapshotId> = catalog
            .released
            .iter()
            .filter(|one| {
                let sequence = one.release.link.sequence;
                let manifest = layout::manifest(&catalog.cluster, sequence);
                here.objects.contains_key(&manifest)
            })
            .map(|one| one.release.link.id)
            .chain(catalog.trash.iter().map(|one| one.backup.id()))
            .chain(catalog.returned.keys().copied())
            .collect();
        let believed: BTreeSet<SnapshotId> = catalog
            .released
            .iter()
            .map(|one| one.release.link.id)
            .collect();
        for (name, (bytes, _)) in &first.objects {
            let list = match kind_of(name) {
                Kind::Release(id) if held.contains(&id) => &mut plan.released,
                Kind::Release(id) if believed.contains(&id) => &mut plan.explained,
                Kind::Delta => &mut plan.deltas,
                Kind::Record(_) | Kind::DeltaRelease => &mut plan.records,
                _ => continue,
            };
            match here.bytes_of(name) {
                None => list.push(name.clone()),
                Some(found) if found == *bytes => {}
                Some(found) => plan.refused.push(Refused::size(name, found, *bytes)),
            }
        }
        plan
    }

    fn add_backup(&mut self, backup: &'a Backup, envelopes: &[ObjectName], here: &Inventory) {
        let manifest = &backup.manifest;
        let name = layout::manifest(&manifest.cluster, manifest.sequence);
        let mut lacking = Lacking {
            backup,
            parts: Vec::new(),
            envelopes: envelopes
                .iter()
                .filter(|name| !here.objects.contains_key(*name))
                .cloned()
                .collect(),
            manifest: (!here.objects.contains_key(&name)).then_some(name),
        };
        for (index, part) in manifest.parts.iter().enumerate() {
            let name = layout::part(&manifest.cluster, manifest.id, index);
            match here.bytes_of(&name) {
                None => lacking.parts.push((name, part)),
                Some(found) if found == part.stored_bytes => {}
                Some(found) => self
                    .refused
                    .push(Refused::size(&name, found, part.stored_bytes)),
            }
        }
        if !lacking.is_nothing() {
            self.backups.push(lacking);
        }
    }
}

impl Lacking<'_> {
    fn is_nothing(&self) -> bool {
        self.parts.is_empty() && self.envelopes.is_empty() && self.manifest.is_none()
    }
}

fn envelopes(first: &Inventory) -> BTreeMap<SnapshotId, Vec<ObjectName>> {
    let mut all: BTreeMap<SnapshotId, Vec<ObjectName>> = BTreeMap::new();
    for name in first.objects.keys() {
        if let Kind::Envelope(id) = kind_of(name) {
            all.entry(id).or_default().push(name.clone());
        }
    }
    all
}
