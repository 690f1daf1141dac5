//! The members' connections over the simulated network.

use std::convert::Infallible;

use holdfast_store::consensus::peer::{Dialing, PeerDialer, PeerStream};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tonic::service::Routes;
use turmoil::net::{TcpListener, TcpStream};

/// The port on which every member hears the others.
pub const PEER_PORT: u16 = 2380;

/// Connects over the simulated network.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedDialer;

impl PeerDialer for SimulatedDialer {
    fn dial(&self, host: &str, port: u16) -> Dialing {
        let host = host.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            let stream: Box<dyn PeerStream> = Box::new(stream);
            Ok(stream)
        })
    }
}

/// Serves `routes` on the peer port until the host goes down.
///
/// # Errors
/// When the port cannot be bound.
pub async fn serve(routes: Routes) -> std::io::Result<Infallible> {
    let listener = TcpListener::bind(("0.0.0.0", PEER_PORT)).await?;
    let router = routes.into_axum_router();
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(router.clone());
        drop(tokio::spawn(async move {
            let mut protocol = auto::Builder::new(TokioExecutor::new());
            protocol.http2().timer(TokioTimer::new());
            let connection = protocol.serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a simulated connection ended");
            }
        }));
    }
}
