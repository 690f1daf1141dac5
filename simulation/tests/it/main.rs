//! Simulated clusters; see `docs/internals/testing.md`.

mod controls;
#[path = "../../../store/tests/it/long.rs"]
mod long;
mod seeds;
