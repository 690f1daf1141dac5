//! Named points at which a test makes a member crash, stall or fail, and known bugs it can plant.
//!
//! The points are where etcd has its own and have etcd's names; they are driven by the protocol of
//! Go's gofail: `GOFAIL_FAILPOINTS` and `GOFAIL_HTTP`, see `docs/internals/testing.md`. Points
//! named `bug...` are ours: each brings back a bug that this store, or another, must not have, so
//! that a test can show that something catches it.
//!
//! Only a build with debug assertions has any of it. In a release every function here is empty,
//! and no name of a point is in the program: `cargo xtask tidy` and `cargo xtask bench` look.

mod point;

#[cfg(not(all(feature = "failpoints", debug_assertions)))]
mod absent;
#[cfg(all(feature = "failpoints", debug_assertions))]
mod http;
#[cfg(all(feature = "failpoints", debug_assertions))]
mod live;
#[cfg(all(feature = "failpoints", debug_assertions))]
#[cfg(test)]
mod mutants;
#[cfg(all(feature = "failpoints", debug_assertions))]
mod table;
#[cfg(all(feature = "failpoints", debug_assertions))]
mod term;

#[cfg(not(all(feature = "failpoints", debug_assertions)))]
use absent as chosen;
#[cfg(all(feature = "failpoints", debug_assertions))]
use live as chosen;

pub use chosen::start;
pub(crate) use chosen::{before_each, failure, hit, is_armed, is_on, pause};
pub(crate) use point::Point;
