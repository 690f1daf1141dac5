//! Verification of one backup, up to a level.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use holdfast_policies::{Level, SnapshotId};

use crate::error::Result;
use crate::key::Keys;
use crate::progress::ProgressFn;
use crate::proof::Proof;
use crate::vault::{Catalog, Vault};

/// How a backup is verified.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// The highest level to try: L0, L1 or L2.
    pub upto: Level,
    /// The time, by the verifier's clock.
    pub now: DateTime<Utc>,
    /// A folder for the sealed spool, for L2.
    pub work_dir: PathBuf,
}

/// Verifies one backup. Damage is a finding in the proof and not an error; an error means that
/// nothing can be said (the vault does not answer). Record the proof with [`crate::proof::record`].
#[expect(
    clippy::todo,
    clippy::unused_async,
    reason = "signature first, body within the hour"
)]
pub async fn verify<Mode: Sync>(
    _vault: &Vault<Mode>,
    _catalog: &Catalog,
    _id: SnapshotId,
    _keys: &Keys,
    _options: &VerifyOptions,
    _progress: ProgressFn<'_>,
) -> Result<Proof> {
    todo!()
}
