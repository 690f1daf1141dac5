//! What a member does on its own while it runs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_proto::etcd::rpc;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::handle::{Applied, Member};
use super::{compactor, forward, integrity, reads, reconfigure, removed, scrubber};
use crate::command::{
    ClusterVersion, LeaseCheckpoint, LeaseCheckpoints, MemberAttributes, Request,
};
use crate::datadir::identity::MemberId;
use crate::error::Error;
use crate::failpoint::{self, Point};

/// How often expired leases are looked for, as etcd does.
const LEASE_INTERVAL: Duration = Duration::from_millis(500);
/// Leases revoked in one look.
const REVOKES_MAX: usize = 500;
/// Lease checkpoints in one command.
const CHECKPOINTS_MAX: usize = 1000;
/// Revocations under way at once.
const REVOKES_PENDING_MAX: usize = 16;
/// How often the disk's free space is looked at.
const SPACE_INTERVAL: Duration = Duration::from_millis(500);
/// How often the length of the log is looked at.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// How often damage found by readers is looked for.
const DAMAGE_INTERVAL: Duration = Duration::from_secs(1);

/// What the tasks take from.
pub(super) struct Queues {
    pub(super) reads: mpsc::Receiver<reads::ReadWaiter>,
    pub(super) for_leader: mpsc::Receiver<forward::ForLeader>,
}

/// The queues and their ends.
pub(super) fn queues() -> (
    mpsc::Sender<reads::ReadWaiter>,
    mpsc::Sender<forward::ForLeader>,
    Queues,
) {
    let (for_reads, reads) = mpsc::channel(reads::READERS_MAX);
    let (to_leader, for_leader) = mpsc::channel(forward::COMMANDS_MAX);
    (for_reads, to_leader, Queues { reads, for_leader })
}

/// Starts all tasks; they end when the member stops.
pub(super) fn spawn(member: &Member, queues: Queues) {
    let inner = &member.inner;
    let patience = member.request_timeout();
    inner.tasks.spawn(reads::serve(
        inner.group.clone(),
        queues.reads,
        patience,
        inner.stopping.clone(),
    ));
    inner.tasks.spawn(forward::serve(
        inner.group.clone(),
        queues.for_leader,
        patience,
        inner.stopping.clone(),
    ));
    spawn_until_stopped(member, expire_leases(member.clone()));
    spawn_until_stopped(member, watch_space(member.clone()));
    spawn_until_stopped(member, watch_leader(member.clone()));
    spawn_until_stopped(member, watch_damage(member.clone()));
    spawn_until_stopped(member, removed::watch(member.clone()));
    spawn_until_stopped(member, reconfigure::give_votes(member.clone()));
    spawn_until_stopped(member, limit_log(member.clone()));
    spawn_until_stopped(member, compactor::run(member.clone()));
    spawn_until_stopped(member, scrubber::run(member.clone()));
    spawn_until_stopped(member, integrity::compare_periodically(member.clone()));
    spawn_until_stopped(member, integrity::compare_compactions(member.clone()));
}

fn spawn_until_stopped(member: &Member, work: impl Future<Output = ()> + Send + 'static) {
    let stopping = member.inner.stopping.clone();
    member.inner.tasks.spawn(async move {
        tokio::select! {
            () = stopping.cancelled() => {}
            () = work => {}
        }
    });
}

/// Makes the member's name, URLs and the cluster's version known, when they are not yet.
pub(super) async fn publish(member: &Member) -> Result<(), Error> {
    failpoint::pause(Point::BeforePublishing).await;
    let inner = &member.inner;
    let id = inner.member_id.0;
    let options = &inner.options;
    let is_published = inner.state.members().iter().any(|known| {
        known.id == id && known.name == options.name && known.client_urls == options.client_urls
    });
    if !is_published {
        let attributes = MemberAttributes {
            member_id: id,
            name: options.name.clone(),
            client_urls: options.client_urls.clone(),
        };
        member
            .propose(Request::MemberAttributes(attributes))
            .await?;
    }
    if inner.state.cluster_version().as_ref() != Some(&options.cluster_version) {
        let version = ClusterVersion {
            version: options.cluster_version.clone(),
        };
        member.propose(Request::ClusterVersion(version)).await?;
    }
    Ok(())
}

/// Revokes expired leases and records the remaining time of long ones.
async fn expire_leases(member: Member) {
    let mut ticks = interval(LEASE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let leases = &member.inner.leases;
        let Some(term) = leases.term() else {
            continue;
        };
        let due = leases.due(Instant::now(), REVOKES_MAX);
        let checkpoints = leases.checkpoints_due(Instant::now(), CHECKPOINTS_MAX);
        if due.is_empty() && checkpoints.is_empty() {
            continue;
        }
        // A process that was paused may have lost the lead meanwhile, and whoever leads now has
        // renewed the leases: ask before deciding, and let nothing into the log of another term.
        let is_asked = !failpoint::pause(Point::BugLeaseExpiryUnconfirmed).await;
        if is_asked && member.confirm_lead(term).await.is_err() {
            continue;
        }
        // Its answer may have taken long, and the time may have been started anew meanwhile.
        let due = if is_asked {
            leases.decide(term, &due, Instant::now())
        } else {
            due
        };
        let term = is_asked.then_some(term);
        if !checkpoints.is_empty() {
            let checkpoints = checkpoints
                .into_iter()
                .map(|(id, remaining_ttl)| LeaseCheckpoint {
                    id: id.0,
                    remaining_ttl,
                })
                .collect();
            let request = Request::LeaseCheckpoint(LeaseCheckpoints { checkpoints });
            report(
                "record lease times",
                member.decide_in(term, request).await.map(drop),
            );
        }
        for group in due.chunks(REVOKES_PENDING_MAX) {
            let revokes = group.iter().map(|id| {
                let revoke = rpc::LeaseRevokeRequest { id: id.0 };
                member.decide_in(term, Request::LeaseRevoke(revoke))
            });
            for result in futures::future::join_all(revokes).await {
                match result {
                    Ok(_) => {
                        member
                            .inner
                            .tallies
                            .leases_expired
                            .fetch_add(1, Ordering::Relaxed);
                    }
                    // Gone, or another leader's.
                    Err(Error::LeaseNotFound | Error::NotLeader | Error::NoLeader) => {}
                    Err(error) => report("revoke an expired lease", Err(error)),
                }
            }
        }
    }
}

/// Founds the cluster with the other founders, without several standing for election at once: the
/// first of them begins, and the others take over when it does not come.
pub(super) fn found(member: &Member, members: Vec<(MemberId, Vec<String>)>) {
    let (group, own) = (member.inner.group.clone(), member.inner.member_id);
    let place = members.iter().position(|(id, _)| *id == own).unwrap_or(0);
    let turns = u32::try_from(place).unwrap_or(u32::MAX);
    let patience = member.inner.options.election_timeout * turns;
    spawn_until_stopped(member, async move {
        sleep(patience).await;
        report("found the cluster", group.found(&members).await);
    });
}

async fn watch_space(member: Member) {
    let mut ticks = interval(SPACE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let space = std::sync::Arc::clone(&member.inner.space);
        match tokio::task::spawn_blocking(move || space.check()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot look at the free space"),
            Err(error) => tracing::warn!(%error, "the look at the free space panicked"),
        }
    }
}

/// Purges a log that few large entries make too long, or that holds what a full disk needs.
async fn limit_log(member: Member) {
    let mut ticks = interval(LOG_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let stored = member.inner.log.stored_bytes();
        let is_long = stored > member.inner.options.log_bytes_max;
        let space = &member.inner.space;
        // Nothing to purge is left alone: saying so would take space in the log.
        let is_in_the_way = stored > 0 && (space.is_tight() || space.is_exhausted());
        if is_long || is_in_the_way {
            report("purge the raft log", member.purge_log().await);
        }
    }
}

/// Keeps the lease clock on the leader only.
async fn watch_leader(member: Member) {
    let inner = &member.inner;
    let mut leadership = inner.group.leadership();
    let mut last = (leadership.leader(), leadership.term());
    loop {
        let is_running = leadership.changed().await;
        if !is_running {
            break;
        }
        let now = (leadership.leader(), leadership.term());
        if now == last {
            continue;
        }
        if now.0.is_some() {
            inner.tallies.leader_changes.fetch_add(1, Ordering::Relaxed);
            *inner.tallies.elected.lock() = Some(Instant::now());
        }
        last = now;
        if now.0 == Some(inner.member_id.0) {
            member.promote_leases(now.1);
        } else {
            if failpoint::pause(Point::BugLeaseExpiryUnconfirmed).await {
                sleep(LEASE_INTERVAL).await;
            }
            inner.leases.demote();
        }
    }
    // Only a member that stops in order ends the group; it ends this task first.
    let reason = inner
        .group
        .fatal()
        .unwrap_or_else(|| "the raft group ended".to_owned());
    inner.fatal.send_if_modified(|fatal| {
        let is_first = fatal.is_none();
        fatal.get_or_insert(reason);
        is_first
    });
}

/// Raises the CORRUPT alarm once a damaged record was met.
async fn watch_damage(member: Member) {
    let mut ticks = interval(DAMAGE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(damage) = member.inner.state.damage() else {
            continue;
        };
        if member.has_alarm(rpc::AlarmType::Corrupt) {
            continue;
        }
        tracing::error!(%damage, "the store is damaged; raise the CORRUPT alarm");
        report(
            "raise the CORRUPT alarm",
            member.raise(rpc::AlarmType::Corrupt).await,
        );
    }
}

impl Member {
    /// Puts through the log what this leader decided in `term`; `None` is a planted bug.
    async fn decide_in(&self, term: Option<u64>, request: Request) -> Result<Applied, Error> {
        match term {
            Some(term) => self.propose_in_term(request, term).await,
            None => self.propose(request).await,
        }
    }

    /// Starts the time of all leases anew: this member leads in `term`.
    pub(super) fn promote_leases(&self, term: u64) {
        let inner = &self.inner;
        let extension = inner.options.election_timeout;
        inner.leases.promote(term, Instant::now(), extension, || {
            inner.state.lease_infos()
        });
    }

    /// Raises NOSPACE for the whole cluster, in the background, unless it is raised already: by
    /// this member or, in a restored store, by a member of the cluster it came from.
    pub(super) fn raise_no_space(&self) {
        let alarms = self.inner.state.alarms();
        if alarms
            .iter()
            .any(|alarm| alarm.alarm() == rpc::AlarmType::Nospace)
        {
            return;
        }
        let member = self.clone();
        spawn_until_stopped(self, async move {
            tracing::warn!("the space quota is used up; raise the NOSPACE alarm");
            report(
                "raise the NOSPACE alarm",
                member.raise(rpc::AlarmType::Nospace).await,
            );
        });
    }

    fn has_alarm(&self, kind: rpc::AlarmType) -> bool {
        let own = self.inner.member_id.0;
        let alarms = self.inner.state.alarms();
        alarms
            .iter()
            .any(|alarm| alarm.member_id == own && alarm.alarm() == kind)
    }

    async fn raise(&self, kind: rpc::AlarmType) -> Result<(), Error> {
        self.raise_for(self.inner.member_id, kind).await
    }

    /// Raises an alarm about a member.
    pub(super) async fn raise_for(
        &self,
        member: MemberId,
        kind: rpc::AlarmType,
    ) -> Result<(), Error> {
        let mut request = rpc::AlarmRequest {
            member_id: member.0,
            ..Default::default()
        };
        request.set_action(rpc::alarm_request::AlarmAction::Activate);
        request.set_alarm(kind);
        self.propose(Request::Alarm(request)).await.map(drop)
    }
}

pub(super) fn report(doing: &str, result: Result<(), Error>) {
    match result {
        Ok(()) | Err(Error::Stopped) => {}
        Err(error) => tracing::warn!(%error, doing, "a background task failed; it is tried again"),
    }
}
