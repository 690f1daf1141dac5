//! How far a copy is behind the first vault, by the names in both.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::inventory::{Inventory, Kind};
use crate::error::Result;
use crate::vault::{Backup, Catalog, Vault, layout};

/// How a copy stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Backups of the first vault that the copy holds.
    pub held: usize,
    /// Backups of the first vault that the copy lacks.
    pub behind: usize,
    /// Deltas of the first vault that the copy lacks.
    pub deltas_behind: usize,
    /// When the first vault stored the oldest of what the copy lacks, by its clock.
    pub since: Option<DateTime<Utc>>,
    /// When the newest backup that the copy holds was begun.
    pub newest: Option<DateTime<Utc>>,
}

impl Standing {
    /// Of a copy that is not there yet.
    pub fn nothing_of(catalog: &Catalog) -> Self {
        let backups = &catalog.backups;
        Self {
            behind: backups.len(),
            since: backups.iter().map(|backup| backup.observed).min(),
            ..Self::default()
        }
    }

    /// Whether nothing is lacking.
    pub const fn is_level(&self) -> bool {
        self.behind == 0 && self.deltas_behind == 0
    }
}

/// Compares names: what `copy` lacks of `catalog`, which is what `first` holds.
pub async fn standing<A: Sync, B: Sync>(
    first: &Vault<A>,
    catalog: &Catalog,
    copy: &Vault<B>,
) -> Result<Standing> {
    let cluster = &catalog.cluster;
    let (there, here) = (
        Inventory::read(first, cluster).await?,
        Inventory::read(copy, cluster).await?,
    );
    let is_here = |backup: &&Backup| {
        let manifest = layout::manifest(cluster, backup.manifest.sequence);
        here.objects.contains_key(&manifest)
    };
    let (held, lacking): (Vec<&Backup>, Vec<&Backup>) = catalog.backups.iter().partition(is_here);
    let deltas = there.names_of(Kind::Delta);
    let deltas: Vec<DateTime<Utc>> = deltas
        .filter(|name| !here.objects.contains_key(*name))
        .filter_map(|name| there.objects.get(name).map(|(_, stored)| *stored))
        .collect();
    let stored = lacking.iter().map(|backup| backup.observed);
    Ok(Standing {
        held: held.len(),
        behind: lacking.len(),
        deltas_behind: deltas.len(),
        since: stored.chain(deltas.iter().copied()).min(),
        newest: held.last().map(|backup| backup.manifest.started),
    })
}
