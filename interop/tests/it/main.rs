//! Comparisons with real peers, in one binary: see `docs/internals/testing.md`.
#![expect(clippy::as_conversions, clippy::missing_docs_in_private_items, reason = "tests")]

mod differential;
mod etcdctl;
mod golden;
mod go_client;
mod pair;
mod snapshots;
mod transcript;
