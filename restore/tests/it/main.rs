//! The pipeline end to end, over local vaults and golden snapshots.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail like the tests that call them"
)]

mod backup;
mod bench;
mod cluster_source;
mod consolidating;
mod copies;
mod deltas;
mod etcd_source;
mod fake_etcd;
mod faults;
mod flips;
mod full_disk;
mod golden_datadir;
#[path = "../../../store/tests/it/golden_fixture.rs"]
#[expect(dead_code, reason = "the tests of the store use more of it")]
mod golden_fixture;
mod golden_kill;
mod golden_offline;
mod in_use;
#[path = "../../../store/tests/it/long.rs"]
mod long;
mod manifests;
mod odd_vault;
mod pruning;
mod restore;
#[path = "../../../store/tests/it/small_disk.rs"]
#[expect(dead_code, reason = "the tests of the store use more of it")]
mod small_disk;
mod tamper;
mod trash;
mod vault_fixture;
mod waiting;
