//! Copies: one vault's backups of a cluster in another vault, and whether both hold the same.
//!
//! A copy is made object by object with create-only requests, so it resumes where it stopped and
//! two that run at once do no harm. Nothing is opened on the way: parts have the digest of their
//! signed manifest, records a signature, deltas both. Parts come before their manifest, so that a
//! backup in a copy is whole at every moment, and what was let go in the first vault leaves a copy
//! only once that holds everything else.

mod compare;
mod inventory;
mod plan;
mod run;
mod standing;

pub use compare::{CompareOptions, Compared, Difference, DifferenceKind, compare};
pub use run::{Copied, Refused, copy_cluster};
pub use standing::{Standing, standing};
