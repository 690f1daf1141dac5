//! Why a backup stays or goes, in words.

use std::fmt;

use serde::Serialize;

use crate::{Level, SnapshotId};

/// Why a backup stays. Several may hold at once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepReason {
    /// An operator asked to keep it.
    Pinned,
    /// Something is reading it now.
    InUse,
    /// One of the `min_proven` newest that were restored in a drill.
    Proven {
        /// Level it was proven to.
        level: Level,
    },
    /// Too few were restored in a drill; it is among the best proven others.
    BestProven {
        /// Level it was proven to.
        level: Level,
    },
    /// Among the newest, counted from 1.
    Last(u32),
    /// The newest of its hour, counted from 1.
    Hourly(u32),
    /// The newest of its day.
    Daily(u32),
    /// The newest of its week.
    Weekly(u32),
    /// The newest of its month.
    Monthly(u32),
    /// The newest of its year.
    Yearly(u32),
    /// Not older than `keep_within`.
    Within,
    /// In the recovery window.
    RecoveryWindow,
    /// The beginning of the recovery window is reached from it.
    WindowBase,
    /// A kept backup cannot be restored without it.
    NeededBy(SnapshotId),
    /// Newer than the newest verified one; it may yet be verified.
    AwaitsVerification,
    /// Not verified far enough to count, and not damaged: a rule would keep it if it counted.
    NotVerified {
        /// The setting that would.
        rule: &'static str,
    },
    /// No trusted key signed it. It counts for nothing, and retention does not touch what it
    /// cannot vouch for.
    Unsigned,
}

/// Why a backup goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseReason {
    /// Verified, and no rule keeps it.
    NoRule,
    /// Never verified far enough to count, and no rule would keep it if it did.
    NeverVerified,
    /// Its last verification found damage, and newer ones are good.
    Damaged,
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pinned => f.write_str("pinned"),
            Self::InUse => f.write_str("in use now"),
            Self::Proven { level } => write!(f, "min_proven (proven to {level})"),
            Self::BestProven { level } => {
                write!(f, "min_proven (best proven so far, to {level})")
            }
            Self::Last(place) => write!(f, "keep_last {place}"),
            Self::Hourly(place) => write!(f, "keep_hourly {place}"),
            Self::Daily(place) => write!(f, "keep_daily {place}"),
            Self::Weekly(place) => write!(f, "keep_weekly {place}"),
            Self::Monthly(place) => write!(f, "keep_monthly {place}"),
            Self::Yearly(place) => write!(f, "keep_yearly {place}"),
            Self::Within => f.write_str("keep_within"),
            Self::RecoveryWindow => f.write_str("recovery_window"),
            Self::WindowBase => f.write_str("recovery_window begins after it"),
            Self::NeededBy(id) => write!(f, "needed by {id}"),
            Self::AwaitsVerification => f.write_str("awaits verification"),
            Self::NotVerified { rule } => {
                write!(f, "not verified yet, would be kept by {rule}")
            }
            Self::Unsigned => f.write_str("not signed by a trusted key, not ours to remove"),
        }
    }
}

impl fmt::Display for ReleaseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRule => "no rule keeps it",
            Self::NeverVerified => {
                "never verified far enough to count, and no rule would keep it if it did"
            }
            Self::Damaged => "damaged, newer ones are good",
        })
    }
}
