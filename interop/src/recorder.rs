//! Clients that record what they ask, what they are told and when.

mod calls;
mod leases;
mod watching;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_proto::etcd::rpc;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::Client;
use crate::history::calls::KEYS;
use crate::history::{History, Key, Lease, Nanos, Operation, Watch};

pub use watching::all_changes;

/// An operation that takes longer is given up, its outcome unknown.
const CALL_MAX: Duration = Duration::from_secs(8);
/// Pause after a failed call, so that a cluster without a leader is not flooded.
const FAILURE_PAUSE: Duration = Duration::from_millis(50);

/// Who acts, and on what.
#[derive(Debug, Clone)]
pub struct Load {
    /// Where the members serve.
    pub endpoints: Vec<String>,
    /// Clients with an operation under way each.
    pub clients: u32,
    /// Watches over all keys.
    pub watches: u32,
    /// Leases that are granted, kept for a while and left to run out.
    pub leases: u32,
    /// Operations of each client, at most.
    pub operations_max: usize,
    /// The pause between two operations of a client.
    pub pause: Duration,
    /// What is done follows from it.
    pub seed: u64,
}

/// Recording clients at work.
#[derive(Debug)]
pub struct Recording {
    load: Load,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    base: i64,
    clients: JoinSet<Vec<Operation>>,
    leases: JoinSet<(Vec<Operation>, Vec<Lease>)>,
    watches: JoinSet<Watch>,
}

/// What all clients of a recording share.
#[derive(Debug)]
struct Shared {
    start: Instant,
    next_value: AtomicU64,
    answered: AtomicU64,
}

impl Shared {
    /// Nanoseconds since the start.
    fn now(&self) -> Nanos {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A value that nobody has written yet.
    fn value(&self) -> u64 {
        self.next_value.fetch_add(1, Ordering::Relaxed)
    }
}

/// What was recorded: the clients' history and what every watch saw.
#[derive(Debug)]
pub struct Recorded {
    /// The clients' history, complete with all changes.
    pub history: History,
    /// What each watch saw.
    pub watches: Vec<Watch>,
}

impl Recording {
    /// Sets the clients to work on a store whose keys `k0..` are all absent.
    ///
    /// # Errors
    /// When the first member does not answer.
    pub async fn start(load: Load) -> Result<Self> {
        let endpoint = load.endpoints.first().context("no endpoint")?;
        let base = newest(endpoint).await?;
        let shared = Arc::new(Shared {
            start: Instant::now(),
            next_value: AtomicU64::new(1),
            answered: AtomicU64::new(0),
        });
        let mut recording = Self {
            stop: watch::Sender::new(false),
            base,
            clients: JoinSet::new(),
            leases: JoinSet::new(),
            watches: JoinSet::new(),
            load,
            shared,
        };
        for number in 0..recording.load.clients {
            let actor = recording.actor(number);
            recording.clients.spawn(calls::act(actor));
        }
        for number in 0..recording.load.leases {
            let actor = recording.actor(1000 + number);
            let key = KEYS + Key::try_from(number)?;
            recording.leases.spawn(leases::act(actor, key));
        }
        for number in 0..recording.load.watches {
            let actor = recording.actor(2000 + number);
            recording.watches.spawn(watching::act(actor, base + 1));
        }
        Ok(recording)
    }

    fn actor(&self, number: u32) -> Actor {
        Actor {
            number,
            rng: StdRng::seed_from_u64(self.load.seed.wrapping_add(u64::from(number))),
            load: self.load.clone(),
            shared: Arc::clone(&self.shared),
            stop: self.stop.subscribe(),
            client: None,
        }
    }

    /// Operations answered so far.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Waits until `count` further operations were answered: the store makes progress.
    ///
    /// # Errors
    /// When it does not within `max`.
    pub async fn progress(&self, count: u64, max: Duration) -> Result<()> {
        let goal = self.answered() + count;
        let end = Instant::now() + max;
        while self.answered() < goal {
            ensure!(
                Instant::now() < end,
                "{} of {goal} operations answered within {max:?}",
                self.answered()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Ends all clients and reads every change back; the cluster must be healthy.
    ///
    /// # Errors
    /// When the changes cannot be read.
    pub async fn finish(mut self) -> Result<Recorded> {
        self.stop.send_replace(true);
        let mut history = History {
            base: self.base,
            ..History::default()
        };
        while let Some(operations) = self.clients.join_next().await {
            history.operations.extend(operations?);
        }
        while let Some(leased) = self.leases.join_next().await {
            let (operations, leases) = leased?;
            history.operations.extend(operations);
            history.leases.extend(leases);
        }
        let mut watches = Vec::new();
        while let Some(watch) = self.watches.join_next().await {
            watches.push(watch?);
        }
        let endpoint = self.load.endpoints.first().context("no endpoint")?;
        let last = newest(endpoint).await?;
        history.events = all_changes(endpoint, self.base, last).await?;
        Ok(Recorded { history, watches })
    }
}

/// One recording client.
struct Actor {
    number: u32,
    rng: StdRng,
    load: Load,
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
    client: Option<Client>,
}

impl Actor {
    fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// A connection to some member; another one after a failure.
    async fn client(&mut self) -> Option<Client> {
        if self.client.is_none() {
            let place = self.rng.random_range(0..self.load.endpoints.len());
            let endpoint = self.load.endpoints.get(place)?.clone();
            let connected = tokio::time::timeout(CALL_MAX, Client::connect(&endpoint)).await;
            self.client = connected.ok().and_then(Result::ok);
        }
        if self.client.is_none() {
            tokio::time::sleep(FAILURE_PAUSE).await;
        }
        self.client.clone()
    }

    /// After a failed call: another member, a little later.
    async fn failed(&mut self) {
        self.client = None;
        tokio::time::sleep(FAILURE_PAUSE).await;
    }
}

/// The newest revision, confirmed by the cluster.
///
/// # Errors
/// When the member does not answer.
pub async fn newest(endpoint: &str) -> Result<i64> {
    let mut client = Client::connect(endpoint).await?;
    let request = rpc::RangeRequest {
        key: b"k".to_vec().into(),
        ..rpc::RangeRequest::default()
    };
    let answer = client.kv.range(request).await?.into_inner();
    Ok(answer.header.context("no header")?.revision)
}
