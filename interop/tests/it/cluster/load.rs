//! Members come and go under load: no acknowledged write is lost, and all members agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::client::Client;
use holdfast_interop::cluster::Cluster;
use holdfast_interop::peers::Peers;
use holdfast_interop::server::Kind;
use holdfast_interop::wait;
use holdfast_proto::etcd::rpc;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tonic::Request;

use crate::long;
use crate::pair::our_kind;

/// Clients that write.
const WRITERS: usize = 8;
/// One attempt of a write; the next one goes to another member.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
/// An operation that took longer than this, over all its attempts, failed.
const OPERATION_MAX: Duration = Duration::from_secs(20);
/// Longer than the hand over of the lead or one election, on a machine that does other things too.
const ONE_ELECTION: Duration = Duration::from_secs(4);

/// Writes that must be acknowledged for each second, over whatever happens: a hundredth of what
/// they are without.
const WRITES_PER_S: f64 = 5.0;
/// Writes that must be acknowledged while a member is away.
const WITHOUT_IT: usize = 20;

/// Clients that write until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    /// Writes acknowledged so far.
    acknowledged: Arc<AtomicUsize>,
    writers: Vec<JoinHandle<Result<Written>>>,
}

/// What one client did.
#[derive(Debug, Clone, Copy)]
struct Written {
    /// Writes acknowledged, each of one key and read back by a linearizable read.
    count: usize,
    /// The longest write or read, over all its attempts.
    longest: Duration,
    /// Attempts that failed.
    failed: usize,
}

impl Load {
    fn start(runtime: &Runtime, cluster: &Cluster) -> Self {
        let endpoints: Vec<String> = (0..cluster.size()).map(|at| cluster.endpoint(at)).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let writer = |id| {
            let shared = (Arc::clone(&stop), Arc::clone(&acknowledged));
            runtime.spawn(write(id, endpoints.clone(), shared))
        };
        let writers = (0..WRITERS).map(writer).collect();
        Self {
            stop,
            acknowledged,
            writers,
        }
    }

    /// Returns once `count` further writes were acknowledged.
    fn progress(&self, count: usize) -> Result<()> {
        let goal = self.acknowledged.load(Ordering::Relaxed) + count;
        wait::until("progress of the load", wait::READY_MAX, || {
            Ok((self.acknowledged.load(Ordering::Relaxed) >= goal).then_some(()))
        })
    }

    fn end(self, runtime: &Runtime) -> Result<Vec<Written>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for writer in self.writers {
            all.push(runtime.block_on(writer)??);
        }
        Ok(all)
    }
}

fn key(writer: usize, number: usize) -> String {
    format!("load/{writer}/{number:06}")
}

async fn write(
    id: usize,
    endpoints: Vec<String>,
    (stop, acknowledged): (Arc<AtomicBool>, Arc<AtomicUsize>),
) -> Result<Written> {
    let mut written = Written {
        count: 0,
        longest: Duration::ZERO,
        failed: 0,
    };
    let mut at = id;
    let mut client: Option<Client> = None;
    while !stop.load(Ordering::Relaxed) {
        let key = key(id, written.count);
        for step in [Step::Write, Step::Read] {
            let start = wait::now();
            while !attempt(&mut client, &endpoints[at % endpoints.len()], &key, step).await? {
                client = None;
                at += 1;
                written.failed += 1;
                let took = start.elapsed();
                ensure!(took < OPERATION_MAX, "{step:?} {key}: {took:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            written.longest = written.longest.max(start.elapsed());
            if matches!(step, Step::Write) {
                acknowledged.fetch_add(1, Ordering::Relaxed);
                // Now and then the read is of another member than the write.
                client = client.filter(|_| !written.count.is_multiple_of(8));
                at += usize::from(client.is_none());
            }
        }
        written.count += 1;
    }
    Ok(written)
}

/// What a client does with a key.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// It is written; again, when it is not known whether it was: the same key, the same value.
    Write,
    /// It is read, linearizably, and must be there.
    Read,
}

/// One attempt; whether it succeeded.
async fn attempt(
    client: &mut Option<Client>,
    endpoint: &str,
    key: &str,
    step: Step,
) -> Result<bool> {
    let work = async {
        if client.is_none() {
            *client = Some(Client::connect(endpoint).await?);
        }
        let client = client.as_mut().context("no client")?;
        match step {
            Step::Write => {
                let mut request = Request::new(rpc::PutRequest {
                    key: key.to_owned().into(),
                    value: key.to_owned().into(),
                    ..rpc::PutRequest::default()
                });
                request.set_timeout(ATTEMPT_MAX);
                client.kv.put(request).await?;
                anyhow::Ok(1)
            }
            Step::Read => {
                let mut request = Request::new(rpc::RangeRequest {
                    key: key.to_owned().into(),
                    ..rpc::RangeRequest::default()
                });
                request.set_timeout(ATTEMPT_MAX);
                Ok(client.kv.range(request).await?.into_inner().count)
            }
        }
    };
    match tokio::time::timeout(ATTEMPT_MAX, work).await {
        Ok(Ok(count)) => {
            ensure!(
                count == 1,
                "{key} was acknowledged and is not at {endpoint}"
            );
            Ok(true)
        }
        Ok(Err(_)) | Err(_) => Ok(false),
    }
}

/// Every acknowledged write is read from every member, and all have the same history.
fn assert_complete(runtime: &Runtime, cluster: &Cluster, written: &[Written]) -> Result<()> {
    let mut hashes = Vec::new();
    for at in 0..cluster.size() {
        let found = runtime.block_on(async {
            let mut client = Client::connect(&cluster.endpoint(at)).await?;
            for (writer, written) in written.iter().enumerate() {
                let range = rpc::RangeRequest {
                    key: format!("load/{writer}/").into(),
                    range_end: format!("load/{writer}0").into(),
                    count_only: true,
                    ..rpc::RangeRequest::default()
                };
                let count = client.kv.range(range).await?.into_inner().count;
                let expected = i64::try_from(written.count)?;
                // One more may be done than was acknowledged.
                ensure!(
                    count == expected || count == expected + 1,
                    "member {at}: {count} keys of client {writer}, {expected} acknowledged"
                );
            }
            client.hash_kv(0).await
        })?;
        hashes.push((found.hash, found.hash_revision));
    }
    let first = hashes.first().copied();
    ensure!(
        hashes.iter().all(|hash| Some(*hash) == first),
        "the members differ: {hashes:?}"
    );
    Ok(())
}

/// No operation may take longer than `longest_max`, over all its attempts.
fn with_load(
    longest_max: Duration,
    disturb: impl FnOnce(&mut Cluster, &Load) -> Result<()>,
) -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let kind = our_kind();
    let runtime = Runtime::new()?;
    let mut cluster = Cluster::start(&peers, kind, 3, &[])?;
    let (load, start) = (Load::start(&runtime, &cluster), wait::now());
    let disturbed = disturb(&mut cluster, &load);
    let took = start.elapsed();
    let written = load.end(&runtime)?;
    disturbed?;
    let total: usize = written.iter().map(|written| written.count).sum();
    let failed: usize = written.iter().map(|written| written.failed).sum();
    let longest = written.iter().map(|written| written.longest).max();
    let summary = format!(
        "{total} writes in {took:?}, {failed} attempts failed, the longest took {longest:?}"
    );
    let rate = f64::from(u32::try_from(total)?) / took.as_secs_f64();
    ensure!(rate >= WRITES_PER_S, "only {summary}");
    ensure!(longest <= Some(longest_max), "{summary}");
    assert_complete(&runtime, &cluster, &written)
}

#[test]
fn any_member_is_killed_and_comes_back_under_load() -> Result<()> {
    with_load(OPERATION_MAX, |cluster, load| {
        for round in 0..long::rounds(3, 60) {
            let leader = cluster.leader()?;
            // The leader, then one that follows, in turn.
            let victim = (leader + round % 2) % 3;
            cluster.kill(victim)?;
            load.progress(WITHOUT_IT)?;
            cluster.restart(victim)?;
        }
        Ok(())
    })
}

/// Whatever fails on the way succeeds at another member within one election.
#[test]
fn a_rolling_restart_under_load_fails_no_write_and_no_linearizable_read() -> Result<()> {
    with_load(ONE_ELECTION, |cluster, load| {
        for _ in 0..long::rounds(1, 20) {
            for at in 0..3 {
                let status = cluster.stop(at)?;
                ensure!(status.success(), "{status}");
                cluster.restart(at)?;
                load.progress(WITHOUT_IT)?;
            }
        }
        Ok(())
    })
}

#[test]
fn a_member_joins_under_load_and_votes() -> Result<()> {
    with_load(ONE_ELECTION, |cluster, load| {
        let new = cluster.reserve()?;
        let url = format!("--peer-urls={}", cluster.peer_url(new));
        wait::until("the member is added", wait::READY_MAX, || {
            let added = cluster.ctl(0).run(&["member", "add", "m3", &url])?;
            Ok((added.code == 0).then_some(()))
        })?;
        let all = cluster.initial_cluster();
        load.progress(WITHOUT_IT)?;
        cluster.boot(new, &all, "existing")?;
        wait::until("its vote", wait::READY_MAX, || {
            // Real etcd's votes at once.
            let is_told = cluster.kind() == Kind::Etcd
                || (0..3).any(|at| cluster.log(at).contains("votes from now on"));
            Ok(is_told.then_some(()))
        })
    })
}
