//! Why a backup was taken: pools that retention counts apart.

use serde::{Deserialize, Serialize};

/// What gave the occasion for a backup. The rules of one pool never let a backup of another go.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    /// Its schedule.
    #[default]
    Scheduled,
    /// Somebody asked for it.
    Manual,
}

impl Pool {
    /// Every pool.
    pub const ALL: [Self; 2] = [Self::Scheduled, Self::Manual];

    /// Whether it is the one that backups are in which say nothing.
    pub fn is_scheduled(&self) -> bool {
        *self == Self::Scheduled
    }
}
