//! The pipeline end to end, over local vaults and golden snapshots.

mod backup;
mod bench;
mod faults;
mod flips;
mod golden_datadir;
mod golden_fixture;
mod golden_kill;
mod golden_offline;
mod manifests;
mod pruning;
mod restore;
mod tamper;
