//! Histories under faults.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::client::Client;
use holdfast_interop::cluster::Cluster;
use holdfast_interop::history::{Call, Outcome, Summary};
use holdfast_interop::peers::Peers;
use holdfast_interop::recorder::{Load, Recorded, Recording};
use holdfast_interop::wait;
use holdfast_proto::etcd::rpc;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::nemesis::{self, Fault, GOES_ON_MAX};
use super::verdict;
use crate::long;
use crate::pair::our_kind;

/// How long the long form draws further faults, in minutes; `MINUTES_VARIABLE` says otherwise.
const MINUTES: u64 = 15;
const MINUTES_VARIABLE: &str = "HOLDFAST_TEST_MINUTES";
/// Where what is drawn begins.
const SEED_VARIABLE: &str = "HOLDFAST_TEST_SEED";
/// Faults of one history of the long form.
const FAULTS_AT_ONCE: usize = 25;
/// A fault of links is there for as long at least.
const HOLD: Duration = Duration::ZERO;
const HOLD_LONG: Duration = Duration::from_secs(6);

pub(crate) fn load(cluster: &Cluster, seed: u64) -> Load {
    Load {
        endpoints: cluster.endpoints(),
        clients: 8,
        watches: 2,
        leases: 3,
        operations_max: 1_000_000,
        pause: Duration::from_millis(2),
        seed,
    }
}

#[expect(clippy::print_stderr, reason = "what a long test has done so far")]
pub(crate) fn tell(text: &str) {
    eprintln!("{text}");
}

/// One history under `faults`, one after the other; those of links last for `hold` at least.
pub(crate) async fn history(
    cluster: &mut Cluster,
    load: Load,
    faults: &[Fault],
    hold: Duration,
) -> Result<Summary> {
    let recording = Recording::start(load).await?;
    recording.progress(100, GOES_ON_MAX).await?;
    for fault in faults {
        nemesis::strike(cluster, &recording, *fault, hold)
            .await
            .with_context(|| format!("{fault:?}"))?;
    }
    let recorded = recording.finish().await?;
    verdict::judge(cluster, &recorded).await
}

/// Every fault once: two minutes, most of them waits for elections.
#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_processes_and_links_leaves_one_order_of_all_operations() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut cluster = Cluster::start_linked(&peers, our_kind(), 3, &[])?;
    let load = load(&cluster, 1);
    let summary = history(&mut cluster, load, &nemesis::all(), HOLD).await?;
    tell(&format!("{summary:?}"));
    ensure!(summary.answered > 1500, "{summary:?}");
    ensure!(summary.expired > 0, "no lease ran out: {summary:?}");
    Ok(())
}

/// The long form: faults drawn for as long as it is asked for, to three members and to five in
/// turn, in histories of some hundred thousand operations. The short form does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn faults_drawn_for_minutes_leave_one_order_of_all_operations() -> Result<()> {
    let minutes: u64 = match std::env::var(MINUTES_VARIABLE) {
        Ok(minutes) => minutes.parse().context(MINUTES_VARIABLE)?,
        Err(_) => long::rounds(0, MINUTES),
    };
    let Some(peers) = Peers::get().filter(|_| minutes > 0) else {
        return Ok(());
    };
    let end = wait::now() + Duration::from_secs(60 * minutes);
    let mut seed: u64 = match std::env::var(SEED_VARIABLE) {
        Ok(seed) => seed.parse().context(SEED_VARIABLE)?,
        Err(_) => rand::random(),
    };
    let (mut histories, mut answered, mut revisions) = (0, 0, 0);
    while wait::now() < end {
        let size = [3, 5][histories % 2];
        let mut cluster = Cluster::start_linked(&peers, our_kind(), size, &[])?;
        let mut rng = StdRng::seed_from_u64(seed);
        let all = nemesis::all();
        let drawn = (0..FAULTS_AT_ONCE).map(|_| all[rng.random_range(0..all.len())]);
        let faults: Vec<Fault> = drawn.collect();
        let mut load = load(&cluster, seed);
        (load.clients, load.pause) = (64, Duration::ZERO);
        let summary = history(&mut cluster, load, &faults, HOLD_LONG).await;
        let summary = summary
            .with_context(|| format!("{SEED_VARIABLE}={seed}, {size} members: {faults:?}"))?;
        histories += 1;
        answered += summary.answered;
        revisions += summary.revisions;
        tell(&format!(
            "{size} members, seed {seed}: {summary:?}; in all {histories} histories, \
             {answered} operations, {revisions} revisions"
        ));
        compact(&cluster).await?;
        seed = seed.wrapping_add(1);
    }
    Ok(())
}

/// What was read back may go; all members still have the same.
async fn compact(cluster: &Cluster) -> Result<()> {
    let endpoints = cluster.endpoints();
    let first = endpoints.first().context("no member")?;
    let revision = holdfast_interop::recorder::newest(first).await?;
    let mut client = Client::connect(first).await?;
    let request = rpc::CompactionRequest {
        revision,
        physical: true,
    };
    client.kv.compact(request).await?;
    // Asked for the very revision, a member answers what it remembers from before the compaction.
    let put = rpc::PutRequest {
        key: b"compacted".to_vec().into(),
        ..rpc::PutRequest::default()
    };
    client.kv.put(put).await?;
    verdict::assert_alike(&endpoints, revision + 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_history_is_searched_and_a_planted_lie_is_found() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut cluster = Cluster::start_linked(&peers, our_kind(), 3, &[])?;
    let mut small = load(&cluster, 2);
    (small.clients, small.leases, small.operations_max) = (6, 0, 150);
    let recording = Recording::start(small).await?;
    recording.progress(200, GOES_ON_MAX).await?;
    nemesis::strike(&mut cluster, &recording, Fault::PausedLeader, HOLD).await?;
    let mut recorded = recording.finish().await?;
    verdict::judge(&cluster, &recorded).await?;
    let found = verdict::search(&peers, &recorded)?;
    ensure!(found == "ok", "no order explains it: {found}");
    plant_stale_read(&mut recorded)?;
    let found = verdict::search(&peers, &recorded)?;
    ensure!(found == "illegal", "the planted lie passed: {found}");
    Ok(())
}

/// Makes the last read that showed something one from before what it shows.
fn plant_stale_read(recorded: &mut Recorded) -> Result<()> {
    let reads = recorded.history.operations.iter_mut();
    let (revision, shown) = reads
        .filter(|operation| matches!(operation.call, Call::Get { .. }))
        .filter_map(|operation| match &mut operation.outcome {
            Outcome::Done {
                revision,
                shown: Some(shown),
                ..
            } => Some((revision, shown)),
            _ => None,
        })
        .next_back()
        .context("no read showed anything")?;
    *revision = shown.modified - 1;
    Ok(())
}
