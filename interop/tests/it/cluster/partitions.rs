//! Members on hosts of their own, between which packets are lost or refused: what the kernel makes
//! of a connection whose other end is gone, with its timers and repetitions.

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::hosts::{self, Place};
use holdfast_interop::peers::Peers;

use super::{faults, nemesis};
use crate::long;
use crate::pair::our_kind;

const NAME: &str =
    "cluster::partitions::lost_and_refused_packets_between_hosts_leave_one_order_of_all_operations";
/// A partition lasts longer than an election, and in the long form longer than connections live.
const HOLD: Duration = Duration::from_secs(3);
const HOLD_LONG: Duration = Duration::from_secs(40);

/// A minute: isolated, mute and deaf leaders, a partial mesh, links that come and go, resets.
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
    let summary = faults::history(&mut cluster, load, &nemesis::LINKS, hold).await?;
    faults::tell(&format!("{summary:?}"));
    ensure!(summary.answered > 1500, "{summary:?}");
    Ok(())
}
