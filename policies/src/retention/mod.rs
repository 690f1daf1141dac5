//! Which backups stay, and why.
//!
//! A plan is made only after a backup was newly verified, from a complete listing, when the
//! clocks agree; otherwise it is refused with the reason. The rules count only backups that are
//! signed, undamaged and verified, newest first by position in the chain, so nothing that was
//! merely put into the vault pushes a good backup out. Ages are measured from the newest of
//! them and not from now.
//!
//! Whatever the rules say, a plan never releases the newest proven backups (`min_proven`),
//! anything pinned or in use, or what a kept backup needs, and never more than
//! `max_deletions` at once.

mod bucket;
mod deltas;
mod guard;
mod plan;
mod policy;
mod reason;
mod simulate;

pub use deltas::{DeltaFact, released_deltas};
pub use guard::{Listing, Refusal, RetentionInput};
pub use plan::{Decision, RetentionPlan, Verdict};
pub use policy::RetentionPolicy;
pub use reason::{KeepReason, ReleaseReason};
pub use simulate::{SIMULATED_RUNS_MAX, SimulatedDay, Simulation, simulate};
