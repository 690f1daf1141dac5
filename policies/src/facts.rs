//! What is known of a backup, as far as decisions need it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{ByteSize, Generation, Level, Pool, Sequence, SnapshotId};

/// One backup of a vault, as its catalog sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four facts that do not depend on each other"
)]
pub struct BackupFact {
    /// Its id.
    pub id: SnapshotId,
    /// The run of backups it belongs to.
    pub generation: Generation,
    /// What it was taken for.
    #[serde(default)]
    pub pool: Pool,
    /// Its position in the chain. This, and not a time, says which backup is newer.
    pub sequence: Sequence,
    /// When its content was read, by the clock of the host that took it (from the manifest).
    pub time: DateTime<Utc>,
    /// When the vault first saw its manifest, by the vault's own clock, where the vault has one.
    pub observed: Option<DateTime<Utc>>,
    /// The store's main revision its content was read at.
    pub revision: i64,
    /// Bytes it occupies in the vault.
    pub size: ByteSize,
    /// Highest level of proof reached; `None` when not even its parts were all found.
    pub level: Option<Level>,
    /// Its signature verifies with a trusted key and its place in the chain holds.
    pub is_signed: bool,
    /// Its last verification found damage.
    pub is_damaged: bool,
    /// An operator asked to keep it.
    pub is_pinned: bool,
    /// A restore, drill, verification or export is reading it now.
    pub is_in_use: bool,
    /// Backups it cannot be restored without (a delta's base); empty for a complete one.
    pub needs: Vec<SnapshotId>,
}

impl BackupFact {
    /// Signed, undamaged and proven to at least `level`: fit to count on.
    pub fn holds_at(&self, level: Level) -> bool {
        self.is_signed && !self.is_damaged && self.level.is_some_and(|reached| reached >= level)
    }
}
