//! Rebuild: a restore plan becomes data directories, staged beside the target and renamed last.

use crate::error::Result;
use crate::key::Keys;
use crate::plan::{PlannedMember, RestorePlan};
use crate::progress::ProgressFn;
use crate::vault::{ReadOnly, Vault};

/// What a restore has done.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Restored {
    /// Data directories written.
    pub written: Vec<PlannedMember>,
    /// The new cluster's id.
    pub cluster_id: u64,
    /// The revision it starts at.
    pub revision: i64,
    /// HashKV of the content at the backup's revision, recomputed before the bump.
    pub hash_kv: u32,
    /// Live keys.
    pub keys: u64,
    /// Plain bytes read.
    pub bytes: u64,
}

/// Carries out a plan. The target must not exist; leftovers of restores that were killed are
/// removed. For a restore that clients will see, call [`crate::ledger::record`] and
/// [`crate::ledger::record_local`] with [`RestorePlan::observation`] first.
#[expect(
    clippy::todo,
    clippy::unused_async,
    reason = "signature first, body within the hour"
)]
pub async fn rebuild(
    _vault: &Vault<ReadOnly>,
    _plan: &RestorePlan,
    _keys: &Keys,
    _progress: ProgressFn<'_>,
) -> Result<Restored> {
    todo!()
}
