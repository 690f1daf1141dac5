//! The way to other members, and what they ask of this one.
//!
//! `wire` turns raft's messages into bytes and checks those that arrive; `link` holds the
//! connections to one peer (`dial` makes them, `traffic` knows what passes and whether anybody
//! answers, `handshake` says on each call who speaks to whom); `network`, `append` and `send` are
//! raft's calls to others, `forward` the store's own (`answer` says what comes of them); `service`
//! and `receive` hand the calls of others to raft.

mod answer;
mod append;
mod change;
mod dial;
mod forward;
mod handshake;
mod link;
mod network;
mod receive;
mod refusal;
mod send;
mod service;
mod traffic;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use self::link::{Link, LinkTimes, Way};

pub(crate) use answer::Answer;
pub(crate) use change::from_request as change_from_request;
pub use dial::{BoundDialer, Dialing, PeerDialer, PeerStream, TcpDialer};
pub(crate) use dial::{Dialers, dial_url};
pub(crate) use forward::{Forwarded, LeaderCalls};
pub use handshake::PEER_PROTOCOL;
pub(crate) use handshake::{Identity, PROTOCOL as PEER_PROTOCOL_HEADER, Removed, caller};
pub(crate) use link::PEER_MESSAGE_BYTES_MAX;
pub(crate) use service::PeerCalls;
pub(crate) use traffic::{Traffic, Traffics, Transfers};

/// All peers that this member has spoken to; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    own: Identity,
    dialers: Dialers,
    times: LinkTimes,
    snapshot_bytes_per_s: Option<u64>,
    links: Arc<Mutex<BTreeMap<u64, Arc<Link>>>>,
    traffics: Traffics,
    removed: Removed,
}

impl Peers {
    pub(crate) fn new(
        own: Identity,
        dialers: Dialers,
        election_timeout: std::time::Duration,
    ) -> Self {
        Self {
            own,
            dialers,
            times: LinkTimes::of(election_timeout),
            snapshot_bytes_per_s: None,
            links: Arc::default(),
            traffics: Traffics::default(),
            removed: Removed::default(),
        }
    }

    /// Snapshots are sent no faster than this.
    pub(crate) fn with_snapshot_rate(mut self, bytes_per_s: Option<u64>) -> Self {
        self.snapshot_bytes_per_s = bytes_per_s;
        self
    }

    /// Whether the last call of member `id` was answered.
    pub(crate) fn is_active(&self, id: u64) -> bool {
        let traffic = self.traffics.known(id);
        traffic.is_some_and(|traffic| traffic.is_active())
    }

    /// What went to and came from each peer.
    pub(crate) fn traffics(&self) -> &Traffics {
        &self.traffics
    }

    /// Returns once a peer said that this member has been removed.
    pub(crate) async fn told_removed(&self) {
        self.removed.told().await;
    }

    /// The way to member `id`, which is reached at `urls`.
    fn reach(&self, id: u64, urls: &[String]) -> Arc<Link> {
        let mut links = self.links.lock();
        if let Some(link) = links.get(&id) {
            link.move_to(urls);
            return Arc::clone(link);
        }
        let way = Way {
            urls: Arc::new(Mutex::new(urls.to_vec())),
            dialers: self.dialers.clone(),
            times: self.times,
            traffic: self.traffics.of(id),
        };
        let link = Arc::new(Link::new(self.own, id, way, self.removed.clone()));
        links.insert(id, Arc::clone(&link));
        link
    }
}
