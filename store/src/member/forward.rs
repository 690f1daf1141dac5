//! A proposal's way into the log: this leader's own, or the one of the leader elsewhere.
//!
//! A command is sent again only while it is surely in no log. Once a leader may have it, this
//! member waits until it is applied here, or until the time is over.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::admission;
use super::handle::Member;
use super::late::Way;
use crate::apply::{LogPosition, Outcome};
use crate::consensus::peer::Forwarded;
use crate::consensus::{Group, Proposal};
use crate::deadline;
use crate::error::Error;

/// Commands waiting to be sent to the leader.
pub(super) const COMMANDS_MAX: usize = 16_384;
/// Commands in one message to the leader.
const BATCH_COMMANDS_MAX: usize = 512;
/// Bytes of commands in one message, unless it is a single one.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Messages to the leader that are not answered yet.
const BATCHES_MAX: usize = 16;
/// How long to wait before looking for a leader again; longer each time, as many may wait.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(320);

type Answer = Forwarded<Result<LogPosition, Error>>;

/// A command for the leader.
pub(super) struct ForLeader {
    encoded: Bytes,
    /// Until when somebody waits for it.
    deadline: Option<Instant>,
    answer: oneshot::Sender<Answer>,
}

/// What one attempt came to.
enum Attempt {
    /// Surely in no log.
    Again,
    Done(Result<(Outcome, LogPosition), Error>),
}

impl Member {
    /// Puts `proposal` through the log; its outcome is that of this member's own state.
    pub(super) async fn put_through(
        &self,
        proposal: Proposal,
        way: &Way,
    ) -> Result<(Outcome, LogPosition), Error> {
        let encoded = proposal.encoded.clone();
        let mut proposal = proposal;
        let leadership = &self.inner.leadership;
        // Only one that has to wait needs a place of its own among those who are told.
        let mut changes = None;
        let mut pause = PAUSE_MIN;
        loop {
            let attempt = if leadership.is_leader() {
                way.take();
                match self.inner.group.write(proposal).await {
                    Err(Error::NotLeader | Error::NoLeader) => Attempt::Again,
                    written => Attempt::Done(written),
                }
            } else if leadership.leader().is_some() {
                way.take();
                self.forward(&proposal, way).await
            } else {
                Attempt::Again
            };
            if let Attempt::Done(result) = attempt {
                return result;
            }
            way.give_back();
            let changes = changes.get_or_insert_with(|| leadership.clone());
            let changed = timeout(pause, changes.changed()).await;
            if changed == Ok(false) {
                return Err(Error::Stopped);
            }
            pause = (pause * 2).min(PAUSE_MAX);
            proposal = again(&encoded)?;
        }
    }

    /// Hands a command to the leader and waits until it is applied here.
    async fn forward(&self, proposal: &Proposal, way: &Way) -> Attempt {
        let mut waiting = self.inner.waiters.register(proposal.command.id);
        let (answer, answered) = oneshot::channel();
        let job = ForLeader {
            encoded: proposal.encoded.clone(),
            deadline: deadline::current(),
            answer,
        };
        if self.inner.for_leader.send(job).await.is_err() {
            return Attempt::Done(Err(Error::Stopped));
        }
        let answer = tokio::select! {
            outcome = waiting.outcome() => return Attempt::Done(outcome),
            answer = answered => answer.unwrap_or(Forwarded::Unknown),
        };
        match answer {
            Forwarded::NotTaken(_)
            | Forwarded::Answered(Err(Error::NotLeader | Error::NoLeader)) => Attempt::Again,
            Forwarded::Answered(Ok(position)) => {
                let patience = self.request_timeout();
                tokio::select! {
                    outcome = waiting.outcome() => return Attempt::Done(outcome),
                    applied = self.inner.group.applied(position.index, patience) => {
                        if let Err(error) = applied {
                            return Attempt::Done(Err(error));
                        }
                    }
                }
                // Applied and not told: a snapshot of the leader brought it.
                Attempt::Done(waiting.outcome_now().ok_or(Error::Timeout))
            }
            Forwarded::Unknown
            | Forwarded::Answered(Err(
                Error::Timeout
                | Error::TimeoutDueToLeaderFail
                | Error::TimeoutDueToConnectionLost
                | Error::Stopped,
            )) => {
                way.cut();
                Attempt::Done(waiting.outcome().await)
            }
            Forwarded::Answered(Err(error)) => Attempt::Done(Err(error)),
        }
    }

    /// Puts commands of another member through this leader's log: the position of each.
    pub(crate) async fn propose_for_peer(
        &self,
        commands: Vec<Bytes>,
    ) -> Vec<Result<LogPosition, Error>> {
        join_all(commands.into_iter().map(|encoded| async {
            let written = timeout(self.request_timeout(), self.propose_one_for_peer(encoded));
            written.await.unwrap_or(Err(Error::Timeout))
        }))
        .await
    }

    async fn propose_one_for_peer(&self, encoded: Bytes) -> Result<LogPosition, Error> {
        let inner = &*self.inner;
        self.check_alive()?;
        let bytes = encoded.len();
        let proposal = again(&encoded)?;
        let request = proposal.command.request.as_ref().ok_or(Error::NotCapable)?;
        self.find_room(request).await?;
        let _admitted = inner
            .admission
            .admit(bytes, admission::is_urgent(request))?;
        if deadline::is_over() {
            return Err(Error::Timeout);
        }
        let (_, position) = inner.group.write(proposal).await?;
        Ok(position)
    }
}

fn again(encoded: &Bytes) -> Result<Proposal, Error> {
    Proposal::decode(encoded.clone()).map_err(|error| Error::Format {
        what: "a command",
        reason: error.to_string(),
    })
}

/// Sends commands to the leader, several in a message, until the member stops.
pub(super) async fn serve(
    group: Group,
    mut jobs: mpsc::Receiver<ForLeader>,
    patience: Duration,
    stopping: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(BATCHES_MAX));
    // Ends with the member; each call has a deadline.
    let mut calls = JoinSet::new();
    let mut next = None;
    loop {
        while calls.try_join_next().is_some() {}
        let work = async {
            let place = Arc::clone(&places).acquire_owned().await.ok()?;
            let first = match next.take() {
                Some(job) => job,
                None => jobs.recv().await?,
            };
            Some((place, first))
        };
        let work = tokio::select! {
            () = stopping.cancelled() => return,
            work = work => work,
        };
        let Some((place, first)) = work else { return };
        let batch = fill(first, &mut jobs, &mut next);
        let group = group.clone();
        calls.spawn(async move {
            send(&group, batch, patience).await;
            drop(place);
        });
    }
}

/// What waits already joins the message, as far as it fits.
fn fill(
    first: ForLeader,
    jobs: &mut mpsc::Receiver<ForLeader>,
    next: &mut Option<ForLeader>,
) -> Vec<ForLeader> {
    let mut bytes = first.encoded.len();
    let mut batch = vec![first];
    while batch.len() < BATCH_COMMANDS_MAX {
        let Ok(job) = jobs.try_recv() else { break };
        bytes = bytes.saturating_add(job.encoded.len());
        if bytes > BATCH_BYTES_MAX {
            *next = Some(job);
            break;
        }
        batch.push(job);
    }
    batch
}

async fn send(group: &Group, mut batch: Vec<ForLeader>, patience: Duration) {
    // What nobody waits for any more is not proposed.
    batch.retain(|job| !job.answer.is_closed());
    // The leader is told how long the last of the others waits.
    let waits = batch
        .iter()
        .map(|job| deadline::shorten_to(job.deadline, patience));
    let Some(patience) = waits.max() else {
        return;
    };
    let (commands, answers): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .map(|job| (job.encoded, job.answer))
        .unzip();
    let results = match group.leader_calls() {
        Ok(leader) => leader.propose(commands, patience).await,
        Err(error) => Forwarded::NotTaken(error),
    };
    let mut results = match results {
        Forwarded::Answered(results) => results.into_iter().map(Forwarded::Answered).collect(),
        Forwarded::NotTaken(_) => answers
            .iter()
            .map(|_| Forwarded::NotTaken(Error::NoLeader))
            .collect(),
        Forwarded::Unknown => Vec::new(),
    }
    .into_iter();
    for answer in answers {
        // One that gave up is no error.
        drop(answer.send(results.next().unwrap_or(Forwarded::Unknown)));
    }
}
