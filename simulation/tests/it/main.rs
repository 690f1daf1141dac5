//! Simulated clusters; see `docs/internals/testing.md`.

#[path = "../../../store/tests/it/long.rs"]
mod long;
mod seeds;
