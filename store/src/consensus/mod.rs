//! Consensus: the only module that knows openraft.
//!
//! `log` is the durable raft log (vote, entries, committed position), `machine` feeds committed
//! entries to the one apply thread, `snapshot` hands state between members, `peer` is the way to
//! other members. One member is one voter of the same group that several members will form.

mod apply_thread;
pub(crate) mod found;
mod group;
#[cfg(test)]
mod group_tests;
mod leadership;
pub mod log;
mod machine;
mod members;
mod membership;
mod outbox;
pub mod peer;
mod reconfigure;
mod room;
mod snapshot;
mod space;
mod state_file;
#[cfg(test)]
mod suite_tests;
mod types;
mod upkeep;
mod waiters;
mod workers;

pub(crate) use apply_thread::{ApplyHandle, spawn as spawn_apply};
pub(crate) use group::{Group, GroupOptions};
pub(crate) use leadership::Leadership;
pub(crate) use machine::Machine;
pub(crate) use members::{Known, Reconfigured};
pub use reconfigure::Change;
pub(crate) use reconfigure::Rules;
pub(crate) use snapshot::remove_leftovers;
pub(crate) use space::Space;
pub(crate) use state_file::StateFile;
pub use types::{LogEntry, NodeId, PeerNode, Proposal, TypeConfig, Wanted};
pub(crate) use waiters::Waiters;
pub use workers::Workers;
