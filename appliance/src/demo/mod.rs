//! The demonstration: the whole story, played by the real commands in a temporary folder.
//!
//! Nothing here is acted: each scene runs `holdfast` itself as its user would, checks the outcome
//! from outside with an etcd client, and fails the demonstration when it does not hold.

mod client;
mod commands;
mod peer;
mod scenes;
mod stage;
mod story;
mod tamper;

pub(crate) use story::{Options, tell};
