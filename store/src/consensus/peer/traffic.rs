//! What goes to and comes from each other member, for metrics, and whether it can be reached: said
//! once when that changes.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::{Code, Status};

use super::dial::PeerStream;
use crate::error::chain;
use crate::metrics::{Counter, Histogram};

/// Most members told apart; a cluster has fewer, whoever else calls.
const PEERS_MAX: usize = 64;

const UNKNOWN: u8 = 0;
const ACTIVE: u8 = 1;
const INACTIVE: u8 = 2;

/// The traffic with one other member.
#[derive(Debug)]
pub(crate) struct Traffic {
    peer: u64,
    state: AtomicU8,
    pub(crate) sent_bytes: Counter,
    pub(crate) received_bytes: Counter,
    /// Calls that did not reach it, or got no answer.
    pub(crate) failures: Counter,
    /// How often it could not be reached any more.
    pub(crate) losses: Counter,
    /// Answers to calls that ask for no work.
    pub(crate) round_trips: Histogram,
    pub(crate) snapshots_sent: Transfers,
    pub(crate) snapshots_received: Transfers,
}

/// Snapshots on their way.
#[derive(Debug)]
pub(crate) struct Transfers {
    pub(crate) succeeded: Counter,
    pub(crate) failed: Counter,
    pub(crate) seconds: Histogram,
}

impl Transfers {
    fn new() -> Self {
        Self {
            succeeded: Counter::default(),
            failed: Counter::default(),
            seconds: Histogram::of_transfers(),
        }
    }

    /// One is over.
    pub(super) fn note(&self, is_success: bool, elapsed: Duration) {
        if is_success {
            self.succeeded.add(1);
            self.seconds.observe(elapsed);
        } else {
            self.failed.add(1);
        }
    }
}

impl Traffic {
    fn new(peer: u64) -> Self {
        Self {
            peer,
            state: AtomicU8::new(UNKNOWN),
            sent_bytes: Counter::default(),
            received_bytes: Counter::default(),
            failures: Counter::default(),
            losses: Counter::default(),
            round_trips: Histogram::of_round_trips(),
            snapshots_sent: Transfers::new(),
            snapshots_received: Transfers::new(),
        }
    }

    /// Whether it answered last.
    pub(crate) fn is_active(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ACTIVE
    }

    /// It answered.
    pub(super) fn answered(&self) {
        if self.state.load(Ordering::Relaxed) != ACTIVE
            && self.state.swap(ACTIVE, Ordering::Relaxed) != ACTIVE
        {
            tracing::info!(peer_id = format!("{:x}", self.peer), "peer became active");
        }
    }

    /// A call ended with `status`; some of them say that it cannot be reached.
    pub(super) fn failed(&self, status: &Status) {
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
                self.lost(
                    &std::error::Error::source(status)
                        .map_or_else(|| status.message().to_owned(), chain),
                );
            }
            _ => self.failures.add(1),
        }
    }

    /// It did not answer, for a reason.
    pub(super) fn lost(&self, reason: &str) {
        self.failures.add(1);
        let before = self.state.swap(INACTIVE, Ordering::Relaxed);
        if before == ACTIVE {
            self.losses.add(1);
        }
        if before != INACTIVE {
            tracing::warn!(
                peer_id = format!("{:x}", self.peer),
                error = reason,
                "peer became inactive (message send to peer failed)"
            );
        }
    }
}

/// The traffic with every other member; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traffics(Arc<Mutex<BTreeMap<u64, Arc<Traffic>>>>);

impl Traffics {
    /// That with `peer`, from now on at least.
    pub(crate) fn of(&self, peer: u64) -> Arc<Traffic> {
        let mut known = self.0.lock();
        if let Some(traffic) = known.get(&peer) {
            return Arc::clone(traffic);
        }
        let traffic = Arc::new(Traffic::new(peer));
        if known.len() < PEERS_MAX {
            known.insert(peer, Arc::clone(&traffic));
        }
        traffic
    }

    /// That with `peer`, if there was some.
    pub(crate) fn known(&self, peer: u64) -> Option<Arc<Traffic>> {
        self.0.lock().get(&peer).cloned()
    }

    /// All, by the peers' ids.
    pub(crate) fn all(&self) -> Vec<(u64, Arc<Traffic>)> {
        let known = self.0.lock();
        let each = known.iter();
        each.map(|(peer, traffic)| (*peer, Arc::clone(traffic)))
            .collect()
    }
}

/// A connection to a peer whose bytes are counted.
pub(super) struct Metered {
    pub(super) inner: Box<dyn PeerStream>,
    pub(super) traffic: Arc<Traffic>,
}

impl Metered {
    fn sent(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.traffic.sent_bytes.add(as_count(*bytes));
        }
        written
    }
}

fn as_count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let bytes = buffer.filled().len().saturating_sub(before);
        self.traffic.received_bytes.add(as_count(bytes));
        read
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_lost_once_until_it_answers_again() {
        let traffics = Traffics::default();
        let traffic = traffics.of(7);
        traffic.lost("no route");
        assert_eq!((traffic.failures.get(), traffic.losses.get()), (1, 0));
        traffic.answered();
        assert!(traffic.is_active());
        for _ in 0..3 {
            traffic.failed(&Status::unavailable("gone"));
        }
        assert!(!traffics.known(7).unwrap().is_active());
        assert_eq!((traffic.failures.get(), traffic.losses.get()), (4, 1));
        traffic.answered();
        // It is there and says no.
        traffic.failed(&Status::failed_precondition("another cluster"));
        assert!(traffic.is_active());
        assert_eq!((traffic.failures.get(), traffic.losses.get()), (5, 1));
    }

    #[test]
    fn no_more_peers_are_told_apart_than_a_cluster_can_have() {
        let traffics = Traffics::default();
        for peer in 0..1000 {
            traffics.of(peer).answered();
        }
        assert_eq!(traffics.all().len(), PEERS_MAX);
    }
}
