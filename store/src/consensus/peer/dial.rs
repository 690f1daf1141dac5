//! How a connection to a peer URL is made. TLS for peers has its place here.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};

/// A connection to a peer.
pub trait PeerStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PeerStream for T {}

/// What [`PeerDialer::dial`] returns.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn PeerStream>>> + Send>>;

/// Makes connections to peers. Another one than TCP's is for tests and simulations.
pub trait PeerDialer: fmt::Debug + Send + Sync {
    /// Connects to `host` at `port`.
    fn dial(&self, host: &str, port: u16) -> Dialing;
}

/// Connections over TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpDialer;

impl PeerDialer for TcpDialer {
    fn dial(&self, host: &str, port: u16) -> Dialing {
        let host = host.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            let stream: Box<dyn PeerStream> = Box::new(stream);
            Ok(stream)
        })
    }
}

/// Connections over TCP from one address of this host, so that peers and firewalls know the member
/// by it.
#[derive(Debug, Clone, Copy)]
pub struct BoundDialer {
    /// The address connected from.
    pub local: IpAddr,
}

impl PeerDialer for BoundDialer {
    fn dial(&self, host: &str, port: u16) -> Dialing {
        let (local, host) = (self.local, host.to_owned());
        Box::pin(async move {
            let found = lookup_host((host.as_str(), port)).await?;
            let mut of_kind = found.filter(|address| address.is_ipv4() == local.is_ipv4());
            let address = of_kind.next().ok_or_else(|| {
                let text = format!("{host} has no address that {local} could connect to");
                io::Error::new(io::ErrorKind::AddrNotAvailable, text)
            })?;
            let socket = match local {
                IpAddr::V4(_) => TcpSocket::new_v4()?,
                IpAddr::V6(_) => TcpSocket::new_v6()?,
            };
            socket.bind((local, 0).into())?;
            let stream = socket.connect(address).await?;
            stream.set_nodelay(true)?;
            let stream: Box<dyn PeerStream> = Box::new(stream);
            Ok(stream)
        })
    }
}

/// Connects to the first of `urls`, from `first` on, that answers; which one it was.
pub(super) async fn dial_any(
    dialer: &Arc<dyn PeerDialer>,
    urls: &[String],
    first: usize,
) -> io::Result<(Box<dyn PeerStream>, usize)> {
    let mut failure = io::Error::new(io::ErrorKind::NotConnected, "it has no peer URL");
    for turn in 0..urls.len() {
        let at = first.wrapping_add(turn) % urls.len();
        let Some(url) = urls.get(at) else { continue };
        match dial_url(dialer, url).await {
            Ok(stream) => return Ok((stream, at)),
            Err(error) => {
                failure = io::Error::new(error.kind(), format!("{url}: {error}"));
            }
        }
    }
    Err(failure)
}

/// Connects to `url`.
pub(crate) async fn dial_url(
    dialer: &Arc<dyn PeerDialer>,
    url: &str,
) -> io::Result<Box<dyn PeerStream>> {
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text.to_owned());
    let uri: Uri = url.parse().or(Err(invalid("it is no URL")))?;
    if uri.scheme_str() != Some("http") {
        return Err(invalid("only http is spoken between members"));
    }
    let (Some(host), Some(port)) = (uri.host(), uri.port_u16()) else {
        return Err(invalid("it has no host and port"));
    };
    // A literal IPv6 address stands in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    dialer.dial(host, port).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_urls_of_a_peer_are_tried_in_turn() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed_port = closed.local_addr().unwrap().port();
        drop(closed);
        let urls = [
            format!("http://127.0.0.1:{closed_port}"),
            format!("http://127.0.0.1:{port}"),
        ];
        let dialer: Arc<dyn PeerDialer> = Arc::new(TcpDialer);
        let (_stream, used) = dial_any(&dialer, &urls, 0).await.ok().unwrap();
        assert_eq!(used, 1);
        let (_stream, used) = dial_any(&dialer, &urls, 1).await.ok().unwrap();
        assert_eq!(used, 1);
        let refused = dial_any(&dialer, &urls[..1], 0).await.err().unwrap();
        assert!(refused.to_string().contains(&urls[0]), "{refused}");
        let wrong = ["https://127.0.0.1:1".to_owned()];
        let refused = dial_any(&dialer, &wrong, 0).await.err().unwrap();
        assert!(refused.to_string().contains("only http"), "{refused}");
    }
}
