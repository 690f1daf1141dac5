//! Several members in one process, on free loopback ports, and a network between them that can be
//! cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_proto::etcd::rpc;
use holdfast_store::Error;
use holdfast_store::api::StoreServer;
use holdfast_store::consensus::peer::{Dialing, PeerDialer, PeerStream};
use holdfast_store::member::Member;
use holdfast_store::options::{ListenUrl, StoreOptions};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::api_support::PATIENCE;
use crate::member::put;

/// The loopback network between the members of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Network {
    /// Pairs (from, to) between which nothing passes, by the ports of their peer URLs.
    cut: Mutex<BTreeSet<(u16, u16)>>,
    /// Connections that are open, by the order in which they were made.
    open: Mutex<BTreeMap<u64, (u16, u16)>>,
    made: AtomicU64,
    relays: Mutex<JoinSet<()>>,
}

/// One member's way out: refuses to dial over a cut, and cuts what is there.
#[derive(Debug)]
struct Dialer {
    from: u16,
    network: Arc<Network>,
}

impl Network {
    /// The way out of the member whose peer port is `from`.
    pub(crate) fn dialer(self: &Arc<Self>, from: u16) -> Arc<dyn PeerDialer> {
        Arc::new(Dialer {
            from,
            network: Arc::clone(self),
        })
    }

    /// Nothing passes between `own` and the others of `ports` any more.
    pub(crate) fn isolate(&self, own: u16, ports: &[u16]) {
        let mut cut = self.cut.lock().unwrap();
        for other in ports.iter().filter(|port| **port != own) {
            cut.insert((own, *other));
            cut.insert((*other, own));
        }
    }

    /// Everything passes again.
    pub(crate) fn heal(&self) {
        self.cut.lock().unwrap().clear();
    }

    /// How many connections were made so far.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }

    /// Connections to or from `port` that are open and were among the first `made`.
    pub(crate) fn open_of(&self, port: u16, made: u64) -> usize {
        let open = self.open.lock().unwrap();
        let old = open.range(..made).map(|(_, ends)| ends);
        old.filter(|(from, to)| *from == port || *to == port)
            .count()
    }

    fn is_cut(&self, from: u16, to: u16) -> bool {
        self.cut.lock().unwrap().contains(&(from, to))
    }
}

impl PeerDialer for Dialer {
    fn dial(&self, host: &str, port: u16) -> Dialing {
        let (host, from, network) = (host.to_owned(), self.from, Arc::clone(&self.network));
        Box::pin(async move {
            if network.is_cut(from, port) {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the network is cut",
                ));
            }
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            let (near, far) = tokio::io::duplex(1 << 20);
            let passing = relay(far, stream, Arc::clone(&network), (from, port));
            network.relays.lock().unwrap().spawn(passing);
            let near: Box<dyn PeerStream> = Box::new(near);
            Ok(near)
        })
    }
}

/// Copies both ways until an end closes or the network is cut.
async fn relay(
    mut near: tokio::io::DuplexStream,
    mut far: TcpStream,
    network: Arc<Network>,
    (from, to): (u16, u16),
) {
    let number = network.made.fetch_add(1, Ordering::SeqCst);
    network.open.lock().unwrap().insert(number, (from, to));
    let cut = async {
        while !network.is_cut(from, to) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = cut => {}
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
    }
    network.open.lock().unwrap().remove(&number);
}

/// Members of one cluster; each may be down.
pub(crate) struct Cluster {
    _directory: TempDir,
    pub(crate) network: Arc<Network>,
    pub(crate) servers: Vec<Option<StoreServer>>,
    pub(crate) options: Vec<StoreOptions>,
    ports: Vec<u16>,
}

impl Cluster {
    /// Starts `size` members of a new cluster and waits until all serve.
    pub(crate) async fn start(size: usize) -> Cluster {
        Cluster::start_with(size, |_| {}).await
    }

    pub(crate) async fn start_with(size: usize, change: impl Fn(&mut StoreOptions)) -> Cluster {
        let mut cluster = Cluster::plan(size, change);
        cluster.start_all().await;
        cluster
    }

    /// A cluster of which no member runs yet.
    pub(crate) fn plan(size: usize, change: impl Fn(&mut StoreOptions)) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let network = Arc::<Network>::default();
        let ports = free_ports(size);
        let name = |at: usize| format!("m{at}");
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let initial: Vec<_> = ports
            .iter()
            .enumerate()
            .map(|(at, port)| (name(at), vec![url(*port)]))
            .collect();
        let options = ports.iter().enumerate().map(|(at, port)| {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let mut options =
                StoreOptions::single(&name(at), &directory.path().join(name(at)), any);
            options.listen.peer_urls = vec![ListenUrl::Http {
                host: "127.0.0.1".to_owned(),
                port: *port,
            }];
            options.cluster.advertise_peer_urls = vec![url(*port)];
            options.cluster.initial_cluster.clone_from(&initial);
            options.limits.cache_bytes = 8 << 20;
            options.raft.heartbeat = Duration::from_millis(50);
            options.raft.election_timeout = Duration::from_millis(500);
            options.peer_dialer = network.dialer(*port);
            change(&mut options);
            options
        });
        Cluster {
            options: options.collect(),
            servers: (0..size).map(|_| None).collect(),
            _directory: directory,
            network,
            ports,
        }
    }

    /// Starts all members that are down, together.
    pub(crate) async fn start_all(&mut self) {
        let down: Vec<usize> = (0..self.servers.len())
            .filter(|at| self.servers[*at].is_none())
            .collect();
        let started = down
            .iter()
            .map(|at| StoreServer::start(self.options[*at].clone()));
        let started = timeout(PATIENCE, futures::future::join_all(started)).await;
        for (at, server) in down.iter().zip(started.expect("the cluster starts")) {
            self.servers[*at] = Some(server.unwrap());
        }
    }

    pub(crate) async fn restart(&mut self, at: usize) {
        assert!(self.servers[at].is_none(), "m{at} runs");
        let started = timeout(PATIENCE, StoreServer::start(self.options[at].clone())).await;
        self.servers[at] = Some(started.expect("it starts").unwrap());
    }

    pub(crate) fn member(&self, at: usize) -> &Member {
        self.servers[at].as_ref().expect("it runs").member()
    }

    pub(crate) fn running(&self) -> Vec<usize> {
        (0..self.servers.len())
            .filter(|at| self.servers[*at].is_some())
            .collect()
    }

    /// The member that leads, once all that run agree on it.
    pub(crate) async fn leader(&self) -> usize {
        self.leader_among(&self.running()).await
    }

    pub(crate) async fn leader_among(&self, those: &[usize]) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let leaders: BTreeSet<_> = those
                .iter()
                .map(|at| self.member(*at).leader().map(|leader| leader.0))
                .collect();
            let agreed = (leaders.len() == 1)
                .then(|| leaders.first().copied().flatten())
                .flatten();
            let found = agreed
                .and_then(|leader| those.iter().find(|at| self.member(**at).id().0 == leader));
            if let Some(at) = found {
                return *at;
            }
            assert!(Instant::now() < deadline, "no leader: {leaders:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// A member that runs and does not lead.
    pub(crate) async fn follower(&self) -> usize {
        let leader = self.leader().await;
        let mut others = self.running().into_iter();
        others.find(|at| *at != leader).expect("a follower")
    }

    /// Stops a member in order.
    pub(crate) async fn stop(&mut self, at: usize) {
        let server = self.servers[at].take().expect("it runs");
        server.stop().await.unwrap();
    }

    /// Ends a member without a word to the others.
    pub(crate) async fn kill(&mut self, at: usize) {
        self.isolate(at);
        self.stop(at).await;
        self.network.heal();
    }

    pub(crate) async fn stop_all(&mut self) {
        for at in self.running() {
            self.stop(at).await;
        }
    }

    /// Nothing passes between member `at` and the others any more.
    pub(crate) fn isolate(&self, at: usize) {
        self.network.isolate(self.ports[at], &self.ports);
    }

    /// Everything passes again.
    pub(crate) fn heal(&self) {
        self.network.heal();
    }

    /// Cuts member `at` off, and waits until the connections that it had among the first `made`
    /// are gone.
    pub(crate) async fn disconnect(&self, at: usize, made: u64) {
        self.isolate(at);
        let is_gone = || async { self.network.open_of(self.ports[at], made) == 0 };
        crate::api_support::eventually(is_gone).await;
    }

    /// Puts through member `at`; the revision.
    pub(crate) async fn put(&self, at: usize, key: &str, value: &str) -> Result<i64, Error> {
        let applied = self.member(at).propose(put(key, value.as_bytes())).await?;
        let holdfast_store::apply::Response::Put(response) = applied.response else {
            panic!("an answer to a put");
        };
        Ok(crate::api_support::revision(response.header.as_ref()))
    }

    /// Reads from the state of member `at`, as it is.
    pub(crate) fn read(&self, at: usize, key: &str) -> Option<String> {
        let request = rpc::RangeRequest {
            key: key.to_owned().into(),
            ..rpc::RangeRequest::default()
        };
        let found = self.member(at).state().range(&request).unwrap();
        let value = found.kvs.first()?.value.to_vec();
        Some(String::from_utf8(value).unwrap())
    }

    /// Reads linearizably through member `at`.
    pub(crate) async fn get(&self, at: usize, key: &str) -> Result<Option<String>, Error> {
        self.member(at).linearizable().await?;
        Ok(self.read(at, key))
    }

    /// Waits until the members that run have the same state, and compares their hashes.
    pub(crate) async fn agree(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let hashes: BTreeSet<_> = self
                .running()
                .into_iter()
                .map(|at| {
                    let state = self.member(at).state();
                    let revision = state.revision();
                    (revision, state.hash_kv(revision).unwrap().hash)
                })
                .collect();
            if hashes.len() == 1 {
                return;
            }
            assert!(Instant::now() < deadline, "they differ: {hashes:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Ports that nobody listens on.
pub(crate) fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<_> = (0..count)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    held.iter()
        .map(|listener| listener.local_addr().unwrap().port())
        .collect()
}
