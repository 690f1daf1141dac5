//! The connections to one peer: made when first needed, made again when they broke.
//!
//! Three of them, so that a stream of log entries or a snapshot never holds up a heartbeat or an
//! election.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_proto::peer::v1::peer_client::PeerClient;
use http::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tower::service_fn;

use super::dial::{Dialers, dial_any};
use super::handshake::{Identity, Removed};
use super::traffic::{Metered, Traffic};

/// Bytes a message between members may have.
pub(crate) const PEER_MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Bytes on their way on one stream before the receiver must have read them.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// The same for all streams of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// How long a connection may take to be made, and to answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkTimes {
    pub(crate) connect: Duration,
    /// A ping is sent after this much silence.
    pub(crate) ping: Duration,
    /// A connection is given up when a ping is not answered for this long.
    pub(crate) pong: Duration,
}

impl LinkTimes {
    /// Times that fit an election timeout: a dead connection is noticed within about two.
    pub(crate) fn of(election_timeout: Duration) -> Self {
        Self {
            connect: election_timeout.max(Duration::from_millis(500)),
            ping: election_timeout,
            pong: election_timeout.max(Duration::from_millis(500)),
        }
    }
}

/// How one peer is reached.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) urls: Arc<Mutex<Vec<String>>>,
    pub(super) dialers: Dialers,
    pub(super) times: LinkTimes,
    pub(super) traffic: Arc<Traffic>,
}

/// The connections to one peer; cheap to clone through its `Arc`.
#[derive(Debug)]
pub(crate) struct Link {
    pub(super) own: Identity,
    pub(super) id: u64,
    urls: Arc<Mutex<Vec<String>>>,
    calls: Channel,
    appends: Channel,
    snapshots: Channel,
    removed: Removed,
    pub(super) traffic: Arc<Traffic>,
}

impl Link {
    pub(super) fn new(own: Identity, id: u64, way: Way, removed: Removed) -> Self {
        Self {
            own,
            id,
            calls: channel(&way),
            appends: channel(&way),
            snapshots: channel(&way),
            urls: way.urls,
            removed,
            traffic: way.traffic,
        }
    }

    /// Looks at a failed call: the peer may be gone, or have said that this member has been
    /// removed.
    pub(super) fn note(&self, status: &Status) {
        self.removed.note(status);
        self.traffic.failed(status);
    }

    /// The peer is reached at other URLs from the next connection on.
    pub(super) fn move_to(&self, urls: &[String]) {
        let mut known = self.urls.lock();
        if known.as_slice() != urls {
            *known = urls.to_vec();
        }
    }

    /// For calls that must not wait behind others.
    pub(super) fn calls(&self) -> PeerClient<Channel> {
        client(&self.calls)
    }

    /// For log entries and forwarded commands.
    pub(super) fn appends(&self) -> PeerClient<Channel> {
        client(&self.appends)
    }

    /// For snapshots.
    pub(super) fn snapshots(&self) -> PeerClient<Channel> {
        client(&self.snapshots)
    }

    /// A request that says who asks whom.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        self.own.sign(self.id, &mut request);
        request
    }

    /// The same, with the time the caller waits for an answer.
    pub(super) fn request_within<T>(&self, message: T, patience: Duration) -> Request<T> {
        let mut request = self.request(message);
        request.set_timeout(patience);
        request
    }
}

fn client(channel: &Channel) -> PeerClient<Channel> {
    PeerClient::new(channel.clone())
        .max_decoding_message_size(PEER_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(PEER_MESSAGE_BYTES_MAX)
}

fn channel(way: &Way) -> Channel {
    let (urls, dialers) = (Arc::clone(&way.urls), way.dialers.clone());
    let (times, traffic) = (way.times, Arc::clone(&way.traffic));
    // The next connection is tried where the last one was made.
    let first = Arc::new(AtomicUsize::new(0));
    let connector = service_fn(move |_: Uri| {
        let (urls, dialers) = (urls.lock().clone(), dialers.clone());
        let (first, traffic) = (Arc::clone(&first), Arc::clone(&traffic));
        async move {
            let start = first.load(Ordering::Relaxed);
            let (inner, at) = dial_any(&dialers, &urls, start).await?;
            first.store(at, Ordering::Relaxed);
            Ok::<_, io::Error>(TokioIo::new(Metered { inner, traffic }))
        }
    });
    // The address only fills the `:authority` of the requests; the connector knows the URLs.
    Endpoint::from_static("http://peer")
        .connect_timeout(times.connect)
        .http2_keep_alive_interval(times.ping)
        .keep_alive_timeout(times.pong)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .connect_with_connector_lazy(connector)
}
