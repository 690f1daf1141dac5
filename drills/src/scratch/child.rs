//! The scratch member's own process.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use holdfast_store::api::StoreServer;
use holdfast_store::options::{ListenUrl, StoreOptions};
use tokio::sync::oneshot;

use super::etcd::EtcdProcess;
use super::order::{MemberOrder, ORDER_BYTES_MAX, Program, READY, Ready};
use crate::auth::AuthFacts;
use crate::error::{Error, Result};

/// What serves.
enum Server {
    Holdfast(Box<StoreServer>),
    Etcd(Box<EtcdProcess>),
}

/// Serves one restored member on a free loopback port until standard input ends.
///
/// The whole of a hidden subcommand: reads one line of JSON from standard input, answers with one
/// line on standard output once it serves, and stops when the input ends, which it does when the
/// drill is over or dead.
pub async fn run_scratch_member() -> Result<()> {
    let (line, mut end) = listen();
    let unread = |reason: String| Error::member(format!("was not told what to do: {reason}"));
    let line = line
        .await
        .map_err(|_closed| unread("no line came".to_owned()))?;
    let order: MemberOrder =
        serde_json::from_str(&line).map_err(|error| unread(error.to_string()))?;
    let mut server = Server::start(&order).await?;
    announce(&Ready {
        address: server.address()?,
        auth: server.auth()?,
    })?;
    let deadline = Duration::from_secs(order.deadline_s);
    let ended = tokio::select! {
        _ = &mut end => Ok(()),
        () = tokio::time::sleep(deadline) => Err(Error::Deadline { seconds: order.deadline_s }),
        reason = server.failed() => Err(Error::member(reason)),
    };
    server.stop().await?;
    ended
}

/// Reads standard input on a thread of its own, which nothing waits for: the first line, and
/// then the end of it.
fn listen() -> (oneshot::Receiver<String>, oneshot::Receiver<()>) {
    let (line_sender, line) = oneshot::channel();
    let (end_sender, end) = oneshot::channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut text = String::new();
        let limit = u64::try_from(ORDER_BYTES_MAX).unwrap_or(u64::MAX);
        if matches!((&mut input).take(limit).read_line(&mut text), Ok(1..))
            && line_sender.send(text).is_ok()
        {
            let mut rest = [0; 512];
            while matches!(input.read(&mut rest), Ok(1..)) {}
        }
        drop(end_sender);
    });
    (line, end)
}

fn announce(ready: &Ready) -> Result<()> {
    let answer = serde_json::to_string(ready).map_err(|error| Error::member(error.to_string()))?;
    let mut output = std::io::stdout().lock();
    let written = writeln!(output, "{READY}{answer}").and_then(|()| output.flush());
    written.map_err(|error| Error::member(format!("cannot answer: {error}")))
}

impl Server {
    async fn start(order: &MemberOrder) -> Result<Self> {
        match &order.program {
            Program::Holdfast => {
                let server = StoreServer::start(store_options(order)?).await;
                let failed = |error| Error::member(format!("does not start: {error}"));
                Ok(Self::Holdfast(Box::new(server.map_err(failed)?)))
            }
            Program::Etcd(program) => {
                let process = EtcdProcess::start(program, order).await?;
                Ok(Self::Etcd(Box::new(process)))
            }
        }
    }

    fn address(&self) -> Result<SocketAddr> {
        match self {
            Self::Holdfast(server) => {
                let addresses = server.client_addresses();
                addresses
                    .first()
                    .copied()
                    .ok_or_else(|| Error::member("listens nowhere"))
            }
            Self::Etcd(process) => Ok(process.address()),
        }
    }

    fn auth(&self) -> Result<Option<AuthFacts>> {
        match self {
            Self::Holdfast(server) => {
                let unread = |error| Error::member(format!("cannot read its users: {error}"));
                let auth = server.member().state().auth().map_err(unread)?;
                Ok(Some(AuthFacts::of(&auth)))
            }
            Self::Etcd(_) => Ok(None),
        }
    }

    async fn failed(&mut self) -> String {
        match self {
            Self::Holdfast(server) => server.failed().await,
            Self::Etcd(process) => process.ended().await,
        }
    }

    async fn stop(self) -> Result<()> {
        match self {
            Self::Holdfast(server) => {
                let failed = |error| Error::member(format!("does not stop: {error}"));
                server.stop().await.map_err(failed)
            }
            Self::Etcd(process) => process.stop().await,
        }
    }
}

fn store_options(order: &MemberOrder) -> Result<StoreOptions> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut options = StoreOptions::single(&order.name, &order.data_dir, address);
    let all = order.cluster.iter();
    let all = all.map(|(name, url)| (name.clone(), vec![url.clone()]));
    options.cluster.initial_cluster = all.collect();
    options.cluster.advertise_peer_urls = vec![order.peer_url().to_owned()];
    options.cluster.token.clone_from(&order.token);
    if order.has_peers() {
        let invalid = |error| Error::member(format!("cannot listen for its peers: {error}"));
        let url = ListenUrl::parse(order.peer_url()).map_err(invalid)?;
        options.listen.peer_urls = vec![url];
    }
    // The copy is nobody's but the drill's, and the drill has no password.
    options.serve_without_auth = true;
    Ok(options)
}
