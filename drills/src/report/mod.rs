//! What a drill found and measured: signed JSON in the vault, and text for people.

mod record;
mod text;
mod vault;

pub use record::{
    BackupRecord, CheckRecord, DRILL_REPORT_VERSION, DrillReport, PhaseRecord, PrefixRecord,
    REPORT_BYTES_MAX, ReplayRecord, RestoredRecord, RpoRecord, TargetKind, TeardownRecord,
};
pub use vault::{publish, reports};
