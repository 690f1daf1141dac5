//! Which backups stay, and why.
//!
//! A plan is made only after a backup was newly verified, from a complete listing, when the
//! clocks agree; otherwise it is refused with the reason. The rules count only backups that are
//! signed, undamaged and verified, newest first by position in the chain, so nothing that was
//! merely put into the vault pushes a good backup out. Ages are measured from the newest of
//! them and not from now. Scheduled backups and those somebody asked for are counted apart, each
//! by its own rules; `recovery_window` and the floor look at both.
//!
//! Whatever the rules say, a plan never releases the newest proven backups (`min_proven`),
//! anything pinned or in use, or what a kept backup needs, and never more than
//! `max_deletions` at once.

mod bucket;
mod deltas;
mod effect;
mod guard;
mod plan;
mod policy;
mod reason;
mod simulate;
mod trash;
mod view;

pub use deltas::{DeltaFact, released_deltas};
pub use effect::{NO_EFFECT_RUNS, PruneRun, has_no_effect};
pub use guard::{Listing, Refusal, RetentionInput};
pub use plan::{Decision, RetentionPlan, Verdict};
pub use policy::{KeepRules, RetentionPolicy};
pub use reason::{KeepReason, ReleaseReason};
pub use simulate::{SIMULATED_RUNS_MAX, Scenario, SimulatedDay, Simulation, simulate};
pub use trash::{Removal, TrashFact, best_level, needed_by, removals};
