//! Members on hosts of their own, between which packets are lost or refused: what the kernel makes
//! of a connection whose other end is gone, with its timers and repetitions.

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::hosts::{self, Place};
use holdfast_interop::mesh::Link;
use holdfast_interop::peers::Peers;
use holdfast_interop::recorder::Recording;
use holdfast_interop::wait;

use super::nemesis::{self, GOES_ON_MAX, LOST_PERCENT};
use super::{faults, verdict};
use crate::long;
use crate::pair::our_kind;

const NAME: &str =
    "cluster::partitions::lost_and_refused_packets_between_hosts_leave_one_order_of_all_operations";
/// A partition lasts longer than an election, and in the long form longer than connections live.
const HOLD: Duration = Duration::from_secs(3);
const HOLD_LONG: Duration = Duration::from_secs(40);

const NAME_LOSS: &str =
    "cluster::partitions::members_that_lose_a_quarter_of_their_packets_keep_one_order_and_go_on";
/// How long packets are lost for.
const LOSS: Duration = Duration::from_secs(15);
const LOSS_LONG: Duration = Duration::from_mins(5);
/// Operations that must be answered for each second of it: far below what a member does that
/// waits for repeated packets, far above what an election now and then lets through.
const RATE: u64 = 4;

/// A minute: isolated, mute and deaf leaders, a partial mesh, links that come and go, resets, loss.
#[tokio::test(flavor = "multi_thread")]
async fn lost_and_refused_packets_between_hosts_leave_one_order_of_all_operations() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    if matches!(hosts::enter(&peers, NAME)?, Place::Outside) {
        return Ok(());
    }
    let mut cluster = Cluster::start_on_hosts(&peers, our_kind(), 3, &[])?;
    let mut load = faults::load(&cluster, 3);
    load.pause = Duration::from_millis(5);
    let hold = long::rounds(HOLD, HOLD_LONG);
    let between = nemesis::between_hosts();
    let summary = faults::history(&mut cluster, load, &between, hold).await?;
    faults::tell(&format!("{summary:?}"));
    ensure!(summary.answered > 1500, "{summary:?}");
    Ok(())
}

/// Half a minute: a quarter of all packets between members is lost both ways, the leader is killed
/// and started again in the midst of it.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_lose_a_quarter_of_their_packets_keep_one_order_and_go_on() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    if matches!(hosts::enter(&peers, NAME_LOSS)?, Place::Outside) {
        return Ok(());
    }
    let mut cluster = Cluster::start_on_hosts(&peers, our_kind(), 3, &[])?;
    let mut load = faults::load(&cluster, 4);
    load.pause = Duration::from_millis(5);
    let recording = Recording::start(load).await?;
    recording.progress(100, GOES_ON_MAX).await?;
    let links = cluster.links()?.clone();
    nemesis::set_all(&links, 3, Link::Lossy(LOST_PERCENT));
    let (begun, before) = (wait::now(), recording.answered());
    let leader = cluster.leader()?;
    nemesis::kill(&mut cluster, &recording, &[leader]).await?;
    let hold = long::rounds(LOSS, LOSS_LONG);
    while begun.elapsed() < hold {
        recording.progress(1, GOES_ON_MAX).await?;
    }
    let (took, answered) = (begun.elapsed(), recording.answered() - before);
    let lost: Vec<u64> = (0..3).map(hosts::lost).collect::<Result<_>>()?;
    faults::tell(&format!(
        "{answered} operations in {took:?}, lost packets {lost:?}"
    ));
    ensure!(lost.iter().all(|lost| *lost > 50), "lost packets {lost:?}");
    ensure!(
        answered >= RATE * took.as_secs(),
        "{answered} operations in {took:?}"
    );
    links.heal();
    recording.progress(100, GOES_ON_MAX).await?;
    let recorded = recording.finish().await?;
    verdict::judge(&cluster, &recorded).await?;
    Ok(())
}
