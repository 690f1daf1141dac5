//! Letting deltas go: a signed record first, then the objects. What is missing without such a
//! record was removed by somebody else.

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, DeltaFact, Generation, released_deltas};
use serde::{Deserialize, Serialize};

use super::run::{Run, Runs};
use crate::error::Result;
use crate::key::Signer;
use crate::sign::{self, Record};
use crate::vault::{Catalog, Folder, ReadWrite, Vault, layout};

/// Version of the format.
pub const DELTA_RELEASE_VERSION: u64 = 1;

/// Largest record read, in bytes.
pub(crate) const RELEASE_BYTES_MAX: u64 = 64 * 1024;

/// The tombstone of the beginning of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaRelease {
    /// Whose deltas.
    pub cluster: ClusterName,
    /// Their run.
    pub generation: Generation,
    /// The last one let go.
    pub through: u64,
    /// When, by the appliance's clock.
    pub at: DateTime<Utc>,
}

impl Record for DeltaRelease {
    const FORMAT: &'static str = "holdfast.delta-release";
    const VERSION: u64 = DELTA_RELEASE_VERSION;
}

/// What the backups in `catalog`, those that retention has left and those in the trash, need no
/// more. Pure.
pub fn plan_release(catalog: &Catalog, runs: &Runs) -> Vec<(Generation, u64)> {
    let of = |backup: &crate::Backup| {
        let manifest = &backup.manifest;
        (manifest.generation, manifest.content.revision)
    };
    // Whoever comes back from the trash needs what follows it too.
    let trashed = catalog.trash.iter().map(|one| &one.backup);
    let retained: Vec<(Generation, i64)> = catalog.backups.iter().chain(trashed).map(of).collect();
    let facts = |run: &Run| -> Vec<DeltaFact> {
        let fact = |head: &super::Head| DeltaFact {
            generation: run.generation,
            number: head.record.number,
            to: head.record.to,
        };
        run.deltas.iter().map(fact).collect()
    };
    let deltas: Vec<DeltaFact> = runs.runs.iter().flat_map(facts).collect();
    released_deltas(&retained, &deltas).into_iter().collect()
}

/// Carries it out; answers how many objects were removed. What a run that was stopped left behind
/// its record goes too.
pub async fn release(
    vault: &Vault<ReadWrite>,
    cluster: &ClusterName,
    plan: &[(Generation, u64)],
    (at, signer): (DateTime<Utc>, &Signer),
) -> Result<u64> {
    for (generation, through) in plan {
        let record = DeltaRelease {
            cluster: cluster.clone(),
            generation: *generation,
            through: *through,
            at,
        };
        let name = layout::delta_release(cluster, *generation, *through);
        // One that is there says the same, whenever it was written.
        if vault.size(&name).await?.is_none() {
            vault.put_new(&name, sign::sign(&record, signer)?).await?;
        }
    }
    let mut removed = 0;
    for listed in vault.list(&Folder::Deltas.of(cluster)).await? {
        let is_gone = |(generation, number): (Generation, u64)| {
            let own = plan.iter().find(|(of, _)| *of == generation);
            own.is_some_and(|(_, through)| number <= *through)
        };
        if layout::delta_place(&listed.name).is_some_and(is_gone) {
            vault.remove(&listed.name).await?;
            removed += 1;
        }
    }
    Ok(removed)
}
