//! Comparisons with real peers, in one binary: see `docs/internals/testing.md`.

mod differential;
mod etcdctl;
mod go_client;
mod golden;
mod observe;
mod offline;
mod pair;
mod requests;
mod snapshots;
mod transcript;
