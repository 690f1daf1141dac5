//! A cluster of members in one thread, on simulated time, networks and disks.
//!
//! [`run`] does one simulation: members start, clients work on them, and what [`faults`] drew from
//! the seed happens to them: crashes that lose unsynced writes, cut and slow links, clocks that run
//! at different rates, changes of the membership. All the while the [`invariants`] look on, and in
//! the end the clients' history is judged.
//!
//! Time, the network, the disks, the faults and the clients follow the seed. Elections and the
//! order in which a runtime picks among ready branches do not: a seed is a strong hint at the same
//! run, and no promise of it (`docs/internals/testing.md`).

#![expect(
    clippy::disallowed_methods,
    reason = "a crashed host ends its tasks with its runtime"
)]

pub mod clients;
pub mod clock;
pub mod disk;
pub mod faults;
#[path = "../../interop/src/history/mod.rs"]
pub mod history;
pub mod host;
pub mod invariants;
pub mod network;
pub mod observer;
pub mod operator;
pub mod roster;
pub mod run;
pub mod settings;
pub mod upkeep;
pub mod verdict;
pub mod watchers;
pub mod world;
