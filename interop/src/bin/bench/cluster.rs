//! Several members: load on all of them, the loss of the leader, and a follower far behind.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::client::{Client, status};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::peers::Peers;
use holdfast_interop::server::Kind;
use holdfast_interop::wait;
use holdfast_proto::etcd::rpc;
use tokio::runtime::Runtime;

use crate::figures::{Figure, Figures};
use crate::load::{self, Servers};
use crate::{KEY_BYTES, Scale, VALUE_BYTES, progress};

/// Leaders killed for one median.
const FAILOVERS: usize = 5;
/// One attempt to write; a member without a leader would take its full time to say so.
const ATTEMPT_MAX: Duration = Duration::from_millis(100);
/// How long any of it may take.
const PATIENCE: Duration = Duration::from_mins(10);

/// Measures a cluster of `count` members.
pub(crate) fn measure(
    peers: &Peers,
    kind: Kind,
    count: usize,
    scale: Scale,
    figures: &mut Figures,
) -> Result<()> {
    let runtime = Runtime::new()?;
    let flags = ["--quota-backend-bytes=8589934592"];
    let mut cluster = Cluster::start(peers, kind, count, &flags)?;
    let servers = servers(&cluster)?;
    progress(kind, "put, 1,000 clients");
    let put = ["put", "--val-size=256", "--key-space-size=100000"];
    let many = load::run(peers, &servers, 1_000, scale.many, &put)?;
    figures.set(kind, Figure::ClusterPutRate, many.rate);
    figures.set(kind, Figure::ClusterPutP99, many.p99_ms);
    figures.set(kind, Figure::ClusterPutCpu, many.cpu_us);
    progress(kind, "range, 1,000 clients");
    let range = ["range", "foo", "--consistency=l"];
    let many = load::run(peers, &servers, 1_000, scale.many, &range)?;
    figures.set(kind, Figure::ClusterRangeRate, many.rate);
    figures.set(kind, Figure::ClusterRangeP99, many.p99_ms);
    figures.set(kind, Figure::ClusterRangeCpu, many.cpu_us);
    progress(kind, "failover");
    let failover = failovers(&runtime, &mut cluster)?;
    figures.set(kind, Figure::Failover, failover);
    progress(kind, "catching up");
    let catch_up = catch_up(&runtime, peers, &mut cluster, scale)?;
    figures.set(kind, Figure::CatchUp, catch_up);
    Ok(())
}

/// The members that are up.
fn servers(cluster: &Cluster) -> Result<Servers> {
    let up: Vec<usize> = (0..cluster.size())
        .filter(|member| cluster.is_up(*member))
        .collect();
    let addresses: Vec<String> = up
        .iter()
        .map(|member| cluster.endpoint(*member).replace("http://", ""))
        .collect();
    let process_ids: Result<Vec<u32>> = up
        .iter()
        .map(|member| cluster.process_id(*member))
        .collect();
    Ok(Servers {
        endpoints: addresses.join(","),
        process_ids: process_ids?,
    })
}

/// The median time from the end of the leader to the next write, in seconds.
fn failovers(runtime: &Runtime, cluster: &mut Cluster) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..FAILOVERS {
        let leader = cluster.leader()?;
        let other = cluster.endpoint((leader + 1) % cluster.size());
        let client = runtime.block_on(Client::connect(&other))?;
        cluster.kill(leader)?;
        let start = wait::now();
        while !runtime.block_on(put(client.clone())) {
            ensure!(
                start.elapsed() < PATIENCE,
                "no write after the leader's end"
            );
        }
        times.push(start.elapsed().as_secs_f64());
        cluster.restart(leader)?;
    }
    times.sort_by(f64::total_cmp);
    times
        .get(FAILOVERS / 2)
        .copied()
        .context("nothing was measured")
}

async fn put(mut client: Client) -> bool {
    let request = rpc::PutRequest {
        key: b"failover".to_vec().into(),
        ..rpc::PutRequest::default()
    };
    let written = tokio::time::timeout(ATTEMPT_MAX, client.kv.put(request)).await;
    matches!(written, Ok(Ok(_)))
}

/// The time a follower that was away, and has its directory of before, takes to have what it
/// missed, in seconds: the log no longer reaches back to it, so it gets the whole state.
fn catch_up(runtime: &Runtime, peers: &Peers, cluster: &mut Cluster, scale: Scale) -> Result<f64> {
    let leader = cluster.leader()?;
    let follower = (leader + 1) % cluster.size();
    cluster.kill(follower)?;
    let space = format!("--key-space-size={}", scale.missed);
    let value = format!("--val-size={VALUE_BYTES}");
    let key = format!("--key-size={KEY_BYTES}");
    let fill = ["put", &value, &key, "--sequential-keys", &space];
    load::run(peers, &servers(cluster)?, 200, scale.missed, &fill)?;
    runtime.block_on(async {
        let goal = revision(&cluster.endpoint(leader)).await;
        let goal = goal.context("the leader does not answer")?;
        let all = cluster.initial_cluster();
        cluster.launch(follower, &all, "new")?;
        let start = wait::now();
        let endpoint = cluster.endpoint(follower);
        while revision(&endpoint)
            .await
            .is_none_or(|reached| reached < goal)
        {
            ensure!(start.elapsed() < PATIENCE, "the follower does not catch up");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(start.elapsed().as_secs_f64())
    })
}

/// The revision a member has applied.
async fn revision(endpoint: &str) -> Option<i64> {
    Some(status(endpoint).await?.header?.revision)
}
