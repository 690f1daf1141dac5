//! The faults that a cluster must survive, each begun and ended on purpose.

use std::time::Duration;

use anyhow::Result;
use holdfast_interop::linked::Linked;
use holdfast_interop::mesh::Link;
use holdfast_interop::recorder::Recording;

/// How long a cluster may take to go on after a fault.
pub(crate) const GOES_ON_MAX: Duration = Duration::from_secs(30);
/// Operations that must be answered under a fault.
const UNDER_FAULT: u64 = 60;
/// A pause of the leader: longer than any election.
const PAUSE: Duration = Duration::from_secs(4);

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The leader is killed and started again.
    KilledLeader,
    /// A follower is killed and started again.
    KilledFollower,
    /// All members are killed at once and started again.
    KilledAll,
    /// The leader's process stands still, and goes on as if nothing had been.
    PausedLeader,
    /// Nothing goes to the leader or comes from it.
    IsolatedLeader,
    /// The leader reaches nobody; everybody reaches it.
    MuteLeader,
    /// Nobody reaches the leader; it reaches everybody.
    DeafLeader,
    /// The leader and one follower do not reach each other; the third reaches both.
    PartialMesh,
    /// The leader's links come and go.
    Flapping,
    /// Connections between members are closed again and again.
    Resets,
    /// Whatever goes between members takes a while.
    Slow,
}

/// All of them.
pub(crate) const ALL: [Fault; 11] = [
    Fault::KilledLeader,
    Fault::KilledFollower,
    Fault::KilledAll,
    Fault::PausedLeader,
    Fault::IsolatedLeader,
    Fault::MuteLeader,
    Fault::DeafLeader,
    Fault::PartialMesh,
    Fault::Flapping,
    Fault::Resets,
    Fault::Slow,
];

/// Begins a fault, sees that the cluster goes on under it, ends it, and sees that it goes on.
pub(crate) async fn strike(
    cluster: &mut Linked,
    recording: &Recording,
    fault: Fault,
) -> Result<()> {
    let leader = cluster.leader().await?;
    let follower = (leader + 1) % cluster.len();
    let count = cluster.len();
    let links = cluster.links().clone();
    match fault {
        Fault::KilledLeader => return kill(cluster, recording, &[leader]).await,
        Fault::KilledFollower => return kill(cluster, recording, &[follower]).await,
        Fault::KilledAll => {
            let all: Vec<usize> = (0..count).collect();
            return kill(cluster, recording, &all).await;
        }
        Fault::PausedLeader => {
            cluster.pause(leader)?;
            tokio::time::sleep(PAUSE).await;
            cluster.resume(leader)?;
        }
        Fault::IsolatedLeader => links.set_all_of(leader, count, Link::Cut),
        Fault::MuteLeader => one_way(cluster, leader, true),
        Fault::DeafLeader => one_way(cluster, leader, false),
        Fault::PartialMesh => links.set_both(leader, follower, Link::Cut),
        Fault::Flapping => flap(cluster, leader, Link::Cut, Duration::from_millis(400)).await,
        Fault::Resets => flap(cluster, leader, Link::Reset, Duration::from_millis(50)).await,
        Fault::Slow => {
            for member in 0..count {
                links.set_all_of(member, count, Link::Slow(Duration::from_millis(30)));
            }
        }
    }
    recording.progress(UNDER_FAULT, GOES_ON_MAX).await?;
    links.heal();
    recording.progress(UNDER_FAULT, GOES_ON_MAX).await
}

fn one_way(cluster: &Linked, leader: usize, is_mute: bool) {
    for other in (0..cluster.len()).filter(|other| *other != leader) {
        let (from, to) = if is_mute {
            (leader, other)
        } else {
            (other, leader)
        };
        cluster.links().set(from, to, Link::Cut);
    }
}

async fn flap(cluster: &Linked, member: usize, link: Link, period: Duration) {
    for _ in 0..6 {
        cluster.links().set_all_of(member, cluster.len(), link);
        tokio::time::sleep(period).await;
        cluster.links().heal();
        tokio::time::sleep(period).await;
    }
}

async fn kill(cluster: &mut Linked, recording: &Recording, members: &[usize]) -> Result<()> {
    for member in members {
        cluster.kill(*member)?;
    }
    if members.len() * 2 < cluster.len() {
        recording.progress(UNDER_FAULT, GOES_ON_MAX).await?;
    }
    for member in members {
        cluster.launch(*member)?;
    }
    for member in members {
        cluster.wait_healthy(*member).await?;
    }
    recording.progress(UNDER_FAULT, GOES_ON_MAX).await
}
