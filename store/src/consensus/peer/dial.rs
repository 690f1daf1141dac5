//! How a connection to a peer URL is made, over TLS when it is one of https.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};

use crate::tls::Tls;

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

/// How peers are called; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Dialers {
    /// Makes the connections.
    pub(crate) plain: Arc<dyn PeerDialer>,
    /// TLS over those to URLs of https.
    pub(crate) tls: Option<Arc<Tls>>,
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
    dialers: &Dialers,
    urls: &[String],
    first: usize,
) -> io::Result<(Box<dyn PeerStream>, usize)> {
    let mut failure = io::Error::new(io::ErrorKind::NotConnected, "it has no peer URL");
    for turn in 0..urls.len() {
        let at = first.wrapping_add(turn) % urls.len();
        let Some(url) = urls.get(at) else { continue };
        match dial_url(dialers, url, &["h2"]).await {
            Ok(stream) => return Ok((stream, at)),
            Err(error) => {
                failure = io::Error::new(error.kind(), format!("{url}: {error}"));
            }
        }
    }
    Err(failure)
}

/// Connects to `url`; over TLS the protocols `alpn` are offered, if there are some.
pub(crate) async fn dial_url(
    dialers: &Dialers,
    url: &str,
    alpn: &[&str],
) -> io::Result<Box<dyn PeerStream>> {
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text.to_owned());
    let uri: Uri = url.parse().or(Err(invalid("it is no URL")))?;
    let tls = match (uri.scheme_str(), &dialers.tls) {
        (Some("http"), _) => None,
        (Some("https"), Some(tls)) => Some(tls),
        (Some("https"), None) => {
            return Err(invalid(
                "it is one of https, and this member has no TLS: give it --peer-cert-file, \
                 --peer-key-file and --peer-trusted-ca-file",
            ));
        }
        _ => return Err(invalid("only http and https are spoken between members")),
    };
    let (Some(host), Some(port)) = (uri.host(), uri.port_u16()) else {
        return Err(invalid("it has no host and port"));
    };
    // A literal IPv6 address stands in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = dialers.plain.dial(host, port).await?;
    let Some(tls) = tls else { return Ok(stream) };
    Ok(Box::new(tls.connect(stream, host, alpn).await?))
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
        let dialers = Dialers {
            plain: Arc::new(TcpDialer),
            tls: None,
        };
        let (_stream, used) = dial_any(&dialers, &urls, 0).await.ok().unwrap();
        assert_eq!(used, 1);
        let (_stream, used) = dial_any(&dialers, &urls, 1).await.ok().unwrap();
        assert_eq!(used, 1);
        let refused = dial_any(&dialers, &urls[..1], 0).await.err().unwrap();
        assert!(refused.to_string().contains(&urls[0]), "{refused}");
        let wrong = ["https://127.0.0.1:1".to_owned()];
        let refused = dial_any(&dialers, &wrong, 0).await.err().unwrap();
        assert!(
            refused.to_string().contains("--peer-cert-file"),
            "{refused}"
        );
    }
}
