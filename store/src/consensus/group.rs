//! One member's end of the raft group.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver as _;
use openraft::errors::{
    ClientWriteError, ForwardReason, InitializeError, LinearizableReadError, RaftError,
};
use openraft::impls::ProgressResponder;
use openraft::{Config, Raft, ReadPolicy, SnapshotPolicy};
use tokio::time::timeout;

use super::found;
use super::leadership::{Contact, Leadership};
use super::log::RaftLog;
use super::machine::{Machine, to_position};
use super::outbox::Outbox;
use super::peer::{Dialers, Identity, LeaderCalls, PEER_MESSAGE_BYTES_MAX, PeerCalls, Peers};
use super::types::{Proposal, TypeConfig};
use crate::apply::{LogPosition, Outcome};
use crate::datadir::identity::MemberId;
use crate::error::Error;
use crate::failpoint::{self, Point};

/// How the group keeps time and how much log it keeps.
#[derive(Debug, Clone)]
pub(crate) struct GroupOptions {
    pub(crate) heartbeat: Duration,
    pub(crate) election_timeout: Duration,
    pub(crate) snapshot_count: u64,
    pub(crate) catch_up_entries: u64,
    pub(crate) pre_vote: bool,
    /// How connections to peers are made.
    pub(crate) dialers: Dialers,
    /// How fast a snapshot is sent at most.
    pub(crate) snapshot_bytes_per_s: Option<u64>,
}

/// Bytes of a command that still travels in one message.
const COMMAND_BYTES_MAX: usize = PEER_MESSAGE_BYTES_MAX - (1 << 20);

/// How often to look whether another member leads.
const TRANSFER_LOOK: Duration = Duration::from_millis(5);

/// What the group says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupStatus {
    pub(crate) leader: Option<u64>,
    pub(crate) term: u64,
    pub(crate) committed_index: u64,
    pub(crate) is_learner: bool,
    pub(crate) is_leader: bool,
}

/// The running group.
#[derive(Clone)]
pub(crate) struct Group {
    pub(super) id: u64,
    pub(super) raft: Raft<TypeConfig, Machine>,
    pub(super) peers: Peers,
    calls: PeerCalls,
    outbox: Arc<Outbox>,
    leadership: Leadership,
    /// A member that was not heard for this long counts as down.
    pub(super) silence_max: Duration,
    /// How long the leader may take to answer before another one is looked for.
    leader_patience: Duration,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl GroupOptions {
    fn config(&self) -> Result<Config, Error> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let election = millis(self.election_timeout);
        // openraft's longest timeout is its leader lease too, and its followers let the lease pass
        // before they wait for a timeout. So these two are parts of the time that the operator
        // gave: who hears of no leader stands for election after 1.1 to 1.4 of it. (The shortest
        // is also how long the answer to a vote may take.)
        let shortest = election.saturating_mul(4) / 10;
        let longest = election.saturating_mul(7) / 10;
        let config = Config {
            cluster_name: "holdfast".to_owned(),
            heartbeat_interval: millis(self.heartbeat),
            election_timeout_min: shortest,
            election_timeout_max: longest,
            enable_pre_vote: Some(self.pre_vote),
            // An old leader whose heartbeats reach only some members must not hold the others up.
            // (No less than the leader lease and the longest election timeout together.)
            quorum_loss_probe_interval: Some(election.saturating_mul(2)),
            // A restart is a new term: entries that were not durable must not come back changed
            // under the old one.
            enable_leader_restore: Some(false),
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_count.max(1)),
            max_in_snapshot_log_to_keep: self.catch_up_entries,
            purge_batch_size: (self.snapshot_count / 10).clamp(1, 1024),
            ..Config::default()
        };
        config.validate().map_err(|error| Error::Option {
            option: "election-timeout",
            reason: error.to_string(),
        })
    }
}

impl Group {
    /// Starts this member's end: reads the log back and applies what the state lacks.
    pub(crate) async fn start(
        own: Identity,
        options: &GroupOptions,
        log: RaftLog,
        machine: Machine,
    ) -> Result<Self, Error> {
        let id = own.member.0;
        let config = Arc::new(options.config()?);
        // From then on there may be another leader.
        let lease = options.election_timeout;
        let peers = Peers::new(own, options.dialers.clone(), options.election_timeout)
            .with_snapshot_rate(options.snapshot_bytes_per_s);
        let outbox = Arc::clone(machine.outbox());
        let inbox = machine.snapshot_dir().to_owned();
        let raft = Raft::new(id, config, peers.clone(), log, machine)
            .await
            .map_err(|error| fatal(&error))?;
        let contact = Arc::new(Contact::new(lease));
        let leadership = Leadership::new(
            id,
            lease,
            Arc::clone(&contact),
            raft.server_metrics(),
            raft.data_metrics(),
        );
        let calls = PeerCalls::new(own, raft.clone(), contact, peers.traffics().clone(), inbox);
        Ok(Self {
            id,
            raft,
            peers,
            calls,
            outbox,
            leadership,
            silence_max: 2 * options.election_timeout,
            leader_patience: options.election_timeout,
        })
    }

    /// Answers what other members ask of raft.
    pub(crate) fn peer_calls(&self) -> &PeerCalls {
        &self.calls
    }

    /// The leader, when it is another member that can be called now. One that was heard before the
    /// membership arrived, that says where it is, counts as none yet.
    pub(crate) fn leader_calls(&self) -> Result<LeaderCalls, Error> {
        let leader = self.leadership.leader().ok_or(Error::NoLeader)?;
        if leader == self.id {
            return Err(Error::LeaderChanged);
        }
        self.member_calls(leader).or(Err(Error::NoLeader))
    }

    /// Returns once another member said that this one has been removed.
    pub(crate) async fn told_removed(&self) {
        self.peers.told_removed().await;
    }

    /// Another member of the group.
    pub(crate) fn member_calls(&self, id: u64) -> Result<LeaderCalls, Error> {
        let urls = self.leadership.urls_of(id).ok_or(Error::MemberNotFound)?;
        Ok(self.peers.leader(id, &urls))
    }

    /// Makes this member the first of a new group, unless it is in one already.
    pub(crate) async fn found(&self, members: &[(MemberId, Vec<String>)]) -> Result<(), Error> {
        let is_initialized = self
            .raft
            .is_initialized()
            .await
            .map_err(|error| fatal(&error))?;
        if is_initialized {
            return Ok(());
        }
        match self.raft.initialize(found::nodes(members)).await {
            // Another founder was faster, and this member has its vote or its log.
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(fatal(&error)),
        }
    }

    /// Whether one of the other founders knows this member as one that has served clients. Those
    /// that do not answer know nothing.
    pub(crate) async fn has_served(
        &self,
        founders: &[(MemberId, Vec<String>)],
        patience: Duration,
    ) -> bool {
        let others = founders.iter().filter(|(id, _)| id.0 != self.id);
        let asked = others.map(|(id, urls)| {
            let peer = self.peers.leader(id.0, urls);
            async move { timeout(patience, peer.introduce(patience)).await }
        });
        let answers = futures::future::join_all(asked).await;
        answers
            .into_iter()
            .any(|answer| matches!(answer, Ok(Ok(true))))
    }

    /// Whether this member has a log or a vote.
    pub(crate) async fn is_begun(&self) -> Result<bool, Error> {
        self.raft
            .is_initialized()
            .await
            .map_err(|error| fatal(&error))
    }

    /// The voters, as far as this member knows.
    pub(crate) async fn voters(&self) -> Result<Vec<u64>, Error> {
        // Asked of the core: its published figures lag behind at the start.
        let voters = |state: &openraft::RaftState<TypeConfig>| {
            state
                .membership_state
                .effective()
                .membership()
                .voter_ids()
                .collect()
        };
        self.raft
            .with_raft_state(voters)
            .await
            .map_err(|error| fatal(&error))
    }

    /// Does not wait for the election timeout: no other voter can lead.
    pub(crate) async fn elect_now(&self) -> Result<(), Error> {
        self.raft
            .trigger()
            .elect(false)
            .await
            .map_err(|error| fatal(&error))
    }

    /// Returns once a leader is known and everything in the log that is committed is applied.
    pub(crate) async fn recovered(&self, patience: Duration) -> Result<(), Error> {
        self.raft
            .wait(Some(patience))
            .metrics(
                |metrics| metrics.current_leader.is_some(),
                "a leader is known",
            )
            .await
            .or(Err(Error::NoLeader))?;
        self.raft
            .wait_for_recovery(Some(patience))
            .await
            .or(Err(Error::TimeoutWaitApplied))?;
        Ok(())
    }

    /// Puts a command through the log of this leader.
    ///
    /// `NotLeader` and `NoLeader` say that it is surely not in the log;
    /// `TimeoutDueToLeaderFail` that a new leader may have it or not.
    pub(crate) async fn write(&self, proposal: Proposal) -> Result<(Outcome, LogPosition), Error> {
        if proposal.encoded.len() > COMMAND_BYTES_MAX {
            return Err(Error::RequestTooLarge);
        }
        match self.raft.client_write(proposal).await {
            Ok(written) => Ok((written.data, to_position(&written.log_id))),
            Err(RaftError::APIError(error)) => Err(self.not_written(error)),
            Err(RaftError::Fatal(_)) => Err(Error::Stopped),
        }
    }

    /// The same while this member leads in `term`, and not in another.
    pub(crate) async fn write_in(
        &self,
        term: u64,
        proposal: Proposal,
    ) -> Result<(Outcome, LogPosition), Error> {
        if proposal.encoded.len() > COMMAND_BYTES_MAX {
            return Err(Error::RequestTooLarge);
        }
        let (responder, written) = ProgressResponder::complete_only();
        let write = self.raft.write(proposal).responder(responder);
        write.with_leader(term).await.or(Err(Error::Stopped))?;
        match written.await {
            Ok(Ok(written)) => Ok((written.data, to_position(&written.log_id))),
            Ok(Err(error)) => Err(self.not_written(error)),
            Err(_) => Err(Error::Stopped),
        }
    }

    fn not_written(&self, error: ClientWriteError<TypeConfig>) -> Error {
        match error {
            ClientWriteError::ForwardToLeader(forward) => {
                let is_known = forward.leader_id.is_some_and(|leader| leader != self.id);
                match forward.reason {
                    ForwardReason::NotLeader if is_known => Error::NotLeader,
                    _ => Error::NoLeader,
                }
            }
            ClientWriteError::LogEntryDiscarded(_) => Error::TimeoutDueToLeaderFail,
            error => Error::Io {
                doing: "propose",
                source: io::Error::other(error),
            },
        }
    }

    /// A read index: confirms leadership, here or with the leader, and waits until everything
    /// committed before is applied here.
    pub(crate) async fn read_index(&self, patience: Duration) -> Result<(), Error> {
        if failpoint::pause(Point::BugReadUnconfirmed).await {
            return Ok(());
        }
        if self.leadership.is_leader() {
            return match self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
                Ok(_) => Ok(()),
                Err(error) => Err(not_confirmed(&error)),
            };
        }
        let leader = self.leader_calls()?;
        // A leader that does not answer may be none any more: another one is asked soon.
        let index = leader
            .read_index(patience.min(self.leader_patience))
            .await?;
        self.applied(index, patience).await
    }

    /// The index a reader elsewhere must have applied; only a confirmed leader answers.
    pub(crate) async fn confirmed_index(&self) -> Result<LogPosition, Error> {
        match self.raft.get_read_log_id(ReadPolicy::ReadIndex).await {
            Ok((id, _)) => Ok(to_position(id.log_id())),
            Err(error) => Err(not_confirmed(&error)),
        }
    }

    /// Returns once the log is applied here up to `index`.
    pub(crate) async fn applied(&self, index: u64, patience: Duration) -> Result<(), Error> {
        self.raft
            .wait(Some(patience))
            .applied_index_at_least(Some(index), "the read index is applied")
            .await
            .or(Err(Error::TimeoutWaitApplied))?;
        Ok(())
    }

    /// Checkpoints, and purges all of the log that the checkpoint covers.
    pub(crate) async fn purge(&self, patience: Duration) -> Result<(), Error> {
        let applied = self.raft.metrics().borrow_watched().last_applied;
        self.outbox.force();
        self.raft
            .trigger()
            .snapshot()
            .await
            .map_err(|error| fatal(&error))?;
        let covered = self
            .raft
            .wait(Some(patience))
            .metrics(
                |metrics| metrics.snapshot >= applied,
                "the checkpoint covers the log",
            )
            .await
            .or(Err(Error::Timeout))?;
        let upto = covered.snapshot.map_or(0, |id| id.index);
        self.raft
            .trigger()
            .purge_log(upto)
            .await
            .map_err(|error| fatal(&error))
    }

    /// The voter that could lead at once: heard of lately, and the furthest in the log.
    pub(crate) fn successor(&self) -> Option<u64> {
        let watched = self.raft.metrics();
        let metrics = watched.borrow_watched();
        let matched = metrics.replication.as_ref()?;
        let others = metrics.membership_config.membership().voter_ids();
        // One that has just stopped was heard lately as well.
        let others = others
            .filter(|id| *id != self.id && self.leadership.hears(*id) && self.peers.is_active(*id));
        others.max_by_key(|id| matched.get(id).copied().flatten())
    }

    /// Hands this leader's place to the voter `to`.
    ///
    /// While it is on its way no write is accepted; when it fails, this member stands for election
    /// again so that they are.
    pub(crate) async fn transfer(&self, to: u64, patience: Duration) -> Result<(), Error> {
        if !self.leadership.is_leader() {
            return Err(Error::NotLeader);
        }
        let metrics = self.raft.metrics();
        let stored = metrics.borrow_watched().membership_config.clone();
        if !stored.membership().voter_ids().any(|voter| voter == to) {
            // One that waits for its vote.
            return Err(Error::BadLeaderTransferee);
        }
        if !self.leadership.hears(to) {
            return Err(Error::TimeoutLeaderTransfer);
        }
        tracing::info!(to = format!("{to:x}"), "leadership transfer starting");
        let trigger = self.raft.trigger().transfer_leader(to).await;
        trigger.map_err(|error| fatal(&error))?;
        let mut leadership = self.leadership.clone();
        let moved = async {
            while leadership.leader() != Some(to) {
                let changed = timeout(TRANSFER_LOOK, leadership.changed()).await;
                if changed == Ok(false) {
                    return Err(Error::Stopped);
                }
                if self.leadership.leader() != Some(to) && !self.peers.is_active(to) {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        match timeout(patience, moved).await {
            Ok(Ok(true)) => {
                tracing::info!(to = format!("{to:x}"), "leadership transfer finished");
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            // The successor is gone, or takes its time.
            Ok(Ok(false)) | Err(_) => {
                tracing::warn!(to = format!("{to:x}"), "leadership transfer took too long");
                if self.leadership.is_leader() {
                    self.elect_now().await?;
                }
                Err(Error::TimeoutLeaderTransfer)
            }
        }
    }

    pub(crate) fn status(&self) -> GroupStatus {
        let watched = self.raft.metrics();
        let metrics = watched.borrow_watched();
        GroupStatus {
            leader: self.leadership.leader(),
            term: metrics.current_term,
            committed_index: metrics.cluster_committed.map_or(0, |id| id.index),
            is_learner: self.leadership.is_learner(),
            is_leader: self.leadership.is_leader(),
        }
    }

    /// Wakes when the leader or the term may have changed.
    pub(crate) fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Why the group cannot go on, when it cannot.
    pub(crate) fn fatal(&self) -> Option<String> {
        self.raft
            .metrics()
            .borrow_watched()
            .running_state
            .as_ref()
            .err()
            .map(ToString::to_string)
    }

    /// Ends this member's end.
    pub(crate) async fn stop(&self) {
        if self.raft.shutdown().await.is_err() {
            tracing::error!("the raft task panicked");
        }
    }
}

fn not_confirmed(error: &RaftError<TypeConfig, LinearizableReadError<TypeConfig>>) -> Error {
    match error {
        RaftError::APIError(LinearizableReadError::ForwardToLeader(_)) => Error::NoLeader,
        RaftError::APIError(_) => Error::Timeout,
        RaftError::Fatal(_) => Error::Stopped,
    }
}

pub(super) fn fatal(error: &(dyn std::error::Error + 'static)) -> Error {
    Error::Io {
        doing: "run the raft group",
        source: io::Error::other(super::apply_thread::describe(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(election_timeout: Duration) -> GroupOptions {
        GroupOptions {
            heartbeat: Duration::from_millis(100),
            election_timeout,
            snapshot_count: 10_000,
            catch_up_entries: 5_000,
            pre_vote: true,
            dialers: Dialers {
                plain: Arc::new(crate::consensus::peer::TcpDialer),
                tls: None,
            },
            snapshot_bytes_per_s: None,
        }
    }

    #[test]
    fn the_group_keeps_time_as_etcd_does_and_not_as_openrafts_defaults() {
        let config = options(Duration::from_secs(1)).config().unwrap();
        assert_eq!(config.heartbeat_interval, 100);
        // The lease and the timeout together: elections after 1,100 to 1,400 ms.
        assert_eq!(
            (config.election_timeout_min, config.election_timeout_max),
            (400, 700)
        );
        assert_eq!(config.enable_pre_vote, Some(true));
        assert_eq!(config.enable_leader_restore, Some(false));
        // Below the leader lease and the longest election timeout, openraft refuses it.
        assert_eq!(config.quorum_loss_probe_interval, Some(2000));
    }

    #[test]
    fn an_election_timeout_below_the_heartbeat_is_refused_by_name() {
        let error = options(Duration::from_millis(50)).config().unwrap_err();
        assert!(error.to_string().contains("election-timeout"), "{error}");
    }
}
