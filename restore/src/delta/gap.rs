//! Gaps: what lies between the end of one run and the beginning of the next, told by a signed
//! record in the folder of the run that begins. Backups aside, no state in between can be restored.

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, Generation};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::flaw::{Flaw, FlawKind};
use crate::key::{Signer, Trust};
use crate::sign::{self, Record, Signed};
use crate::vault::{Listed, ReadWrite, Vault, layout};

/// Version of the format.
pub const DELTA_GAP_VERSION: u64 = 1;

/// Largest record read, in bytes.
const GAP_BYTES_MAX: u64 = 64 * 1024;

/// Most records read, those of the newest runs.
const GAPS_READ_MAX: usize = 64;

/// What was not captured before a run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaGap {
    /// Whose changes.
    pub cluster: ClusterName,
    /// The run that begins behind the gap.
    pub generation: Generation,
    /// The newest revision captured before it.
    pub from: i64,
    /// Until when everything was captured, by the writer's clock.
    pub since: DateTime<Utc>,
    /// The revision of the backup that the new run begins on.
    pub to: i64,
    /// When that was begun.
    pub until: DateTime<Utc>,
    /// Why what is between them was not captured.
    pub reason: String,
    /// When this was found, by the writer's clock.
    pub at: DateTime<Utc>,
}

impl Record for DeltaGap {
    const FORMAT: &'static str = "holdfast.delta-gap";
    const VERSION: u64 = DELTA_GAP_VERSION;
}

impl DeltaGap {
    /// Stores it, once for its run: where one is told already, that stays.
    pub async fn record(&self, vault: &Vault<ReadWrite>, signer: &Signer) -> Result<()> {
        let name = layout::delta_gap(&self.cluster, self.generation);
        match vault.put_new(&name, sign::sign(self, signer)?).await {
            Err(Error::ObjectExists { .. }) => Ok(()),
            stored => stored,
        }
    }
}

/// Reads them, in the order of their runs; those that cannot be believed are named in `flaws`.
pub(super) async fn read<Mode>(
    vault: &Vault<Mode>,
    cluster: &ClusterName,
    records: &[Listed],
    trust: &Trust,
    flaws: &mut Vec<Flaw>,
) -> Result<Vec<DeltaGap>> {
    let mut gaps = Vec::new();
    for entry in records.iter().rev().take(GAPS_READ_MAX).rev() {
        let bytes = vault.get(&entry.name, GAP_BYTES_MAX).await;
        match bytes.and_then(|bytes| sign::open(entry.name.as_str(), &bytes, trust)) {
            Ok(Signed::<DeltaGap> { record, .. })
                if record.cluster == *cluster
                    && entry.name == layout::delta_gap(cluster, record.generation) =>
            {
                gaps.push(record);
            }
            Ok(_) => {
                let detail = "a gap of another place";
                flaws.push(Flaw::new(FlawKind::RecordRefused, &entry.name, detail));
            }
            Err(Error::ObjectMissing { .. }) => {}
            Err(error @ (Error::Vault { .. } | Error::Io { .. })) => return Err(error),
            Err(error) => flaws.push(Flaw::new(FlawKind::RecordRefused, &entry.name, error)),
        }
    }
    Ok(gaps)
}
