//! Comparisons with real peers, in one binary: see `docs/internals/testing.md`.
#![expect(
    clippy::indexing_slicing,
    clippy::panic_in_result_fn,
    reason = "tests assert, and read JSON by name"
)]

mod checker;
mod cluster;
mod differential;
mod etcdctl;
mod go_client;
mod golden;
#[path = "../../../store/tests/it/long.rs"]
mod long;
mod observe;
mod offline;
mod pair;
mod pipeline;
mod remembered;
mod requests;
mod restored;
mod snapshots;
mod surface;
mod transcript;
