//! The handle of a running member.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::forward::ForLeader;
use super::late::{Late, Way};
use super::reads::ReadWaiter;
use super::{MemberOptions, Scrubbed, admission, scrubber, start};
use crate::apply::{EventSink, LogPosition, Response};
use crate::command::{Command, Request};
use crate::consensus::log::RaftLogReader;
use crate::consensus::peer::PeerCalls;
use crate::consensus::{ApplyHandle, Group, Leadership, Proposal, Space, Waiters};
use crate::datadir::DirLock;
use crate::datadir::identity::{ClusterId, MemberId};
use crate::deadline;
use crate::error::Error;
use crate::lease::LeaseClock;
use crate::state::{Sizes, State};

/// A linearizable read confirmed later than this is counted as slow, as in etcd.
const READ_SLOW: Duration = Duration::from_millis(500);
/// How often what waits for space on the disk looks for it.
const ROOM_INTERVAL: Duration = Duration::from_millis(50);

/// Linearizable reads that did not go well, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadFaults {
    /// Could not be confirmed.
    pub failed: u64,
    /// Confirmed late, or not in time.
    pub slow: u64,
}

/// What a proposal came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The answer.
    pub response: Response,
    /// Where in the log the command stands.
    pub position: LogPosition,
}

/// What a member says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// This member's id.
    pub member_id: MemberId,
    /// The cluster's id.
    pub cluster_id: ClusterId,
    /// The leader's id, when one is known.
    pub leader: Option<MemberId>,
    /// The current term.
    pub term: u64,
    /// The last log index known to be on a quorum.
    pub committed_index: u64,
    /// The last log index in the state.
    pub applied_index: u64,
    /// Whether this member has no vote.
    pub is_learner: bool,
    /// How large the state is.
    pub sizes: Sizes,
    /// Proposals accepted and not answered yet.
    pub pending_proposals: u64,
    /// Proposals that failed since the start, whatever the reason.
    pub failed_proposals: u64,
    /// Leader changes seen since the start.
    pub leader_changes: u64,
    /// What is wrong now, as etcd's `Status.errors`.
    pub errors: Vec<String>,
    /// Why the member stopped working, when it did: nothing is written any more.
    pub fatal: Option<String>,
}

/// A running member; cheap to clone.
#[derive(Clone)]
pub struct Member {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) options: MemberOptions,
    pub(super) member_id: MemberId,
    pub(super) cluster_id: ClusterId,
    pub(super) state: Arc<State>,
    pub(super) leases: Arc<LeaseClock>,
    pub(super) group: Group,
    pub(super) leadership: Leadership,
    pub(super) log: RaftLogReader,
    pub(super) space: Arc<Space>,
    pub(super) admission: admission::Admission,
    /// Those that wait for space on the disk before they are admitted.
    pub(super) waiting: admission::Admission,
    pub(super) reads: mpsc::Sender<ReadWaiter>,
    /// Commands for the leader elsewhere.
    pub(super) for_leader: mpsc::Sender<ForLeader>,
    pub(super) waiters: Arc<Waiters>,
    /// Why the member cannot go on; set once.
    pub(super) fatal: watch::Sender<Option<String>>,
    pub(super) next_id: AtomicU64,
    /// Held while the membership is changed.
    pub(super) reconfiguring: tokio::sync::Mutex<()>,
    pub(super) tallies: Tallies,
    pub(super) stopping: CancellationToken,
    pub(super) tasks: TaskTracker,
    /// What [`Member::stop`] takes.
    pub(super) owned: Mutex<Option<Owned>>,
}

/// What the member counts from its start on.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    pub(super) leader_changes: AtomicU64,
    /// When this member last saw a new leader.
    pub(super) elected: Mutex<Option<Instant>>,
    pub(super) failed_proposals: AtomicU64,
    pub(super) leases_expired: AtomicU64,
    reads_failed: AtomicU64,
    reads_slow: AtomicU64,
    is_defragmenting: AtomicBool,
    pub(super) scrubbed: scrubber::Counters,
}

/// Counts a proposal as failed unless its outcome is known: also one whose caller went away.
struct FailsUnlessTold<'a> {
    failed: &'a AtomicU64,
    is_done: bool,
}

impl Drop for FailsUnlessTold<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What ends with the member.
pub(super) struct Owned {
    pub(super) apply: ApplyHandle,
    pub(super) apply_thread: Option<JoinHandle<()>>,
    pub(super) lock: DirLock,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("id", &self.inner.member_id)
            .finish_non_exhaustive()
    }
}

impl Member {
    /// Starts the member in its data directory, founding the cluster of its options when there is
    /// nothing there yet.
    ///
    /// A member that votes alone leads and has everything it had acknowledged applied again when
    /// this returns. One of several must now be reached by the others, and is [`Member::ready`]
    /// later.
    pub async fn start(options: MemberOptions, events: Arc<dyn EventSink>) -> Result<Self, Error> {
        start::start(options, events).await
    }

    /// Whether another member that `options` name answers as one of a running cluster. Asks over
    /// the peer URLs, within a second; nothing is started.
    pub async fn is_cluster_running(options: &MemberOptions) -> bool {
        start::is_cluster_running(options).await
    }

    /// Returns once there is a leader, everything acknowledged before is applied here, and the
    /// cluster knows this member's name and URLs.
    ///
    /// # Errors
    /// When the member stopped meanwhile.
    pub async fn ready(&self) -> Result<(), Error> {
        start::ready(self).await
    }

    /// Answers what other members ask of raft.
    pub(crate) fn peer_calls(&self) -> &PeerCalls {
        self.inner.group.peer_calls()
    }

    /// Puts `request` through the log. Returns once it is durable and applied.
    ///
    /// Refused at once with `TooManyRequests` when too much is under way, and with `NoSpace` when
    /// the disk is full. After `Timeout` the request may still be applied later, as in etcd.
    pub async fn propose(&self, request: Request) -> Result<Applied, Error> {
        let mut outcome = FailsUnlessTold {
            failed: &self.inner.tallies.failed_proposals,
            is_done: false,
        };
        let applied = self.try_propose(request, None).await?;
        outcome.is_done = true;
        Ok(applied)
    }

    /// Puts `request` through the log if this member leads in `term`: what was decided as a leader
    /// must not be done under another one, nor in a later term.
    ///
    /// # Errors
    /// `NotLeader` or `NoLeader` when it does not, and else those of [`Member::propose`].
    pub(super) async fn propose_in_term(
        &self,
        request: Request,
        term: u64,
    ) -> Result<Applied, Error> {
        self.try_propose(request, Some(term)).await
    }

    async fn try_propose(&self, request: Request, only_in: Option<u64>) -> Result<Applied, Error> {
        let inner = &*self.inner;
        self.check_alive()?;
        self.find_room(&request).await?;
        let id = inner.next_id.fetch_add(1, Ordering::Relaxed);
        let is_urgent = admission::is_urgent(&request);
        let request = self.decide(request);
        let proposal = Proposal::new(Command {
            id,
            request: Some(request),
        });
        let _admitted = inner.admission.admit(proposal.encoded.len(), is_urgent)?;
        if deadline::is_over() {
            return Err(Error::DeadlineExceeded);
        }
        let (start, way) = (Instant::now(), Way::default());
        let written = timeout(self.request_timeout(), async {
            match only_in {
                Some(term) => inner.group.write_in_term(proposal, term).await,
                None => self.put_through(proposal, &way).await,
            }
        })
        .await;
        let (outcome, position) = match written {
            Ok(written) => written.map_err(|error| self.explain(error))?,
            Err(_) => return Err(self.explain_late(start, &way)),
        };
        if matches!(outcome, Err(Error::NoSpace)) {
            self.raise_no_space();
        }
        Ok(Applied {
            response: outcome?,
            position,
        })
    }

    /// Returns once the disk has room for a request, or refuses it for want of space that does not
    /// come back by itself.
    pub(super) async fn find_room(&self, request: &Request) -> Result<(), Error> {
        let inner = &*self.inner;
        let bytes = request.encoded_len();
        let mut waiting = None;
        loop {
            let pending = inner.admission.pending_bytes();
            if waiting.is_none() || !inner.space.is_exhausted() {
                inner.space.propose(bytes, pending);
            } else {
                inner.space.look_again(pending);
            }
            let is_refused = inner.space.is_exhausted() && admission::takes_space(request);
            if !is_refused && !inner.space.is_state_short() {
                return Ok(());
            }
            if inner.space.is_exhausted_for_long() {
                return Err(Error::NoSpace);
            }
            if waiting.is_none() {
                let is_urgent = admission::is_urgent(request);
                waiting = Some(inner.waiting.admit(bytes, is_urgent)?);
            }
            sleep(ROOM_INTERVAL).await;
            self.check_alive()?;
        }
    }

    /// Fills in what must not be left to each member: the proposer decides.
    fn decide(&self, mut request: Request) -> Request {
        if let Request::LeaseGrant(grant) = &mut request {
            grant.ttl = self.inner.leases.granted_ttl_s(grant.ttl);
            while grant.id == 0 {
                // etcd's ids are positive.
                grant.id = i64::from_be_bytes((rand::random::<u64>() >> 1).to_be_bytes());
            }
        }
        request
    }

    /// Returns once every write acknowledged before this call can be read from the state.
    pub async fn linearizable(&self) -> Result<(), Error> {
        let start = Instant::now();
        let result = self.confirm_read().await;
        if result.is_err() {
            self.inner
                .tallies
                .reads_failed
                .fetch_add(1, Ordering::Relaxed);
        }
        if start.elapsed() > READ_SLOW {
            self.inner
                .tallies
                .reads_slow
                .fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    async fn confirm_read(&self) -> Result<(), Error> {
        self.check_alive()?;
        let (done, result) = oneshot::channel();
        let answered = timeout(self.request_timeout(), async {
            self.inner.reads.send(done).await.or(Err(Error::Stopped))?;
            result.await.unwrap_or(Err(Error::Stopped))
        });
        match answered.await {
            Ok(result) => result.map_err(|error| self.explain(error)),
            Err(_) => Err(self.explain(Error::Timeout)),
        }
    }

    /// What the background check of all records has done since the start.
    pub fn scrubbed(&self) -> Scrubbed {
        self.inner.tallies.scrubbed.read()
    }

    /// Linearizable reads that did not go well.
    pub fn reads(&self) -> ReadFaults {
        ReadFaults {
            failed: self.inner.tallies.reads_failed.load(Ordering::Relaxed),
            slow: self.inner.tallies.reads_slow.load(Ordering::Relaxed),
        }
    }

    /// Leases revoked by this member because their time was over.
    pub fn leases_expired(&self) -> u64 {
        self.inner.tallies.leases_expired.load(Ordering::Relaxed)
    }

    /// Whether a defragmentation runs.
    pub fn is_defragmenting(&self) -> bool {
        self.inner.tallies.is_defragmenting.load(Ordering::Relaxed)
    }

    /// The readable state.
    pub fn state(&self) -> &Arc<State> {
        &self.inner.state
    }

    /// The raft log, to look at.
    pub fn log(&self) -> &RaftLogReader {
        &self.inner.log
    }

    /// The times of leases.
    pub fn leases(&self) -> &Arc<LeaseClock> {
        &self.inner.leases
    }

    /// What the member was started with.
    pub fn options(&self) -> &MemberOptions {
        &self.inner.options
    }

    /// This member's id.
    pub fn id(&self) -> MemberId {
        self.inner.member_id
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> ClusterId {
        self.inner.cluster_id
    }

    /// The current term; cheap.
    pub fn term(&self) -> u64 {
        self.inner.leadership.term()
    }

    /// The leader, when one is known; cheap.
    pub fn leader(&self) -> Option<MemberId> {
        self.inner.leadership.leader().map(MemberId)
    }

    /// Whether this member has no vote; cheap.
    pub fn is_learner(&self) -> bool {
        self.inner.leadership.is_learner()
    }

    /// Whether this member leads; cheap.
    pub fn is_leader(&self) -> bool {
        self.inner.leadership.is_leader()
    }

    /// What the member says of itself.
    pub fn status(&self) -> MemberStatus {
        let inner = &*self.inner;
        let group = inner.group.status();
        let fatal = self.fatal();
        // Raft's own figures follow the state a moment later.
        let applied_index = inner.state.applied().map_or(0, |at| at.index);
        MemberStatus {
            member_id: inner.member_id,
            cluster_id: inner.cluster_id,
            leader: group.leader.map(MemberId),
            term: group.term,
            committed_index: group.committed_index.max(applied_index),
            applied_index,
            is_learner: self.is_learner(),
            sizes: inner.state.sizes(),
            pending_proposals: inner.admission.pending(),
            failed_proposals: inner.tallies.failed_proposals.load(Ordering::Relaxed),
            leader_changes: inner.tallies.leader_changes.load(Ordering::Relaxed),
            errors: self.errors(group.leader.is_none(), fatal.as_ref()),
            fatal,
        }
    }

    fn errors(&self, is_leaderless: bool, fatal: Option<&String>) -> Vec<String> {
        let mut errors = Vec::new();
        if is_leaderless {
            errors.push("etcdserver: no leader".to_owned());
        }
        for alarm in self.inner.state.alarms() {
            let kind = alarm.alarm().as_str_name();
            errors.push(format!("memberID:{} alarm:{kind} ", alarm.member_id));
        }
        if self.inner.space.is_exhausted() {
            errors.push("the disk is full; writes are refused until there is space".to_owned());
        }
        errors.extend(fatal.cloned());
        errors
    }

    /// Rewrites the state file without its free pages. Writes wait; reads go on. Refused with
    /// `NoSpaceToRewrite` when the rewritten file does not fit beside the old one.
    pub async fn defragment(&self) -> Result<(), Error> {
        let apply = self.apply_handle()?;
        self.inner
            .tallies
            .is_defragmenting
            .store(true, Ordering::Relaxed);
        let result = apply.defragment().await;
        self.inner
            .tallies
            .is_defragmenting
            .store(false, Ordering::Relaxed);
        result
    }

    /// Returns once no compaction has rows left to remove.
    pub async fn compaction_finished(&self) -> Result<(), Error> {
        self.apply_handle()?.compacted().await
    }

    /// Makes everything applied so far durable in the state file.
    pub async fn checkpoint(&self) -> Result<(), Error> {
        self.apply_handle()?.checkpoint().await
    }

    /// Checkpoints, and purges all of the log that is covered by it.
    pub async fn purge_log(&self) -> Result<(), Error> {
        self.inner.group.purge(self.request_timeout()).await
    }

    /// Returns when the member cannot go on, with the reason. Never for one that stops in order.
    pub async fn failed(&self) -> String {
        let mut fatal = self.inner.fatal.subscribe();
        loop {
            let reason = fatal.borrow_and_update().clone();
            if let Some(reason) = reason {
                return reason;
            }
            if fatal.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Hands the lead over, ends all work, makes the state durable and gives the data directory
    /// back.
    ///
    /// Other clones of the handle answer `Stopped` from then on; the directory can be opened
    /// again once they are gone.
    pub async fn stop(self) -> Result<(), Error> {
        self.hand_over().await;
        let inner = &*self.inner;
        let Some(owned) = inner.owned.lock().take() else {
            return Ok(());
        };
        inner.stopping.cancel();
        inner.space.stop();
        inner.tasks.close();
        inner.tasks.wait().await;
        inner.group.stop().await;
        let Owned {
            apply,
            apply_thread,
            lock,
        } = owned;
        let durable = apply.checkpoint().await;
        drop(apply);
        if let Some(apply_thread) = apply_thread {
            let joined = tokio::task::spawn_blocking(move || apply_thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                tracing::error!("the apply thread panicked");
            }
        }
        drop(lock);
        durable
    }

    fn fatal(&self) -> Option<String> {
        self.inner
            .fatal
            .borrow()
            .clone()
            .or_else(|| self.inner.group.fatal())
    }

    pub(super) fn check_alive(&self) -> Result<(), Error> {
        if self.inner.stopping.is_cancelled() || self.inner.fatal.borrow().is_some() {
            return Err(Error::Stopped);
        }
        Ok(())
    }

    fn apply_handle(&self) -> Result<ApplyHandle, Error> {
        let owned = self.inner.owned.lock();
        owned
            .as_ref()
            .map(|owned| owned.apply.clone())
            .ok_or(Error::Stopped)
    }

    /// etcd's: five seconds, and twice the election timeout for a leader to be found. Less when
    /// the caller does not wait that long.
    pub(super) fn request_timeout(&self) -> Duration {
        deadline::shorten(Duration::from_secs(5) + 2 * self.inner.options.election_timeout)
    }

    /// A timeout while stopping is told as what it is.
    pub(super) fn explain(&self, error: Error) -> Error {
        match error {
            Error::Timeout | Error::NoLeader if self.inner.stopping.is_cancelled() => {
                Error::Stopped
            }
            other => other,
        }
    }

    /// Why a proposal that was made at `start` has no outcome in time, as etcd tells it.
    fn explain_late(&self, start: Instant, way: &Way) -> Error {
        let inner = &*self.inner;
        if inner.stopping.is_cancelled() {
            return Error::Stopped;
        }
        let late = Late {
            since_start: start.elapsed(),
            since_election: inner.tallies.elected.lock().map(|at| at.elapsed()),
            has_leader: inner.leadership.leader().is_some(),
            is_taken: way.is_taken(),
            is_cut: way.is_cut(),
        };
        late.error(inner.options.election_timeout)
    }
}
