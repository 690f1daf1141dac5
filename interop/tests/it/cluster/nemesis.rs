//! The faults that a cluster must survive, each begun and ended on purpose.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::mesh::{Link, Links};
use holdfast_interop::recorder::{self, Recording};
use holdfast_interop::wait;
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

/// How long a cluster may take to go on after a fault.
pub(crate) const GOES_ON_MAX: Duration = Duration::from_secs(30);
/// Operations that must be answered under a fault.
const UNDER_FAULT: u64 = 60;
/// A pause of the leader: longer than any election.
const PAUSE: Duration = Duration::from_secs(4);
/// How often what comes and goes does so.
const TIMES: usize = 6;

/// How many of a hundred packets a lossy link loses.
pub(crate) const LOST_PERCENT: u8 = 25;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The leader is killed and started again.
    KilledLeader,
    /// A follower is killed and started again.
    KilledFollower,
    /// Just as many members are killed as take the quorum with them.
    KilledMajority,
    /// All members are killed at once and started again.
    KilledAll,
    /// The leader is asked to end, and started again.
    StoppedLeader,
    /// Another member is made the leader.
    MovedLead,
    /// A follower is removed for good, and one with no data takes its place.
    ReplacedFollower,
    /// The leader's process stands still, and goes on as if nothing had been.
    PausedLeader,
    /// Nothing goes to the leader or comes from it.
    IsolatedLeader,
    /// The leader reaches nobody; everybody reaches it.
    MuteLeader,
    /// Nobody reaches the leader; it reaches everybody.
    DeafLeader,
    /// The leader and one follower do not reach each other; the others reach both.
    PartialMesh,
    /// The leader's links come and go.
    Flapping,
    /// Connections between members are closed again and again.
    Resets,
    /// Whatever goes between members takes a while.
    Slow,
    /// A share of all packets between members is lost.
    Lossy,
}

/// Those of processes and of membership.
pub(crate) const PROCESSES: [Fault; 8] = [
    Fault::KilledLeader,
    Fault::KilledFollower,
    Fault::KilledMajority,
    Fault::KilledAll,
    Fault::StoppedLeader,
    Fault::MovedLead,
    Fault::ReplacedFollower,
    Fault::PausedLeader,
];

/// Those of links that packet filters can do.
pub(crate) const LINKS: [Fault; 6] = [
    Fault::IsolatedLeader,
    Fault::MuteLeader,
    Fault::DeafLeader,
    Fault::PartialMesh,
    Fault::Flapping,
    Fault::Resets,
];

/// Those between hosts.
pub(crate) fn between_hosts() -> Vec<Fault> {
    [LINKS.as_slice(), &[Fault::Lossy]].concat()
}

/// Those of processes and of members behind proxies.
pub(crate) fn all() -> Vec<Fault> {
    [PROCESSES.as_slice(), &LINKS, &[Fault::Slow]].concat()
}

/// Begins a fault, sees that the cluster goes on under it for `hold` at least, ends it, and sees
/// that every member serves.
pub(crate) async fn strike(
    cluster: &mut Cluster,
    recording: &Recording,
    fault: Fault,
    hold: Duration,
) -> Result<()> {
    let leader = cluster.leader()?;
    let count = cluster.size();
    let follower = (leader + 1) % count;
    let links = cluster.links()?.clone();
    let all: Vec<usize> = (0..count).map(|step| (leader + step) % count).collect();
    match fault {
        Fault::KilledLeader => kill(cluster, recording, &all[..1]).await?,
        Fault::KilledFollower => kill(cluster, recording, &all[1..2]).await?,
        Fault::KilledMajority => kill(cluster, recording, &all[..=count / 2]).await?,
        Fault::KilledAll => kill(cluster, recording, &all).await?,
        Fault::StoppedLeader => {
            cluster.stop(leader)?;
            recording.progress(UNDER_FAULT, GOES_ON_MAX).await?;
            cluster.restart(leader)?;
        }
        Fault::MovedLead => move_lead(cluster, leader, follower)?,
        Fault::ReplacedFollower => replace(cluster, leader, follower)?,
        Fault::PausedLeader => {
            cluster.signal(leader, Signal::STOP)?;
            sleep(PAUSE).await;
            cluster.signal(leader, Signal::CONT)?;
        }
        Fault::IsolatedLeader => links.set_all_of(leader, count, Link::Cut),
        Fault::MuteLeader => one_way(&links, count, leader, true),
        Fault::DeafLeader => one_way(&links, count, leader, false),
        Fault::PartialMesh => links.set_both(leader, follower, Link::Cut),
        Fault::Flapping => flap(&links, count, leader, (Link::Cut, 400)).await,
        Fault::Resets => flap(&links, count, leader, (Link::Reset, 50)).await,
        Fault::Slow => set_all(&links, count, Link::Slow(Duration::from_millis(30))),
        Fault::Lossy => set_all(&links, count, Link::Lossy(LOST_PERCENT)),
    }
    let begun = wait::now();
    recording.progress(UNDER_FAULT, GOES_ON_MAX).await?;
    while between_hosts().contains(&fault) && begun.elapsed() < hold {
        sleep(Duration::from_millis(100)).await;
        recording.progress(1, GOES_ON_MAX).await?;
    }
    links.heal();
    for endpoint in cluster.endpoints() {
        wait_serving(&endpoint).await?;
    }
    recording.progress(UNDER_FAULT, GOES_ON_MAX).await
}

/// Returns once the member at `endpoint` answers a linearizable read.
async fn wait_serving(endpoint: &str) -> Result<()> {
    let end = wait::now() + GOES_ON_MAX;
    loop {
        match timeout(GOES_ON_MAX, recorder::newest(endpoint)).await {
            Ok(Ok(_)) => return Ok(()),
            answer => ensure!(wait::now() < end, "{endpoint} does not serve: {answer:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Sets every link.
pub(crate) fn set_all(links: &Links, count: usize, link: Link) {
    for member in 0..count {
        links.set_all_of(member, count, link);
    }
}

fn one_way(links: &Links, count: usize, leader: usize, is_mute: bool) {
    for other in (0..count).filter(|other| *other != leader) {
        let (from, to) = if is_mute {
            (leader, other)
        } else {
            (other, leader)
        };
        links.set(from, to, Link::Cut);
    }
}

async fn flap(links: &Links, count: usize, member: usize, (link, millis): (Link, u64)) {
    for _ in 0..TIMES {
        links.set_all_of(member, count, link);
        sleep(Duration::from_millis(millis)).await;
        links.heal();
        sleep(Duration::from_millis(millis)).await;
    }
}

pub(crate) async fn kill(
    cluster: &mut Cluster,
    recording: &Recording,
    members: &[usize],
) -> Result<()> {
    for member in members {
        cluster.kill(*member)?;
    }
    if members.len() * 2 < cluster.size() {
        recording.progress(UNDER_FAULT, GOES_ON_MAX).await?;
    }
    cluster.restart_all(members)
}

/// The id of the member at a place, in hexadecimal.
fn id_of(cluster: &Cluster, asked: usize, at: usize) -> Result<String> {
    let members = cluster.members(asked)?;
    let named = members.iter().find(|(name, _)| name == cluster.name(at));
    let (_, id) = named.context("no such member")?;
    Ok(format!("{id:x}"))
}

/// Makes `next` the leader.
pub(crate) fn move_lead(cluster: &Cluster, leader: usize, next: usize) -> Result<()> {
    let id = id_of(cluster, leader, next)?;
    let moved = cluster.ctl(leader).run(&["move-leader", &id])?;
    // The lead may have gone elsewhere in the meantime, and a transfer may fail.
    ensure!(
        moved.code == 0 || moved.stderr.contains("leader") || moved.stderr.contains("timed out"),
        "{moved:?}"
    );
    Ok(())
}

/// Runs etcdctl until it succeeds: a quorum that was just changed may not be trusted yet.
fn until_done(cluster: &Cluster, at: usize, words: &[&str]) -> Result<()> {
    let mut last = None;
    let done = wait::until("a change of membership", GOES_ON_MAX, || {
        let output = cluster.ctl(at).run(words)?;
        let is_done = output.code == 0;
        last = Some(output);
        Ok(is_done.then_some(()))
    });
    done.with_context(|| format!("{words:?}: {last:?}"))
}

/// The member at `at` is removed, and comes back as another one with nothing.
fn replace(cluster: &mut Cluster, leader: usize, at: usize) -> Result<()> {
    let id = id_of(cluster, leader, at)?;
    until_done(cluster, leader, &["member", "remove", &id])?;
    cluster.wait_end(at, GOES_ON_MAX)?;
    std::fs::remove_dir_all(cluster.data_dir(at))?;
    let url = format!("--peer-urls={}", cluster.peer_url(at));
    let name = cluster.name(at).to_owned();
    until_done(cluster, leader, &["member", "add", &name, &url])?;
    let all = cluster.initial_cluster();
    cluster.boot(at, &all, "existing")
}
