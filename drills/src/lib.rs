//! Proof that a restore works, with measurements.
//!
//! A drill takes a backup from the vault, rebuilds it with the code a real restore uses, boots as
//! many members from it on loopback as the source has, asks them everything a client would, and
//! tears all of it down. What it finds and how long it took becomes a signed report in the vault.
//!
//! Invariants:
//! - a drill cannot reach production: its vault is read-only, its members listen on loopback
//!   only, its files stay in one scratch directory with a byte budget;
//! - a check that could not run is never a pass, and a drill passes only when every check did;
//! - whatever happens, directory, process and port are gone afterwards; what a killed drill
//!   leaves behind, the next start removes;
//! - reports never hold keys or values.

mod auth;
mod checks;
mod client;
mod drill;
mod error;
mod expected;
mod history;
mod members;
mod options;
mod report;
mod scratch;

pub use checks::{CHECK_NAMES, MEMBERS_CHECK, Outcome};
pub use drill::run;
pub use error::{Error, ErrorKind, Result};
pub use options::{DrillMembers, DrillOptions, DrillTarget, Phase, PhaseFn, pick};
pub use report::{
    BackupRecord, CheckRecord, DRILL_REPORT_VERSION, DrillReport, PhaseRecord, PrefixRecord,
    REPORT_BYTES_MAX, ReplayRecord, RestoredRecord, RpoRecord, TargetKind, TeardownRecord, publish,
    reports,
};
pub use scratch::{MemberCommand, clean_leftovers, run_scratch_member};
