//! An operator's word that the times of the backups so far are right, whatever clocks say.

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, Sequence};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::key::Signer;
use crate::sign::{self, Record};
use crate::vault::{ReadWrite, Vault, layout};

/// Largest record read, in bytes.
pub const CONFIRMATION_BYTES_MAX: u64 = 64 * 1024;

/// Version of the format.
pub const CONFIRMATION_VERSION: u64 = 1;

/// One word; the highest place counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirmation {
    /// Whose backups.
    pub cluster: ClusterName,
    /// Times up to this place of the chain were looked at and are right, or may count as they are.
    pub sequence: Sequence,
    /// When, by the operator's clock.
    pub at: DateTime<Utc>,
}

impl Record for Confirmation {
    const FORMAT: &'static str = "holdfast.confirmation";
    const VERSION: u64 = CONFIRMATION_VERSION;
}

/// Stores a confirmation; one of the same place that is there already says the same.
pub async fn record(vault: &Vault<ReadWrite>, word: &Confirmation, signer: &Signer) -> Result<()> {
    let name = layout::confirmation(&word.cluster, word.sequence);
    match vault.put_new(&name, sign::sign(word, signer)?).await {
        Err(Error::ObjectExists { .. }) => Ok(()),
        other => other,
    }
}
