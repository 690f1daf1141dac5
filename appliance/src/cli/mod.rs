//! The command line: one file per noun, each a `clap` type and the function that does it.

pub(crate) mod args;
pub(crate) mod backup;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod connect;
pub(crate) mod demo;
pub(crate) mod dispatch;
pub(crate) mod drill;
pub(crate) mod explain;
pub(crate) mod init;
pub(crate) mod key;
pub(crate) mod man;
pub(crate) mod policy;
pub(crate) mod reference;
pub(crate) mod restore;
mod rewrap;
pub(crate) mod run;
pub(crate) mod snapshot;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod vault;
