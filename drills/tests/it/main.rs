//! Whole drills over local vaults and golden snapshots.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests may fail by panicking"
)]

mod bad;
mod decoy;
mod good;
#[path = "../../../store/tests/it/long.rs"]
mod long;
mod report;
mod stage;
mod teardown;
