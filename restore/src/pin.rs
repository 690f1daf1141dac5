//! Pins: an operator's wish to keep a backup, whatever the policy says.

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::key::Signer;
use crate::sign::{self, Record};
use crate::vault::{Folder, ReadWrite, Vault, layout};

/// Largest pin record read, in bytes.
pub const PIN_BYTES_MAX: u64 = 64 * 1024;

/// Version of the format.
pub const PIN_VERSION: u64 = 1;

/// Most pin records of one backup.
const PINS_MAX: usize = 10_000;

/// One wish; the one with the highest number counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The backup.
    pub id: SnapshotId,
    /// Its cluster.
    pub cluster: ClusterName,
    /// Counts up from 0 for each backup.
    pub number: u64,
    /// Keep it, or no longer.
    pub is_pinned: bool,
    /// Why, in the operator's words.
    pub reason: String,
    /// When, by the operator's clock.
    pub at: DateTime<Utc>,
}

impl Record for Pin {
    const FORMAT: &'static str = "holdfast.pin";
    const VERSION: u64 = PIN_VERSION;
}

/// Pins a backup, or unpins it. The record's number is the next free one.
pub async fn set(vault: &Vault<ReadWrite>, pin: Pin, signer: &Signer) -> Result<()> {
    let folder = Folder::Pins.of_backup(&pin.cluster, pin.id);
    let number = vault.list(&folder).await?.len();
    if number >= PINS_MAX {
        let limit = u64::try_from(PINS_MAX).unwrap_or(u64::MAX);
        return Err(Error::TooLarge {
            object: folder.to_string(),
            limit,
        });
    }
    let name = layout::pin(&pin.cluster, pin.id, number);
    let pin = Pin {
        number: u64::try_from(number).unwrap_or(u64::MAX),
        ..pin
    };
    vault.put_new(&name, sign::sign(&pin, signer)?).await
}
