//! One member of an etcd-compatible replicated store.

pub mod api;
pub mod apply;
mod backend;
pub mod bolt;
pub mod command;
pub mod consensus;
pub mod datadir;
mod deadline;
mod dns;
pub mod error;
pub mod etcd_file;
pub mod export;
pub mod failpoint;
pub mod lease;
pub mod member;
pub mod metrics;
pub mod mvcc;
pub mod options;
pub mod state;
pub mod tls;
pub mod watch;

pub use backend::{InBackend, in_backend};
pub use error::{Error, ErrorKind};
pub use options::StoreOptions;
