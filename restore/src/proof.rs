//! Proofs: signed records of what was verified about a backup, when and with what evidence.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, DrillId, Level, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::Result;
use crate::flaw::Flaw;
use crate::key::Signer;
use crate::sign::{self, Record};
use crate::vault::{ReadWrite, Vault, layout};

/// Largest proof read, in bytes.
pub const PROOF_BYTES_MAX: u64 = 1024 * 1024;

/// Version of the format.
pub const PROOF_VERSION: u64 = 1;

/// What was verified about one backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The backup.
    pub id: SnapshotId,
    /// Its cluster.
    pub cluster: ClusterName,
    /// Digest of its manifest object: the proof counts for this one only.
    pub manifest: Digest,
    /// When, by the verifier's clock.
    pub at: DateTime<Utc>,
    /// The level reached; `None` when not even L0.
    pub level: Option<Level>,
    /// What stands behind the level.
    pub evidence: Evidence,
    /// What was found wrong.
    pub flaws: Vec<Flaw>,
}

/// What stands behind a level.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// Parts found at their size.
    pub parts_present: u64,
    /// Parts whose stored bytes were read back with the right digest.
    pub parts_read: u64,
    /// Parts that decrypted and decompressed to the right digest.
    pub parts_opened: u64,
    /// Stored bytes read back.
    pub stored_bytes: u64,
    /// Plain bytes checked.
    pub plain_bytes: u64,
    /// Whether the snapshot's own digest trailer held.
    pub is_trailer_valid: bool,
    /// Pages of the database checked.
    pub pages: u64,
    /// Live keys counted at the backup's revision.
    pub keys: u64,
    /// HashKV recomputed from the backup.
    pub hash_kv: Option<u32>,
    /// The source's HashKV at the same revision.
    pub source_hash_kv: Option<u32>,
    /// The drill that proved it, for the levels a drill proves.
    pub drill: Option<DrillId>,
    /// Why a higher level was not reached, and other remarks.
    pub notes: Vec<String>,
}

impl Record for Proof {
    const FORMAT: &'static str = "holdfast.proof";
    const VERSION: u64 = PROOF_VERSION;
}

/// Stores a proof beside its backup.
pub async fn record(vault: &Vault<ReadWrite>, proof: &Proof, signer: &Signer) -> Result<()> {
    let bytes: Bytes = sign::sign(proof, signer)?;
    let level = proof
        .level
        .map_or_else(|| "none".to_owned(), |level| level.to_string());
    let name = format!(
        "{}-{level}-{}",
        proof.at.timestamp_millis(),
        Digest::of(&bytes).short()
    );
    vault
        .put_new(&layout::proof(&proof.cluster, proof.id, &name), bytes)
        .await
}
