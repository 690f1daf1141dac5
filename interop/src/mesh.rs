//! The links between the members of a cluster, each of which can be cut, slowed or reset.
//!
//! Every member is advertised at a proxy in front of it. Members are told apart by the loopback
//! address they connect from (etcd's feature gate `SetMemberLocalAddr`), so that each direction
//! between two members is a link of its own: what one sends the other and the answers to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdTcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::hosts;

/// Pieces on their way over a slow link.
const PIECES_MAX: usize = 1024;
const PIECE_BYTES: usize = 64 * 1024;

/// What a link does to what is sent over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Link {
    /// It arrives.
    #[default]
    Open,
    /// It arrives later.
    Slow(Duration),
    /// It is held back until the link changes; nobody is told.
    Cut,
    /// Connections are closed, also new ones.
    Reset,
    /// So many of a hundred packets are lost, drawn one by one; between hosts only, for a proxy
    /// carries streams.
    Lossy(u8),
}

/// From one member to another, by number.
type Direction = (usize, usize);

/// The links; cheap to clone.
#[derive(Debug, Clone)]
pub struct Links {
    state: Arc<Mutex<BTreeMap<Direction, Link>>>,
    /// Bytes that were sent over each and arrived.
    carried: Arc<Mutex<BTreeMap<Direction, u64>>>,
    changes: watch::Sender<u64>,
    /// Whether members have hosts of their own, and no proxies.
    has_hosts: bool,
}

impl Links {
    pub(crate) fn new(has_hosts: bool) -> Self {
        Self {
            state: Arc::default(),
            carried: Arc::default(),
            changes: watch::Sender::new(0),
            has_hosts,
        }
    }

    /// Sets one direction.
    ///
    /// # Panics
    /// When the host of a member refuses it, or a proxy cannot do it.
    pub fn set(&self, from: usize, to: usize, link: Link) {
        assert!(
            self.has_hosts || !matches!(link, Link::Lossy(_)),
            "a proxy loses no packets"
        );
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.insert((from, to), link);
        if self.has_hosts {
            hosts::apply(to, &state).expect("a host with nftables");
        }
        drop(state);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Sets both directions between two members.
    pub fn set_both(&self, one: usize, other: usize, link: Link) {
        self.set(one, other, link);
        self.set(other, one, link);
    }

    /// Sets every link of one member with `count` members, in both directions.
    pub fn set_all_of(&self, member: usize, count: usize, link: Link) {
        for other in (0..count).filter(|other| *other != member) {
            self.set_both(member, other, link);
        }
    }

    /// Opens all links.
    ///
    /// # Panics
    /// When the host of a member refuses it.
    pub fn heal(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let healed: BTreeSet<usize> = state.keys().map(|(_, to)| *to).collect();
        state.clear();
        for member in healed.into_iter().filter(|_| self.has_hosts) {
            hosts::apply(member, &state).expect("a host with nftables");
        }
        drop(state);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Bytes that `from` sent to `to` over connections of its own, and that arrived.
    pub fn carried(&self, from: usize, to: usize) -> u64 {
        let carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
        carried.get(&(from, to)).copied().unwrap_or(0)
    }

    fn count(&self, direction: Direction, bytes: usize) {
        let mut carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
        *carried.entry(direction).or_default() += u64::try_from(bytes).unwrap_or(0);
    }

    fn get(&self, direction: Direction) -> Link {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.get(&direction).copied().unwrap_or_default()
    }
}

/// The loopback address of a member: `127.0.0.<10 + number>`.
///
/// # Panics
/// With more than 200 members.
pub fn address_of(member: usize) -> Ipv4Addr {
    let last = u8::try_from(member + 10).expect("a small cluster");
    Ipv4Addr::new(127, 0, 0, last)
}

/// Proxies in front of members, on threads of their own; they end when it is dropped.
#[derive(Debug)]
pub struct Mesh {
    links: Links,
    /// Taken on drop only.
    runtime: Option<Runtime>,
}

impl Mesh {
    /// A mesh in front of nobody.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn new() -> Result<Self> {
        Ok(Self {
            links: Links::new(false),
            runtime: Some(Runtime::new()?),
        })
    }

    /// The links.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Stands at `front` for the member that listens at `behind`.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn stand_before(&self, member: usize, front: SocketAddr, behind: SocketAddr) -> Result<()> {
        let runtime = self.runtime.as_ref().context("a mesh that has ended")?;
        let _entered = runtime.enter();
        let listener = StdTcpListener::bind(front)?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let links = self.links.clone();
        runtime.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                while connections.try_join_next().is_some() {}
                let Ok((stream, source)) = listener.accept().await else {
                    continue;
                };
                let direction = (number_of(source.ip()), member);
                connections.spawn(carry(stream, behind, direction, links.clone()));
            }
        });
        Ok(())
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The member that an address is of; one that is none of ours for everybody else.
fn number_of(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(address) => usize::from(address.octets()[3]).wrapping_sub(10),
        IpAddr::V6(_) => usize::MAX,
    }
}

/// Carries one connection until either side or the link ends it.
async fn carry(front: TcpStream, behind: SocketAddr, direction: Direction, links: Links) {
    if wait_open(direction, &links).await.is_none() {
        return;
    }
    let Ok(back) = TcpStream::connect(behind).await else {
        return;
    };
    if front.set_nodelay(true).is_err() || back.set_nodelay(true).is_err() {
        return;
    }
    let (front_read, front_write) = front.into_split();
    let (back_read, back_write) = back.into_split();
    tokio::select! {
        () = pump(front_read, back_write, direction, links.clone(), true) => {}
        () = pump(back_read, front_write, direction, links.clone(), false) => {}
        () = until_reset(direction, links) => {}
    }
}

async fn until_reset(direction: Direction, links: Links) {
    let mut changes = links.changes.subscribe();
    while links.get(direction) != Link::Reset {
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Waits while the link is cut; its delay then, `None` for one that resets.
async fn wait_open(direction: Direction, links: &Links) -> Option<Duration> {
    let mut changes = links.changes.subscribe();
    loop {
        match links.get(direction) {
            // `Links::set` has refused a lossy one.
            Link::Open | Link::Lossy(_) => return Some(Duration::ZERO),
            Link::Slow(delay) => return Some(delay),
            Link::Reset => return None,
            Link::Cut => changes.changed().await.ok()?,
        }
    }
}

/// One way of a connection: pieces arrive in order, each as late as the link was slow when sent.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    links: Links,
    is_counted: bool,
) {
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES_MAX);
    let read = {
        let links = links.clone();
        async move {
            let mut buffer = vec![0; PIECE_BYTES];
            loop {
                let Ok(length @ 1..) = from.read(&mut buffer).await else {
                    return;
                };
                let Some(delay) = wait_open(direction, &links).await else {
                    return;
                };
                let piece = buffer.get(..length).unwrap_or_default().to_vec();
                if sender.send((Instant::now() + delay, piece)).await.is_err() {
                    return;
                }
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            if wait_open(direction, &links).await.is_none() || to.write_all(&piece).await.is_err() {
                return;
            }
            if is_counted {
                links.count(direction, piece.len());
            }
        }
    };
    tokio::join!(read, write);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports;

    /// A member that says back what it hears, and a connection to it from member 1.
    async fn echo(mesh: &Mesh) -> TcpStream {
        let behind = TcpListener::bind((address_of(0), 0)).await.unwrap();
        let back = behind.local_addr().unwrap();
        mesh.runtime.as_ref().unwrap().spawn(async move {
            while let Ok((mut stream, _)) = behind.accept().await {
                let (mut read, mut write) = stream.split();
                drop(tokio::io::copy(&mut read, &mut write).await);
            }
        });
        let front = SocketAddr::from((address_of(0), ports::free().unwrap()));
        mesh.stand_before(0, front, back).unwrap();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((address_of(1), 0).into()).unwrap();
        socket.connect(front).await.unwrap()
    }

    async fn says_back(stream: &mut TcpStream, max: Duration) -> bool {
        stream.write_all(b"x").await.unwrap();
        let mut byte = [0; 1];
        let read = tokio::time::timeout(max, stream.read_exact(&mut byte)).await;
        matches!(read, Ok(Ok(1)))
    }

    #[tokio::test]
    async fn a_cut_link_holds_back_what_arrives_once_it_is_open_again() {
        let mesh = Mesh::new().unwrap();
        let mut stream = echo(&mesh).await;
        assert!(says_back(&mut stream, Duration::from_secs(10)).await);
        mesh.links().set(1, 0, Link::Cut);
        assert!(!says_back(&mut stream, Duration::from_millis(100)).await);
        mesh.links().set(2, 0, Link::Cut);
        mesh.links().set(1, 0, Link::Open);
        let mut byte = [0; 1];
        stream.read_exact(&mut byte).await.unwrap();
        mesh.links().heal();
        assert!(says_back(&mut stream, Duration::from_secs(10)).await);
    }

    #[tokio::test]
    async fn a_slow_link_delays_and_a_reset_one_closes() {
        let mesh = Mesh::new().unwrap();
        let mut stream = echo(&mesh).await;
        let delay = Duration::from_millis(60);
        mesh.links().set(1, 0, Link::Slow(delay));
        let start = Instant::now();
        assert!(says_back(&mut stream, Duration::from_secs(10)).await);
        assert!(start.elapsed() >= 2 * delay, "{:?}", start.elapsed());
        mesh.links().set(1, 0, Link::Reset);
        let mut byte = [0; 1];
        assert_eq!(stream.read(&mut byte).await.unwrap_or(0), 0);
    }
}
