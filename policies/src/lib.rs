//! The decisions of Holdfast, pure: schedule, retention, encryption rules, objectives.
//!
//! Facts go in, plans come out. Nothing here reads a clock, a file or the network; `now` is an
//! argument. The crate is also the vocabulary of the backup side: ids, levels of proof, facts.
//!
//! Invariants:
//! - the same facts and the same `now` give the same plan, on every machine;
//! - a decision that removes something carries the reason it was taken;
//! - whatever cannot be decided safely is refused, with the reason.

pub mod consolidation;
pub mod objective;
pub mod retention;
pub mod schedule;

mod encryption;
mod error;
mod facts;
mod id;
mod level;
mod policy;
mod pool;
mod span;

pub use encryption::{EncryptionRule, RECIPIENTS_MAX};
pub use error::Error;
pub use facts::BackupFact;
pub use id::{
    CLUSTER_NAME_BYTES_MAX, ClusterName, DrillId, Generation, ID_RANDOM_BYTES, Sequence, SnapshotId,
};
pub use level::Level;
pub use objective::{Evidence, Objective, ObjectiveStatus, Rpo, Rto, Standing};
pub use policy::{BackupPolicy, DrillPolicy, PolicyOptions};
pub use pool::Pool;
pub use retention::{
    Decision, DeltaFact, KeepReason, KeepRules, Listing, PruneRun, Refusal, ReleaseReason,
    RetentionInput, RetentionPlan, RetentionPolicy, Verdict, has_no_effect, released_deltas,
};
pub use schedule::{MissedRun, RunDecision, RunState, Schedule, TimeZone};
pub use span::{ByteSize, Span};
