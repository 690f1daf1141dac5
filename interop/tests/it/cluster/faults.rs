//! Histories under faults.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::history::{Call, Outcome};
use holdfast_interop::linked::Linked;
use holdfast_interop::peers::Peers;
use holdfast_interop::recorder::{Load, Recorded, Recording};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::nemesis::{self, Fault, GOES_ON_MAX};
use super::verdict;
use crate::long;
use crate::pair::our_kind;

/// Faults drawn after each was there once.
const FAULTS_MORE: usize = 0;
const FAULTS_MORE_LONG: usize = 400;

fn load(cluster: &Linked, seed: u64) -> Load {
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

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_processes_and_links_leaves_one_order_of_all_operations() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut cluster = Linked::start(&peers, our_kind(), 3).await?;
    let seed = 1;
    let recording = Recording::start(load(&cluster, seed)).await?;
    recording.progress(100, GOES_ON_MAX).await?;
    let mut rng = StdRng::seed_from_u64(seed);
    let more = long::rounds(FAULTS_MORE, FAULTS_MORE_LONG);
    let drawn = (0..more).map(|_| nemesis::ALL[rng.random_range(0..nemesis::ALL.len())]);
    let faults: Vec<Fault> = nemesis::ALL.into_iter().chain(drawn).collect();
    for fault in faults {
        nemesis::strike(&mut cluster, &recording, fault)
            .await
            .with_context(|| format!("{fault:?}"))?;
    }
    let recorded = recording.finish().await?;
    let summary = verdict::judge(&cluster, &recorded).await?;
    ensure!(summary.answered > 1500, "{summary:?}");
    ensure!(summary.expired > 0, "no lease ran out: {summary:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_history_is_searched_and_a_planted_lie_is_found() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut cluster = Linked::start(&peers, our_kind(), 3).await?;
    let mut small = load(&cluster, 2);
    (small.clients, small.leases, small.operations_max) = (6, 0, 150);
    let recording = Recording::start(small).await?;
    recording.progress(200, GOES_ON_MAX).await?;
    nemesis::strike(&mut cluster, &recording, Fault::PausedLeader).await?;
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
