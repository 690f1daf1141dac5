//! Bugs planted in the real store: the checkers find each of them in what clients see of three
//! members. `docs/internals/track-record.md` has them all, with those that smaller tests catch.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::client::Client;
use holdfast_interop::cluster::Cluster;
use holdfast_interop::history::Violation;
use holdfast_interop::peers::Peers;
use holdfast_interop::recorder::{Load, Recording};
use holdfast_proto::etcd::rpc;
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use super::nemesis::GOES_ON_MAX;
use super::{failpoints, verdict};
use crate::long;

/// Operations recorded with a bug in place.
const OPERATIONS: u64 = 600;
/// How long an entry takes on a member that is slow, which is no bug.
const SLOW: &str = "sleep(20)";
/// Recordings within which a bug that takes a race must have been seen.
const RECORDINGS: u64 = 16;

/// Whom a bug is planted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    All,
    OneFollower,
}

fn three(peers: &Peers) -> Result<Cluster> {
    let flags = ["--heartbeat-interval=50", "--election-timeout=500"];
    Cluster::start_with_failpoints(peers, 3, &flags)
}

/// Records clients of three members with `bug` in them; what the checkers say of it.
async fn found(peers: &Peers, (bug, terms): (&str, &str), on: On, seed: u64) -> Result<Result<()>> {
    let cluster = three(peers)?;
    let slow = (cluster.leader()? + 1) % cluster.size();
    for member in 0..cluster.size() {
        if on == On::All || member == slow {
            cluster.failpoints(member)?.set(bug, terms)?;
        }
    }
    let slow = cluster.failpoints(slow)?;
    slow.set("beforeApplyOneEntryNormal", SLOW)?;
    let load = Load {
        leases: 0,
        clients: 12,
        ..failpoints::load(&cluster, seed)
    };
    let recording = Recording::start(load).await?;
    recording.progress(OPERATIONS, GOES_ON_MAX).await?;
    slow.clear("beforeApplyOneEntryNormal")?;
    for member in 0..cluster.size() {
        // What is read back in the end is the truth.
        if on == On::All {
            cluster.failpoints(member)?.clear(bug)?;
        }
    }
    let recorded = recording.finish().await?;
    Ok(verdict::judge(&cluster, &recorded).await.map(drop))
}

/// The same of a stale read, which takes a race: several recordings, until one shows it.
async fn stale_read(peers: &Peers, bug: &str) -> Result<()> {
    let mut verdict = Ok(());
    for seed in 0..RECORDINGS {
        verdict = found(peers, (bug, "return"), On::All, seed).await?;
        if verdict.is_err() {
            break;
        }
    }
    let said = is_violation(verdict);
    ensure!(!said.contains("watch"), "{said}");
    Ok(())
}

#[track_caller]
fn is_violation(verdict: Result<()>) -> String {
    let error = verdict.expect_err("nobody noticed the bug");
    let violation = error.downcast_ref::<Violation>();
    violation.expect("another failure").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_is_served_without_confirmation_is_found() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    stale_read(&peers, "bugReadUnconfirmed").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_joins_a_round_under_way_is_found() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    stale_read(&peers, "bugReadJoinsOldRound").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_event_that_is_dropped_is_found() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let bug = ("bugWatchDropsEvent", "20*off->1*return");
    let said = is_violation(found(&peers, bug, On::All, 21).await?);
    ensure!(said.contains("a watch was given"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_applied_twice_is_found_on_all_members_and_on_one() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let bug = ("bugApplyTwice", "20*off->1*return");
    let said = is_violation(found(&peers, bug, On::All, 21).await?);
    ensure!(said.contains("written"), "{said}");
    let verdict = found(&peers, bug, On::OneFollower, 21).await?;
    let error = verdict.expect_err("nobody noticed the bug");
    let said = format!("{error:#}");
    // By a client of that member, or by comparing the members.
    let signs = ["has other changes", "members differ"];
    let is_found = error.is::<Violation>() || signs.iter().any(|sign| said.contains(sign));
    ensure!(is_found, "another failure: {said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_found_where_nothing_is_planted() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    found(&peers, ("bugReadUnconfirmed", "off"), On::All, 21).await?
}

/// How long the old leader stands still: longer than the lease.
const PAUSE: Duration = Duration::from_secs(4);
const TTL_S: i64 = 2;
/// Rounds without the bug.
const SOUND_ROUNDS: usize = 2;
const SOUND_ROUNDS_LONG: usize = 20;
/// Rounds within which an early revocation must have been seen: it is a race at the old leader.
const ROUNDS: usize = 6;

/// Keeps a lease alive while the leader stands still and wakes; whether its key is there then.
async fn outlives_a_pause(cluster: &mut Cluster) -> Result<bool> {
    let leader = cluster.leader()?;
    let other = cluster.endpoint((leader + 1) % cluster.size());
    let mut client = Client::connect(&other).await?;
    let grant = rpc::LeaseGrantRequest { ttl: TTL_S, id: 0 };
    let id = client.lease.lease_grant(grant).await?.into_inner().id;
    let put = rpc::PutRequest {
        key: b"leased".to_vec().into(),
        lease: id,
        ..rpc::PutRequest::default()
    };
    client.kv.put(put).await?;
    cluster.signal(leader, Signal::STOP)?;
    let (woken, end) = (Instant::now() + PAUSE, Instant::now() + 2 * PAUSE);
    let mut is_paused = true;
    while Instant::now() < end {
        if is_paused && Instant::now() > woken {
            cluster.signal(leader, Signal::CONT)?;
            is_paused = false;
        }
        let requests = tokio_stream::iter([rpc::LeaseKeepAliveRequest { id }]);
        let renewed = timeout(Duration::from_secs(1), async {
            let mut answers = client.lease.lease_keep_alive(requests).await?.into_inner();
            answers.message().await
        });
        if let Ok(Ok(Some(answer))) = renewed.await
            && answer.ttl <= 0
        {
            failpoints::wait_healthy(cluster, leader).await?;
            return Ok(false);
        }
        sleep(Duration::from_millis(100)).await;
    }
    failpoints::wait_healthy(cluster, leader).await?;
    let range = rpc::RangeRequest {
        key: b"leased".to_vec().into(),
        ..rpc::RangeRequest::default()
    };
    Ok(client.kv.range(range).await?.into_inner().count == 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_revoked_by_an_old_leader_that_wakes_is_found() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut cluster = three(&peers)?;
    for round in 0..long::rounds(SOUND_ROUNDS, SOUND_ROUNDS_LONG) {
        ensure!(
            outlives_a_pause(&mut cluster).await?,
            "a lease was lost without a bug, in round {round}"
        );
    }
    for member in 0..cluster.size() {
        let points = cluster.failpoints(member)?;
        points.set("bugLeaseExpiryUnconfirmed", "return")?;
    }
    for _ in 0..ROUNDS {
        if !outlives_a_pause(&mut cluster).await? {
            return Ok(());
        }
    }
    None.context("nobody noticed the bug")
}
