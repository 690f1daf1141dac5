//! Accepting connections: one port for gRPC, HTTP/2 in clear and HTTP/1.1.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, lookup_host};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connections::Connections;
use super::front::Front;
use super::gather::{Gathering, Streams, Tracked};
use crate::error::Error;
use crate::options::{ListenOptions, ListenUrl};
use crate::tls::Tls;

/// How an HTTP/2 connection begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// An HTTP/2 client says its settings right after that: the head of a frame.
const SETTINGS_HEAD_LEN: usize = 9;

/// Time a client has to say the first words, and an HTTP/1.1 client all its headers.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Longest pause after a failed accept.
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Time running requests have to end when the server stops.
pub(super) const DRAIN_MAX: Duration = Duration::from_millis(400);

/// A bound address.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, Arc<Tls>),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Binds one address; `tls` is for one of https.
    pub(super) async fn bind(url: &ListenUrl, tls: Option<&Arc<Tls>>) -> Result<Listener, Error> {
        let failed = |source| Error::Listen {
            url: url.to_string(),
            source,
        };
        match url {
            ListenUrl::Http { host, port } => {
                let listener = bind_tcp(host, *port).await.map_err(failed)?;
                Ok(Listener::Tcp(listener))
            }
            ListenUrl::Https { host, port } => {
                let tls = tls.filter(|tls| tls.can_accept()).ok_or_else(|| {
                    failed(io::Error::other("there is no certificate and key for TLS"))
                })?;
                let listener = bind_tcp(host, *port).await.map_err(failed)?;
                Ok(Listener::Tls(listener, Arc::clone(tls)))
            }
            ListenUrl::Unix { path } => {
                // A socket left by an earlier process; a live one would hold the data directory.
                match std::fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(failed(error));
                    }
                    _ => {}
                }
                let listener = UnixListener::bind(path).map_err(failed)?;
                Ok(Listener::Unix(listener, path.clone()))
            }
        }
    }

    /// The TCP address bound.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener, _) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }

    /// The URL clients reach it by.
    pub(super) fn url(&self) -> String {
        let scheme = match self {
            Listener::Tcp(_) => "http",
            Listener::Tls(..) => "https",
            Listener::Unix(_, path) => return format!("unix://{}", path.display()),
        };
        let address = self.address();
        address.map_or_else(String::new, |address| format!("{scheme}://{address}"))
    }
}

async fn bind_tcp(host: &str, port: u16) -> io::Result<TcpListener> {
    let mut addresses: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
    // A name that has addresses of both kinds means the older one, as in Go.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    TcpListener::bind(addresses.as_slice()).await
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // The socket may be gone already; there is nothing else to do about it.
            drop(std::fs::remove_file(path));
        }
    }
}

/// What every connection is served with.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) front: Arc<Front>,
    pub(super) connections: Connections,
    pub(super) limits: ListenOptions,
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// The protocols' limits.
fn protocol(options: &ListenOptions, executor: Tracked) -> auto::Builder<Tracked> {
    let mut protocol = auto::Builder::new(executor);
    protocol
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_MAX);
    protocol
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(options.concurrent_streams_max)
        .keep_alive_interval(Some(options.keepalive_interval))
        .keep_alive_timeout(options.keepalive_timeout);
    protocol
}

/// Accepts until the server stops. A failed accept (too many open files, say) is logged and tried
/// again: connections that are there go on.
pub(super) async fn accept(listener: Listener, serving: Serving) {
    let mut pause = Duration::ZERO;
    loop {
        let admitted = tokio::select! {
            () = serving.stop.cancelled() => return,
            admitted = serving.connections.admit() => admitted,
        };
        let Some(permit) = admitted else {
            return;
        };
        let accepted = tokio::select! {
            () = serving.stop.cancelled() => return,
            accepted = accept_one(&listener, &serving, permit) => accepted,
        };
        match accepted {
            Ok(()) => pause = Duration::ZERO,
            Err(error) => {
                pause = (pause * 2).clamp(Duration::from_millis(5), ACCEPT_PAUSE_MAX);
                serving.rejected(&error);
                tokio::time::sleep(pause).await;
            }
        }
    }
}

async fn accept_one(
    listener: &Listener,
    serving: &Serving,
    permit: OwnedSemaphorePermit,
) -> io::Result<()> {
    let tasks = serving.tasks.clone();
    let serving = serving.clone();
    match listener {
        Listener::Tcp(listener) => {
            let (stream, peer) = listener.accept().await?;
            stream.set_nodelay(true)?;
            drop(tasks.spawn(async move {
                serve_once_heard(stream, peer, serving).await;
                drop(permit);
            }));
        }
        Listener::Tls(listener, tls) => {
            let (stream, peer) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let tls = Arc::clone(tls);
            drop(tasks.spawn(async move {
                let taken = tls.accept(stream, peer.ip());
                match tokio::time::timeout(HANDSHAKE_MAX, taken).await {
                    Ok(Ok(stream)) => serve_once_heard(stream, peer, serving).await,
                    Ok(Err(error)) => serving.rejected_from(peer, &error),
                    Err(elapsed) => serving.rejected_from(peer, &elapsed),
                }
                drop(permit);
            }));
        }
        Listener::Unix(listener, _) => {
            let (stream, _) = listener.accept().await?;
            drop(tasks.spawn(async move {
                serve(stream, Bytes::new(), None, serving).await;
                drop(permit);
            }));
        }
    }
    Ok(())
}

impl Serving {
    fn rejected(&self, error: &dyn std::error::Error) {
        let endpoint = self.connections.endpoint();
        tracing::warn!(%error, "rejected connection on {endpoint} endpoint");
    }

    fn rejected_from(&self, peer: SocketAddr, error: &dyn std::error::Error) {
        let endpoint = self.connections.endpoint();
        tracing::warn!(
            remote_addr = %peer,
            %error,
            "rejected connection on {endpoint} endpoint"
        );
    }
}

/// Serves a connection once the client has said enough to tell its protocol, and in HTTP/2 to be
/// served.
async fn serve_once_heard(
    mut stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    serving: Serving,
) {
    match tokio::time::timeout(HANDSHAKE_MAX, first_words(&mut stream)).await {
        Ok(Ok(said)) => serve(stream, said, Some(peer), serving).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "connection ended early"),
        Err(elapsed) => serving.rejected_from(peer, &elapsed),
    }
}

async fn first_words(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    let mut words = [0; PREFACE.len() + SETTINGS_HEAD_LEN];
    let mut length = 0;
    loop {
        let rest = words.get_mut(length..).unwrap_or_default();
        let read = stream.read(rest).await?;
        length += read;
        let said = words.get(..length).unwrap_or_default();
        let is_other = !said.starts_with(PREFACE) && !PREFACE.starts_with(said);
        if read == 0 || length == words.len() || is_other {
            return Ok(Bytes::copy_from_slice(said));
        }
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    said: Bytes,
    peer: Option<SocketAddr>,
    serving: Serving,
) {
    let front = serving.front;
    let service = service_fn(move |request: Request<Incoming>| {
        let front = Arc::clone(&front);
        async move { Ok::<_, Infallible>(front.answer(peer, request).await) }
    });
    let streams = Streams::default();
    let stream = Gathering::new(stream, said, streams.clone());
    let executor = Tracked {
        tasks: serving.tasks,
        streams,
    };
    let protocol = protocol(&serving.limits, executor);
    let connection = protocol.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = serving.stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(DRAIN_MAX, connection).await {
                Ok(result) => result,
                Err(_elapsed) => return,
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(error = %error, "connection ended with an error");
    }
}
