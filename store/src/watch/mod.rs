//! Watches: every change, once, in order, whole revisions, resumable from any revision kept.
//!
//! The [`WatchHub`] stands beside the writer: it is told of each revision after readers can see
//! it, and hands the events to the bounded queues of the streams that watch those keys. A watcher
//! whose stream does not keep up is marked as lagging and costs the writer nothing from then on;
//! its own stream ([`WatchSession`]) reads what it missed from the history and rejoins. Invariant:
//! an up-to-date watcher has been given everything up to the hub's revision; a lagging one
//! everything before its cursor. So nothing is lost, doubled or reordered, whatever is slow.

mod catch_up;
mod fragment;
mod history;
mod hub;
mod progress;
mod queue;
mod range;
mod session;

pub use history::History;
pub use hub::{WatchCounts, WatchHub};
pub use session::{SessionOptions, WatchSession};
