//! A running member: start, propose, read, stop.

mod admission;
mod compactor;
mod discover;
mod forward;
mod handle;
mod integrity;
mod join;
mod late;
mod leader;
mod options;
mod reads;
mod reconfigure;
mod removed;
mod scrubber;
mod sink;
mod srv;
mod start;
mod tasks;

pub use crate::consensus::Change;
pub use discover::{Discovery, DiscoveryPassword};
pub use handle::{Applied, Member, MemberStatus, ReadFaults};
pub use integrity::IntegrityOptions;
pub use leader::LeaseTime;
pub use options::{AutoCompaction, ClusterState, MemberOptions, StateStorage};
pub use scrubber::{ScrubOptions, Scrubbed};
pub use srv::SrvDiscovery;
