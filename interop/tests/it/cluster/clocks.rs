//! Members whose clocks on the wall are wrong: years behind, years ahead, jumping. Nothing may be
//! decided by them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::client::{Client, limited};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::peers::Peers;
use holdfast_interop::recorder::Recording;
use holdfast_interop::server::Kind;
use holdfast_interop::{run, wait};
use holdfast_proto::etcd::rpc;
use tonic::Request;

use super::nemesis::{self, GOES_ON_MAX};
use super::{faults, verdict};

/// What is loaded into a member, in C since it takes the place of C functions.
const SHIM: &str = include_str!("../../../src/clock.c");
/// 400 days behind, ten years ahead, and five years ahead in every other second.
const CLOCKS: [&[&str]; 3] = [
    &["WALL_CLOCK_OFFSET_S=-34560000"],
    &["WALL_CLOCK_OFFSET_S=315360000"],
    &["WALL_CLOCK_OFFSET_S=157680000", "WALL_CLOCK_JUMPS=1"],
];
/// The time to live of a lease that nobody renews.
const TTL: Duration = Duration::from_secs(3);
/// How late it may end: a look every half second, on a machine that does other things too.
const LATE_MAX: Duration = Duration::from_secs(3);

/// The shim as a library, when there is a C compiler.
fn shim(folder: &Path) -> Result<Option<PathBuf>> {
    if Command::new("cc").arg("--version").output().is_err() {
        faults::tell("SKIPPED: no C compiler, and so no wrong clock");
        return Ok(None);
    }
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, SHIM)?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-o"]);
    run::run(compiler.arg(&library).arg(&source).arg("-ldl"))?.success()?;
    Ok(Some(library))
}

fn set_clock(cluster: &mut Cluster, at: usize, library: &Path, clock: &[&str]) {
    let preload = format!("LD_PRELOAD={}", library.display());
    let words = [&["env", preload.as_str()], clock].concat();
    cluster.set_prefix(at, &words);
}

fn lead(cluster: &Cluster, at: usize) -> Result<()> {
    let leader = cluster.leader()?;
    if leader == at {
        return Ok(());
    }
    nemesis::move_lead(cluster, leader, at)
}

/// The years that a member wrote into its log.
fn years(cluster: &Cluster, at: usize) -> Vec<i64> {
    let log = cluster.log(at);
    let times = log.split("\"ts\":\"").skip(1);
    let mut years: Vec<i64> = times
        .filter_map(|time| time.get(..4)?.parse().ok())
        .collect();
    years.sort_unstable();
    years.dedup();
    years
}

/// A lease granted through `endpoint` and left alone ends in time.
async fn assert_runs_out(endpoint: &str) -> Result<()> {
    let mut client = Client::connect(endpoint).await?;
    let grant = rpc::LeaseGrantRequest {
        ttl: i64::try_from(TTL.as_secs())?,
        id: 0,
    };
    let start = wait::now();
    let lease = client
        .lease
        .lease_grant(limited(Request::new(grant)))
        .await?;
    let granted = wait::now();
    let put = rpc::PutRequest {
        key: b"leased".to_vec().into(),
        lease: lease.into_inner().id,
        ..rpc::PutRequest::default()
    };
    client.kv.put(limited(Request::new(put))).await?;
    loop {
        let get = rpc::RangeRequest {
            key: b"leased".to_vec().into(),
            ..rpc::RangeRequest::default()
        };
        let count = client.kv.range(limited(Request::new(get))).await?;
        if count.into_inner().count == 0 {
            break;
        }
        ensure!(granted.elapsed() < TTL + LATE_MAX, "it does not run out");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(start.elapsed() >= TTL, "early: after {:?}", start.elapsed());
    Ok(())
}

/// Half a minute: each clock leads once, then each member gets another one's clock.
#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_are_years_off_and_jump_change_nothing() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let Some(library) = shim(folder.path())? else {
        return Ok(());
    };
    // etcd is linked so that nothing can be put between it and the kernel.
    let mut cluster = Cluster::plan(&peers, Kind::Holdfast, 3, &[])?;
    for (at, clock) in CLOCKS.into_iter().enumerate() {
        set_clock(&mut cluster, at, &library, clock);
    }
    let all = cluster.initial_cluster();
    cluster.launch_all(&all)?;
    for at in 0..3 {
        lead(&cluster, at)?;
        assert_runs_out(&cluster.endpoint(at)).await?;
    }
    let recording = Recording::start(faults::load(&cluster, 4)).await?;
    for at in 0..3 {
        lead(&cluster, at)?;
        recording.progress(200, GOES_ON_MAX).await?;
        cluster.kill(at)?;
        let clock = CLOCKS.get((at + 1) % 3).context("no clock")?;
        set_clock(&mut cluster, at, &library, clock);
        cluster.restart(at)?;
        recording.progress(200, GOES_ON_MAX).await?;
    }
    let recorded = recording.finish().await?;
    let summary = verdict::judge(&cluster, &recorded).await?;
    assert_runs_out(&cluster.endpoint(0)).await?;
    ensure!(summary.answered > 1000, "{summary:?}");
    for at in 0..3 {
        let years = years(&cluster, at);
        ensure!(years.len() > 1, "m{at} saw one year only: {years:?}");
    }
    Ok(())
}
