//! Real etcd and our store side by side.

use anyhow::Result;
use holdfast_interop::peers::Peers;
use holdfast_interop::server::{Kind, Server, ServerOptions};

/// Set to compare real etcd with itself, which shows what a comparison has to normalise.
const SELF_VARIABLE: &str = "HOLDFAST_TEST_SELF";

/// Two servers that get the same calls.
pub(crate) struct Pair {
    /// Real etcd.
    pub(crate) real: Server,
    /// Ours.
    pub(crate) ours: Server,
}

impl Pair {
    /// Starts both, with etcd's defaults.
    pub(crate) fn start(peers: &Peers) -> Result<Self> {
        Self::start_with(peers, &[])
    }

    /// Starts both with further flags.
    pub(crate) fn start_with(peers: &Peers, flags: &[&str]) -> Result<Self> {
        let start = |kind| {
            let mut options = ServerOptions::new(kind);
            options
                .flags
                .extend(flags.iter().map(|flag| (*flag).to_owned()));
            Server::start_with(peers, options)
        };
        Ok(Self {
            real: start(Kind::Etcd)?,
            ours: start(our_kind())?,
        })
    }
}

/// Whose program is compared with real etcd.
pub(crate) fn our_kind() -> Kind {
    if std::env::var_os(SELF_VARIABLE).is_some() {
        Kind::Etcd
    } else {
        Kind::Holdfast
    }
}
