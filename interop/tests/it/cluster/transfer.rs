//! The whole state goes to a member that is far behind: sent while writes go on, in bounded
//! memory, gone on from where it broke off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use holdfast_interop::client::{Client, limited, status};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::mesh::{Link, Links};
use holdfast_interop::peers::Peers;
use holdfast_interop::server::Kind;
use holdfast_interop::{recorder, usage, wait};
use holdfast_proto::etcd::rpc;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::Request;

use super::{faults, verdict, wait_writable};
use crate::long;
use crate::pair::our_kind;

const VALUE_BYTES: usize = 32 << 10;
/// Clients that fill the store.
const FILLERS: usize = 8;
/// Clients that write while the state is sent.
const WRITERS: usize = 4;
/// How long one of them waits between two writes.
const WRITE_PAUSE: Duration = Duration::from_millis(5);
/// The longest that a write may take while the state is sent: no election, and nothing that waits
/// for the state to be written or read.
const WRITE_MAX: Duration = Duration::from_millis(900);
/// Memory that sending or taking the state may cost, however large it is.
const MEMORY_MIB: f64 = 96.0;
/// How long it may take.
const PATIENCE: Duration = Duration::from_mins(10);

fn put(key: String, value: Vec<u8>) -> Request<rpc::PutRequest> {
    limited(Request::new(rpc::PutRequest {
        key: key.into_bytes().into(),
        value: value.into(),
        ..rpc::PutRequest::default()
    }))
}

/// Writes `mib` MiB through one member, the values of no pattern.
async fn fill(endpoint: &str, mib: usize) -> Result<()> {
    let count = (mib << 20) / VALUE_BYTES;
    let mut fillers = JoinSet::new();
    for filler in 0..FILLERS {
        let mut client = Client::connect(endpoint).await?;
        fillers.spawn(async move {
            let mut rng = StdRng::seed_from_u64(u64::try_from(filler)?);
            for number in (filler..count).step_by(FILLERS) {
                let mut value = vec![0; VALUE_BYTES];
                rng.fill(value.as_mut_slice());
                client
                    .kv
                    .put(put(format!("fill/{number:08}"), value))
                    .await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(filled) = fillers.join_next().await {
        filled??;
    }
    Ok(())
}

/// Clients that write to one member, and how long each write took.
struct Writers {
    stop: Arc<AtomicBool>,
    writing: JoinSet<Result<Vec<Duration>>>,
}

impl Writers {
    async fn start(endpoint: &str) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut writing = JoinSet::new();
        for writer in 0..WRITERS {
            let (mut client, stop) = (Client::connect(endpoint).await?, Arc::clone(&stop));
            writing.spawn(async move {
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let start = wait::now();
                    let key = format!("meanwhile/{writer}/{}", took.len());
                    client.kv.put(put(key, b"x".to_vec())).await?;
                    took.push(start.elapsed());
                    tokio::time::sleep(WRITE_PAUSE).await;
                }
                Ok(took)
            });
        }
        Ok(Self { stop, writing })
    }

    /// Every time, the shortest first.
    async fn end(mut self) -> Result<Vec<Duration>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        while let Some(took) = self.writing.join_next().await {
            all.extend(took??);
        }
        all.sort_unstable();
        Ok(all)
    }
}

/// What was seen while a follower caught up.
#[derive(Debug)]
struct Seen {
    took: Duration,
    /// The state's size.
    state_mib: f64,
    /// What was sent to it.
    sent_mib: f64,
    /// What the leader and the follower took more at their highest than the leader before.
    leader_mib: f64,
    follower_mib: f64,
}

fn mib(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX)) / 1024.0
}

/// Cuts a link and heals it, each time when so much has been sent; how often it came to that.
fn cut(
    at_mib: &[f64],
    sent: impl Fn() -> f64,
    links: &Links,
    (one, other): (usize, usize),
    stop: &AtomicBool,
) -> usize {
    for (done, at_mib) in at_mib.iter().enumerate() {
        while sent() < *at_mib {
            if stop.load(Ordering::Relaxed) {
                return done;
            }
            wait::pause(Duration::from_millis(1));
        }
        links.set_both(one, other, Link::Reset);
        wait::pause(Duration::from_millis(300));
        links.heal();
    }
    at_mib.len()
}

/// Starts a follower that missed everything and waits until it has what the leader had then. The
/// link is cut, and healed, each time when one of `cuts`, parts of the state, has been sent.
fn catch_up(runtime: &Runtime, cluster: &mut Cluster, behind: usize, cuts: &[f64]) -> Result<Seen> {
    let leader = cluster.leader()?;
    let from = cluster.endpoint(leader);
    let said = runtime
        .block_on(status(&from))
        .context("the leader is silent")?;
    let goal = said.header.context("no header")?.revision;
    let state_mib = mib(u64::try_from(said.db_size_in_use)?);
    let links = cluster.links()?.clone();
    let before = usage::memory_mib(cluster.process_id(leader)?, "VmRSS")?;
    let sent_before = links.carried(leader, behind);
    let all = cluster.initial_cluster();
    cluster.launch(behind, &all, "new")?;
    let (start, endpoint) = (wait::now(), cluster.endpoint(behind));
    let (mut leader_mib, mut follower_mib): (f64, f64) = (0.0, 0.0);
    let stop = Arc::new(AtomicBool::new(false));
    let cutting = {
        let (links, stop) = (links.clone(), Arc::clone(&stop));
        let cuts: Vec<f64> = cuts.iter().map(|part| part * state_mib).collect();
        let sent = move || mib(links.carried(leader, behind) - sent_before);
        let links = cluster.links()?.clone();
        std::thread::spawn(move || cut(&cuts, sent, &links, (leader, behind), &stop))
    };
    loop {
        let rss = |at| usage::memory_mib(cluster.process_id(at)?, "VmRSS");
        leader_mib = leader_mib.max(rss(leader)? - before);
        follower_mib = follower_mib.max(rss(behind)? - before);
        let sent_mib = mib(links.carried(leader, behind) - sent_before);
        let reached = runtime
            .block_on(status(&endpoint))
            .and_then(|said| said.header);
        if reached.is_some_and(|header| header.revision >= goal) {
            stop.store(true, Ordering::Relaxed);
            let cut = cutting
                .join()
                .map_err(|_panic| anyhow!("the cutter panicked"))?;
            ensure!(cut == cuts.len(), "cut {cut} times only");
            return Ok(Seen {
                took: start.elapsed(),
                state_mib,
                sent_mib,
                leader_mib,
                follower_mib,
            });
        }
        ensure!(
            start.elapsed() < PATIENCE,
            "it does not catch up: {sent_mib} MiB sent"
        );
        wait::pause(Duration::from_millis(20));
    }
}

/// Half a minute; with 1 GiB several.
#[test]
fn a_follower_gets_the_whole_state_while_writes_go_on_though_the_transfer_is_cut() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let flags = [
        "--quota-backend-bytes=8589934592",
        // With 1 GiB less than what is written while the state is made: the log must wait for it.
        "--snapshot-count=500",
        "--snapshot-catchup-entries=500",
    ];
    let runtime = Runtime::new()?;
    let mut cluster = Cluster::start_linked(&peers, our_kind(), 3, &flags)?;
    let leader = cluster.leader()?;
    let behind = (leader + 1) % 3;
    cluster.kill(behind)?;
    let endpoint = cluster.endpoint(leader);
    runtime.block_on(fill(&endpoint, long::rounds(64, 1024)))?;
    let writers = runtime.block_on(Writers::start(&endpoint))?;
    // etcd sends it over connections that do not say which member they are of.
    let cuts: &[f64] = match cluster.kind() {
        Kind::Etcd => &[],
        Kind::Holdfast => &[0.3, 0.7],
    };
    let seen = catch_up(&runtime, &mut cluster, behind, cuts);
    let took = runtime.block_on(writers.end());
    let (seen, took) = (seen?, took?);
    let slowest = *took.last().context("nothing was written")?;
    let at = |part: usize| {
        took.get(took.len() * part / 100)
            .copied()
            .unwrap_or(slowest)
    };
    let summary = format!(
        "{:?} to catch up, {seen:?}; {} writes meanwhile: median {:?}, p99 {:?}, slowest {slowest:?}",
        seen.took,
        took.len(),
        at(50),
        at(99)
    );
    faults::tell(&summary);
    ensure!(cluster.leader()? == leader, "the lead changed: {summary}");
    if cluster.kind() == Kind::Holdfast {
        ensure!(
            seen.sent_mib < seen.state_mib * 1.3 + 16.0,
            "sent again: {summary}"
        );
        ensure!(
            seen.leader_mib < MEMORY_MIB,
            "the leader's memory: {summary}"
        );
        ensure!(
            seen.follower_mib < MEMORY_MIB,
            "the follower's memory: {summary}"
        );
        ensure!(slowest < WRITE_MAX, "a write waited: {summary}");
    }
    assert_alike(&runtime, &cluster)
}

/// All members have the same history.
fn assert_alike(runtime: &Runtime, cluster: &Cluster) -> Result<()> {
    wait_writable(cluster, 0)?;
    let endpoints = cluster.endpoints();
    runtime.block_on(async {
        let first = endpoints.first().context("no member")?;
        let revision = recorder::newest(first).await?;
        verdict::assert_alike(&endpoints, revision).await
    })
}

/// Fifteen seconds.
#[test]
fn a_learner_that_joins_after_the_log_was_purged_gets_the_state_and_a_vote() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let flags = ["--snapshot-count=100", "--snapshot-catchup-entries=20"];
    let runtime = Runtime::new()?;
    let mut cluster = Cluster::start(&peers, our_kind(), 3, &flags)?;
    let leader = cluster.leader()?;
    runtime.block_on(fill(&cluster.endpoint(leader), 32))?;
    let new = cluster.reserve()?;
    let url = format!("--peer-urls={}", cluster.peer_url(new));
    let ctl = cluster.ctl(leader);
    let added = ctl
        .run(&["member", "add", "m3", &url, "--learner"])?
        .success()?;
    let id = added
        .stdout
        .split_whitespace()
        .nth(1)
        .context("no id")?
        .to_owned();
    let all = cluster.initial_cluster();
    cluster.boot(new, &all, "existing")?;
    let count = [
        "get",
        "fill/",
        "--prefix",
        "--count-only",
        "--write-out=fields",
    ];
    wait::until("all keys at the learner", wait::READY_MAX, || {
        let local = [count.as_slice(), &["--consistency=s"]].concat();
        let found = cluster.ctl(new).run(&local)?;
        Ok(found.stdout.contains("\"Count\" : 1024").then_some(()))
    })?;
    if cluster.kind() == Kind::Holdfast {
        let log = cluster.log(new);
        ensure!(log.contains("install a snapshot"), "it came without: {log}");
    }
    wait::until("the vote", wait::READY_MAX, || {
        let promoted = cluster.ctl(leader).run(&["member", "promote", &id])?;
        Ok((promoted.code == 0).then_some(()))
    })?;
    // Three of four are a quorum only with it.
    cluster.kill(leader)?;
    wait_writable(&cluster, new)?;
    cluster.restart(leader)?;
    assert_alike(&runtime, &cluster)
}
