//! A member of three crashes, stalls and fails at each of its failpoints, under load: the history
//! stays linearizable, and the members agree in the end.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::http;
use holdfast_interop::peers::Peers;
use holdfast_interop::recorder::{Load, Recording};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::nemesis::GOES_ON_MAX;
use super::triggers::{self, Trigger};
use super::verdict;
use crate::long;

/// How long a point may take to be passed: a leader whose transfer broke off keeps the snapshot,
/// and its log, for up to a minute, and its follower needs none meanwhile.
const PASSED_MAX: Duration = Duration::from_mins(3);
/// After which a follower that needed no snapshot is cut off again: a leader that has just sent one
/// keeps its log for a while.
const AGAIN: Duration = Duration::from_secs(5);
/// Operations that must be answered around each fault.
const AROUND: u64 = 30;
/// Longer than any election of this cluster.
const STALL: &str = "1*sleep(1500)";

/// Who passes a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Leader,
    Follower,
}
use Who::{Follower, Leader};

/// A point, who passes it, and what leads there. Those before the mark are in the short form.
type Place = (&'static str, Who, Trigger);

/// Every point but those that [`UNREACHED`] names.
const PLACES: [Place; 47] = [
    ("raftAfterSave", Leader, Trigger::Load),
    ("beforeCommit", Follower, Trigger::Load),
    ("raftBeforeAdvance", Follower, Trigger::Load),
    (
        "compactBeforeSetFinishedCompact",
        Leader,
        Trigger::Compaction,
    ),
    ("defragBeforeRename", Follower, Trigger::Defragmentation),
    ("raftAfterApplySnap", Follower, Trigger::Snapshot),
    ("beforePublishing", Follower, Trigger::Start),
    // The mark.
    ("raftBeforeSave", Leader, Trigger::Load),
    ("walBeforeSync", Leader, Trigger::Load),
    ("walAfterSync", Follower, Trigger::Load),
    ("raftAfterWALRelease", Leader, Trigger::LargeCommands),
    ("raftBeforeLeaderSend", Leader, Trigger::Load),
    ("raftBeforeFollowerSend", Follower, Trigger::Load),
    ("raftDropHeartbeat", Follower, Trigger::Load),
    ("raftBeforeSaveSnap", Follower, Trigger::Snapshot),
    ("raftAfterSaveSnap", Follower, Trigger::Snapshot),
    ("raftBeforeApplySnap", Follower, Trigger::Snapshot),
    ("applyBeforeOpenSnapshot", Follower, Trigger::Snapshot),
    ("applyAfterOpenSnapshot", Follower, Trigger::Snapshot),
    ("raftBeforeWALSaveSnaphot", Leader, Trigger::Load),
    ("beforeApplyOneEntryNormal", Leader, Trigger::Load),
    ("beforeApplyOneConfChange", Follower, Trigger::Membership),
    ("beforeStartDBTxn", Leader, Trigger::Load),
    ("afterStartDBTxn", Follower, Trigger::Load),
    ("commitBeforePreCommitHook", Leader, Trigger::Load),
    ("commitAfterPreCommitHook", Follower, Trigger::Load),
    ("afterCommit", Leader, Trigger::Load),
    ("beforeWritebackBuf", Follower, Trigger::Load),
    ("afterWritebackBuf", Leader, Trigger::Load),
    ("beforeBucketPut", Follower, Trigger::Load),
    ("beforeSyncDataPages", Leader, Trigger::Load),
    ("resizeFileError", Follower, Trigger::Defragmentation),
    ("lackOfDiskSpace", Follower, Trigger::Defragmentation),
    (
        "compactBeforeCommitScheduledCompact",
        Leader,
        Trigger::Compaction,
    ),
    (
        "compactAfterCommitScheduledCompact",
        Follower,
        Trigger::Compaction,
    ),
    (
        "compactAfterAcquiredBatchTxLock",
        Leader,
        Trigger::Compaction,
    ),
    (
        "compactAfterSetFinishedCompact",
        Follower,
        Trigger::Compaction,
    ),
    ("compactBeforeCommitBatch", Leader, Trigger::Compaction),
    ("compactAfterCommitBatch", Follower, Trigger::Compaction),
    ("defragOpenFileError", Leader, Trigger::Defragmentation),
    ("defragBeforeCopy", Leader, Trigger::Defragmentation),
    ("defragdbFail", Follower, Trigger::Defragmentation),
    ("beforeServeHTTPLeaseRenew", Leader, Trigger::LeaseTime),
    (
        "beforeLookupWhenForwardLeaseTimeToLive",
        Leader,
        Trigger::LeaseTime,
    ),
    (
        "beforeLookupWhenLeaseTimeToLive",
        Leader,
        Trigger::LeaseTime,
    ),
    ("beforeRangeStreamChunk", Follower, Trigger::RangeStream),
    ("beforeSendWatchResponse", Follower, Trigger::Watch),
];
/// How many of them the short form has.
const SHORT: usize = 7;

/// Points that this test does not lead to, and why.
const UNREACHED: [(&str, &str); 1] = [(
    "beforeCheckpointInLeaseRenew",
    "a lease is checkpointed after 5 minutes",
)];

/// What a failing place does to the member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It cannot go on, and ends in order.
    Ends,
    /// It goes on, at once or once the point is cleared.
    GoesOn,
}

/// Points at which `return` is a failure.
const FAILURES: [(Place, Outcome); 9] = [
    (("walBeforeSync", Leader, Trigger::Load), Outcome::Ends),
    (
        ("defragdbFail", Follower, Trigger::Defragmentation),
        Outcome::GoesOn,
    ),
    (
        ("lackOfDiskSpace", Follower, Trigger::Defragmentation),
        Outcome::GoesOn,
    ),
    (("beforeCommit", Follower, Trigger::Load), Outcome::Ends),
    (
        ("beforeSyncDataPages", Leader, Trigger::Load),
        Outcome::Ends,
    ),
    (
        ("raftDropHeartbeat", Follower, Trigger::Load),
        Outcome::GoesOn,
    ),
    (
        ("applyBeforeOpenSnapshot", Follower, Trigger::Snapshot),
        Outcome::Ends,
    ),
    (
        ("resizeFileError", Follower, Trigger::Defragmentation),
        Outcome::GoesOn,
    ),
    (
        ("defragOpenFileError", Leader, Trigger::Defragmentation),
        Outcome::GoesOn,
    ),
];
const FAILURES_SHORT: usize = 2;

/// A cluster that purges its log soon, and what compactions can work on.
pub(crate) async fn cluster(peers: &Peers) -> Result<Cluster> {
    let flags = [
        "--snapshot-count=60",
        "--snapshot-catchup-entries=20",
        "--heartbeat-interval=50",
        "--election-timeout=500",
    ];
    let cluster = Cluster::start_with_failpoints(peers, 3, &flags)?;
    triggers::prepare(&cluster.endpoint(0)).await?;
    Ok(cluster)
}

/// Clients with leases and watches.
pub(crate) fn load(cluster: &Cluster, seed: u64) -> Load {
    Load {
        endpoints: cluster.endpoints(),
        clients: 6,
        watches: 2,
        leases: 2,
        operations_max: 1_000_000,
        pause: Duration::from_millis(2),
        seed,
    }
}

fn victim(cluster: &Cluster, who: Who) -> Result<usize> {
    let leader = cluster.leader()?;
    Ok(match who {
        Leader => leader,
        Follower => (leader + 1) % cluster.size(),
    })
}

/// Tells `victim`'s point something, leads it there, and waits until it has passed it: `true`, or
/// has ended there.
async fn lead_to(
    cluster: &mut Cluster,
    recording: &Recording,
    (point, terms): (&str, &str),
    victim: usize,
    trigger: Trigger,
) -> Result<bool> {
    if trigger == Trigger::Start {
        cluster.kill(victim)?;
        let all = cluster.initial_cluster();
        cluster.launch_told(victim, (&all, "new"), &format!("{point}={terms}"))?;
    } else {
        trigger.cock(cluster, recording, victim).await?;
        cluster.failpoints(victim)?.set(point, terms)?;
    }
    cluster.links()?.heal();
    let mut pulling = JoinSet::new();
    pulling.spawn(trigger.pull(cluster.endpoints(), victim));
    let end = Instant::now() + PASSED_MAX;
    let mut again = Instant::now() + AGAIN;
    let points = cluster.failpoints(victim)?;
    loop {
        if Instant::now() > again {
            trigger.cock(cluster, recording, victim).await?;
            cluster.links()?.heal();
            again = Instant::now() + AGAIN;
        }
        if cluster.wait_end(victim, Duration::ZERO).is_ok() {
            return Ok(false);
        }
        sleep(Duration::from_millis(20)).await;
        if !terms.contains("panic") && points.count(point).is_ok_and(|count| count > 0) {
            return Ok(true);
        }
        ensure!(
            Instant::now() < end,
            "{point} was not passed within {PASSED_MAX:?}"
        );
    }
}

/// Waits until a member says that it is well.
pub(crate) async fn wait_healthy(cluster: &Cluster, member: usize) -> Result<()> {
    let end = Instant::now() + PASSED_MAX;
    loop {
        let said = http::get(cluster.address(member), "/health");
        if said.is_ok_and(|(status, _)| status == 200) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "m{member} is not healthy");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn bring_back(cluster: &mut Cluster, recording: &Recording, victim: usize) -> Result<()> {
    recording.progress(AROUND, GOES_ON_MAX).await?;
    cluster.restart(victim)?;
    recording.progress(AROUND, GOES_ON_MAX).await
}

/// The member dies as by a crash.
async fn crash(cluster: &mut Cluster, recording: &Recording, place: Place) -> Result<()> {
    let (point, who, trigger) = place;
    let victim = victim(cluster, who)?;
    let told = (point, "panic");
    let lives = lead_to(cluster, recording, told, victim, trigger).await?;
    ensure!(!lives, "it lives on");
    let log = cluster.log(victim);
    let last = log.lines().rfind(|line| line.contains("failpoint panic"));
    let expected = format!("failpoint panic: {point}");
    ensure!(last == Some(&expected), "it ended otherwise: {last:?}");
    bring_back(cluster, recording, victim).await
}

/// The member stands still there for longer than an election takes.
async fn stall(cluster: &mut Cluster, recording: &Recording, place: Place) -> Result<()> {
    let (point, who, trigger) = place;
    let victim = victim(cluster, who)?;
    let told = (point, STALL);
    let lives = lead_to(cluster, recording, told, victim, trigger).await?;
    ensure!(lives, "it ended: {}", cluster.log(victim));
    recording.progress(AROUND, GOES_ON_MAX).await?;
    cluster.failpoints(victim)?.clear(point)?;
    wait_healthy(cluster, victim).await?;
    recording.progress(AROUND, GOES_ON_MAX).await
}

/// What is done there fails.
async fn fail(
    cluster: &mut Cluster,
    recording: &Recording,
    place: Place,
    outcome: Outcome,
) -> Result<()> {
    let (point, who, trigger) = place;
    let victim = victim(cluster, who)?;
    let told = (point, "return(\"it failed\")");
    let lives = lead_to(cluster, recording, told, victim, trigger).await?;
    if outcome == Outcome::Ends {
        if lives {
            cluster.wait_end(victim, PASSED_MAX)?;
        }
        return bring_back(cluster, recording, victim).await;
    }
    ensure!(lives, "it ended: {}", cluster.log(victim));
    recording.progress(AROUND, GOES_ON_MAX).await?;
    cluster.failpoints(victim)?.clear(point)?;
    wait_healthy(cluster, victim).await?;
    recording.progress(AROUND, GOES_ON_MAX).await
}

async fn judged(cluster: &Cluster, recording: Recording) -> Result<()> {
    let recorded = recording.finish().await?;
    let summary = verdict::judge(cluster, &recorded).await?;
    ensure!(summary.answered > 100, "{summary:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_each_failpoint_loses_nothing() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut cluster = cluster(&peers).await?;
    let recording = Recording::start(load(&cluster, 11)).await?;
    for place in PLACES.into_iter().take(long::rounds(SHORT, PLACES.len())) {
        crash(&mut cluster, &recording, place)
            .await
            .with_context(|| format!("{place:?}"))?;
    }
    judged(&cluster, recording).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_at_each_failpoint_loses_nothing() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut cluster = cluster(&peers).await?;
    let recording = Recording::start(load(&cluster, 12)).await?;
    for place in PLACES.into_iter().take(long::rounds(SHORT, PLACES.len())) {
        stall(&mut cluster, &recording, place)
            .await
            .with_context(|| format!("{place:?}"))?;
    }
    judged(&cluster, recording).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_at_each_failpoint_that_can_fail_loses_nothing() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut cluster = cluster(&peers).await?;
    let recording = Recording::start(load(&cluster, 13)).await?;
    let count = long::rounds(FAILURES_SHORT, FAILURES.len());
    for (place, outcome) in FAILURES.into_iter().take(count) {
        fail(&mut cluster, &recording, place, outcome)
            .await
            .with_context(|| format!("{place:?}"))?;
    }
    judged(&cluster, recording).await?;
    every_point_is_in_the_table(&cluster)
}

/// No point is left out without a reason.
fn every_point_is_in_the_table(cluster: &Cluster) -> Result<()> {
    let listed = cluster.failpoints(0)?.list()?;
    let points = listed.keys().filter(|name| !name.starts_with("bug"));
    let points: BTreeSet<&str> = points.map(String::as_str).collect();
    let places = PLACES.iter().map(|(point, ..)| *point);
    let known = places.chain(UNREACHED.iter().map(|(point, _)| *point));
    let known: BTreeSet<&str> = known.collect();
    ensure!(points == known, "{:?}", points.symmetric_difference(&known));
    Ok(())
}
