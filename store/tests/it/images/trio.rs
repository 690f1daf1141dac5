//! Three members in one process, each on a disk of its own, and clients that write.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_store::Error;
use holdfast_store::api::peer_routes;
use holdfast_store::apply::NoEvents;
use holdfast_store::member::{Member, MemberOptions};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::disk::Disk;
use crate::api_support::PATIENCE;
use crate::cluster_support::{Network, free_ports};
use crate::crash::disk::Dice;
use crate::member::put;

/// How long one write may take; without a quorum it never ends.
const WRITE_MAX: Duration = Duration::from_millis(800);
/// Bytes of a log segment: small, so that the log rolls over often.
const SEGMENT_BYTES: u64 = 64 << 10;

/// One member: where it lies, and what it runs on.
pub(crate) struct Seat {
    pub(crate) folder: PathBuf,
    pub(crate) disk: Disk,
    running: Option<Running>,
}

struct Running {
    member: Member,
    stop: CancellationToken,
    serving: JoinSet<()>,
}

/// The members and the network between them.
pub(crate) struct Trio {
    home: TempDir,
    ports: Vec<u16>,
    pub(crate) network: Arc<Network>,
    pub(crate) seats: Vec<Seat>,
    folders: u64,
}

impl Trio {
    pub(crate) async fn start() -> Trio {
        // In memory where there is a place for it: what is durable is remembered apart.
        let home = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new());
        let mut trio = Trio {
            home: home.unwrap(),
            ports: free_ports(3),
            network: Arc::default(),
            seats: Vec::new(),
            folders: 0,
        };
        for _ in 0..3 {
            let folder = trio.new_folder();
            trio.seats.push(Seat {
                disk: Disk::of(&folder),
                folder,
                running: None,
            });
        }
        for at in 0..3 {
            trio.launch(at).await.unwrap();
        }
        for at in 0..3 {
            trio.ready(at).await.unwrap();
        }
        trio
    }

    fn new_folder(&mut self) -> PathBuf {
        self.folders += 1;
        self.home.path().join(format!("{}", self.folders))
    }

    fn options(&self, at: usize) -> MemberOptions {
        let url = |at: usize| vec![format!("http://127.0.0.1:{}", self.ports[at])];
        let seat = &self.seats[at];
        MemberOptions {
            peer_urls: url(at),
            initial_cluster: (0..3).map(|at| (format!("m{at}"), url(at))).collect(),
            log_segment_bytes: SEGMENT_BYTES,
            reserve_bytes: 0,
            cache_bytes: 64 << 10,
            snapshot_count: 150,
            catch_up_entries: 50,
            heartbeat: Duration::from_millis(50),
            election_timeout: Duration::from_millis(300),
            log_io: Arc::new(seat.disk.clone()),
            state_storage: Some(seat.disk.state_storage()),
            peer_dialer: self.network.dialer(self.ports[at]),
            ..MemberOptions::new(format!("m{at}"), &seat.folder)
        }
    }

    /// Starts a member that is down; its peers reach it when this returns.
    pub(crate) async fn launch(&mut self, at: usize) -> Result<(), Error> {
        let listener = TcpListener::bind(("127.0.0.1", self.ports[at])).await;
        let listener = listener.unwrap();
        let started = Member::start(self.options(at), Arc::new(NoEvents));
        let member = timeout(PATIENCE, started).await.expect("a start ends")?;
        let stop = CancellationToken::new();
        let router = peer_routes(&member, stop.clone()).into_axum_router();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(router.clone());
                connections.spawn(async move {
                    let mut protocol = auto::Builder::new(TokioExecutor::new());
                    protocol.http2().timer(TokioTimer::new());
                    let served = protocol.serve_connection(TokioIo::new(stream), service);
                    // A connection ends as it likes.
                    drop(served.await);
                });
            }
        });
        self.seats[at].running = Some(Running {
            member,
            stop,
            serving,
        });
        Ok(())
    }

    /// Waits until a member serves.
    pub(crate) async fn ready(&self, at: usize) -> Result<(), Error> {
        let ready = timeout(PATIENCE, self.member(at).ready()).await;
        ready.expect("a member gets ready")
    }

    pub(crate) fn member(&self, at: usize) -> &Member {
        &self.seats[at].running.as_ref().expect("it runs").member
    }

    pub(crate) fn is_up(&self, at: usize) -> bool {
        self.seats[at].running.is_some()
    }

    /// Cuts a member off from all others.
    pub(crate) fn isolate(&self, at: usize) {
        self.network.isolate(self.ports[at], &self.ports);
    }

    /// Ends a member without a word to the others.
    pub(crate) async fn kill(&mut self, at: usize) {
        let Some(mut running) = self.seats[at].running.take() else {
            return;
        };
        self.isolate(at);
        running.stop.cancel();
        running.serving.shutdown().await;
        // Over a disk without power it cannot end well.
        drop(running.member.stop().await);
    }

    /// The power of a member fails: it ends, and its disk has what a loss of power leaves.
    pub(crate) async fn lose_power(&mut self, at: usize, dice: &mut Dice) {
        self.kill(at).await;
        let folder = self.new_folder();
        let seat = &mut self.seats[at];
        seat.disk.image(&seat.folder, &folder, dice);
        std::fs::remove_dir_all(&seat.folder).unwrap();
        seat.disk = Disk::of(&folder);
        seat.folder = folder;
    }

    /// Puts the files of a member that is down back to how they were.
    pub(crate) fn put_back(&mut self, at: usize, files: &[(PathBuf, Vec<u8>)]) {
        let folder = self.new_folder();
        for (inside, bytes) in files {
            let path = folder.join(inside);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        let seat = &mut self.seats[at];
        std::fs::remove_dir_all(&seat.folder).unwrap();
        seat.disk = Disk::of(&folder);
        seat.folder = folder;
    }

    /// The member that leads, once all that run agree.
    pub(crate) async fn leader(&self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let up: Vec<usize> = (0..3).filter(|at| self.is_up(*at)).collect();
            let said: BTreeSet<_> = up.iter().map(|at| self.member(*at).leader()).collect();
            if let (1, Some(Some(leader))) = (said.len(), said.first())
                && let Some(at) = up.iter().find(|at| self.member(**at).id() == *leader)
            {
                return *at;
            }
            assert!(Instant::now() < deadline, "no leader: {said:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the members have the same state, and compares it.
    pub(crate) async fn agree(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let hashes: BTreeSet<_> = (0..3)
                .map(|at| {
                    let state = self.member(at).state();
                    let hash = state.hash_kv(0).unwrap();
                    (hash.hash_revision, hash.hash)
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

/// Clients that write keys of their own, and the keys they were told are written.
#[derive(Debug)]
pub(crate) struct Clients {
    next: Arc<AtomicU64>,
    acknowledged: Arc<Mutex<BTreeSet<u64>>>,
}

impl Clients {
    pub(crate) fn new() -> Self {
        Self {
            next: Arc::default(),
            acknowledged: Arc::default(),
        }
    }

    /// Writes through `member` with several hands until the set is dropped.
    pub(crate) fn write(&self, member: &Member, hands: usize) -> JoinSet<()> {
        let mut writing = JoinSet::new();
        for _ in 0..hands {
            let (next, acknowledged) = (Arc::clone(&self.next), Arc::clone(&self.acknowledged));
            let member = member.clone();
            writing.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let value = vec![b'v'; 100 + usize::try_from(number % 7).unwrap() * 300];
                    let written = member.propose(put(&key(number), &value));
                    match timeout(WRITE_MAX, written).await {
                        Ok(Ok(_)) => {
                            acknowledged.lock().insert(number);
                        }
                        _ => sleep(Duration::from_millis(10)).await,
                    }
                }
            });
        }
        writing
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.lock().len()
    }

    /// Every key that was acknowledged can be read from `member`.
    pub(crate) fn check(&self, member: &Member) {
        for number in &*self.acknowledged.lock() {
            let request = holdfast_proto::etcd::rpc::RangeRequest {
                key: key(*number).into(),
                keys_only: true,
                ..Default::default()
            };
            let found = member.state().range(&request).unwrap();
            assert_eq!(found.kvs.len(), 1, "write {number} is lost");
        }
    }
}

fn key(number: u64) -> String {
    format!("write/{number:08}")
}
