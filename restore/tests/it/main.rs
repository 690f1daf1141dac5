//! The pipeline end to end, over local vaults and golden snapshots.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail like the tests that call them"
)]

mod backup;
mod bench;
mod etcd_source;
mod fake_etcd;
mod faults;
mod flips;
mod golden_datadir;
#[path = "../../../store/tests/it/golden_fixture.rs"]
#[expect(dead_code, reason = "the tests of the store use more of it")]
mod golden_fixture;
mod golden_kill;
mod golden_offline;
mod manifests;
mod pruning;
mod restore;
mod tamper;
mod vault_fixture;
