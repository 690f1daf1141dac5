//! What the scratch member is told, as one line of JSON on its standard input, and how it
//! answers.
//!
//! The input stays open for as long as the member is wanted. Its end is the order to stop, so a
//! member never outlives the process that asked for it, however that one ended.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::auth::AuthFacts;

/// Longest order read, in bytes.
pub(super) const ORDER_BYTES_MAX: usize = 64 * 1024;

/// Stands before the member's answer: whatever else is printed does not count.
pub(super) const READY: &str = "holdfast-scratch-member ";

/// How the scratch member is started: a program that calls [`super::run_scratch_member`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberCommand {
    /// The program; usually this one.
    pub program: PathBuf,
    /// Its arguments; usually the name of a hidden subcommand.
    pub args: Vec<OsString>,
    /// Added to its environment.
    pub env: Vec<(OsString, OsString)>,
}

/// What to serve, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemberOrder {
    /// The member's name.
    pub(crate) name: String,
    /// Its data directory, restored.
    pub(crate) data_dir: PathBuf,
    /// All members of its cluster, by name, with the peer URLs they were restored with.
    pub(crate) cluster: Vec<(String, String)>,
    /// The cluster token it was restored with.
    pub(crate) token: String,
    /// What serves.
    pub(crate) program: Program,
    /// etcd's `--auth-token`, where the data has authentication on.
    pub(crate) auth_token: Option<String>,
    /// It ends by itself after so many seconds.
    pub(crate) deadline_s: u64,
}

impl MemberOrder {
    /// The member's own peer URL.
    pub(super) fn peer_url(&self) -> &str {
        let own = self.cluster.iter().find(|(name, _)| *name == self.name);
        own.map_or("", |(_, url)| url)
    }

    /// Whether it has peers, which must be able to reach it.
    pub(super) fn has_peers(&self) -> bool {
        self.cluster.len() > 1
    }

    /// etcd's `--initial-cluster`.
    pub(super) fn initial_cluster(&self) -> String {
        let pairs = self
            .cluster
            .iter()
            .map(|(name, url)| format!("{name}={url}"));
        pairs.collect::<Vec<_>>().join(",")
    }
}

/// What serves the restored data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Program {
    /// The bundled store, in the member's own process.
    Holdfast,
    /// An etcd binary, as a child of the member's process.
    Etcd(PathBuf),
}

/// The member's answer, once it serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ready {
    /// Where clients reach it.
    pub(super) address: SocketAddr,
    /// The authentication records it holds; a real etcd's process does not tell.
    pub(super) auth: Option<AuthFacts>,
}
