//! The pipeline end to end, over local vaults and golden snapshots.

mod backup;
mod bench;
mod faults;
mod flips;
mod manifests;
mod pruning;
mod restore;
mod tamper;
