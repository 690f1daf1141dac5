//! The one thread that changes the state.
//!
//! Batches of committed entries, checkpoints, compaction steps, defragmentation and snapshot
//! installs take turns on it, so nothing else ever needs to lock the writer.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::space::Space;
use super::types::ApplyResponder;
use crate::apply::{Applier, CompactionProgress, Entry, EntryPayload, LogPosition, Membership};
use crate::command::Request;
use crate::error::Error;

/// Jobs waiting for the thread.
const QUEUE_MAX: usize = 64;
/// A checkpoint is due at so many bytes not yet durable: more would stall writes noticeably.
const DIRTY_BYTES_MAX: u64 = 16 << 20;
/// A checkpoint is due this long after the first change it would cover.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
/// Compaction rests this long between its steps, as etcd's does.
const COMPACTION_REST: Duration = Duration::from_millis(10);
/// The longest wait of an idle thread.
const IDLE_INTERVAL: Duration = Duration::from_hours(1);

pub(crate) type Done = oneshot::Sender<Result<(), Error>>;

/// Entries with those who wait for their outcome.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) entries: Vec<Entry>,
    pub(crate) responders: Vec<Option<ApplyResponder>>,
}

enum Job {
    Apply {
        batch: Batch,
        done: Done,
    },
    Checkpoint {
        done: Done,
    },
    Defragment {
        done: Done,
    },
    Compacted {
        done: Done,
    },
    Install {
        file: PathBuf,
        at: LogPosition,
        membership: Membership,
        done: Done,
    },
}

/// What the state covers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Position {
    pub(crate) applied: Option<LogPosition>,
    /// What survives a crash.
    pub(crate) durable: Option<LogPosition>,
    pub(crate) membership: Option<Membership>,
}

#[derive(Debug)]
struct Shared {
    position: Mutex<Position>,
    fatal: watch::Sender<Option<String>>,
}

/// Gives work to the apply thread; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ApplyHandle {
    jobs: SyncSender<Job>,
    shared: Arc<Shared>,
}

/// Starts the thread. It ends, after a last checkpoint, when all handles are dropped.
pub(crate) fn spawn(
    applier: Applier,
    space: Arc<Space>,
    fatal: watch::Sender<Option<String>>,
) -> Result<(ApplyHandle, JoinHandle<()>), Error> {
    let (jobs, queue) = sync_channel(QUEUE_MAX);
    let shared = Arc::new(Shared {
        position: Mutex::default(),
        fatal,
    });
    let mut worker = Worker {
        applier,
        space,
        transactions: 0,
        shared: Arc::clone(&shared),
        compacting: true,
        compacted: Vec::new(),
        dirty_since: None,
        is_broken: false,
    };
    worker.publish_position();
    worker.publish_membership();
    let thread = std::thread::Builder::new()
        .name("holdfast-apply".to_owned())
        .spawn(move || worker.run(&queue))
        .map_err(|source| Error::Io {
            doing: "start the apply thread",
            source,
        })?;
    Ok((ApplyHandle { jobs, shared }, thread))
}

impl ApplyHandle {
    /// What the state covers now.
    pub(crate) fn position(&self) -> Position {
        self.shared.position.lock().clone()
    }

    async fn run(&self, job: impl FnOnce(Done) -> Job) -> Result<(), Error> {
        let (done, result) = oneshot::channel();
        if self.jobs.send(job(done)).is_err() {
            return Err(Error::Stopped);
        }
        result.await.unwrap_or(Err(Error::Stopped))
    }

    /// Applies a batch in one transaction and answers its responders.
    pub(crate) async fn apply(&self, batch: Batch) -> Result<(), Error> {
        self.run(|done| Job::Apply { batch, done }).await
    }

    /// Makes everything applied so far durable.
    pub(crate) async fn checkpoint(&self) -> Result<(), Error> {
        self.run(|done| Job::Checkpoint { done }).await
    }

    /// Rewrites the state file without its free pages.
    pub(crate) async fn defragment(&self) -> Result<(), Error> {
        self.run(|done| Job::Defragment { done }).await
    }

    /// Returns once no scheduled compaction has rows left to remove.
    pub(crate) async fn compacted(&self) -> Result<(), Error> {
        self.run(|done| Job::Compacted { done }).await
    }

    /// Replaces the state by a snapshot file.
    pub(crate) async fn install(
        &self,
        file: PathBuf,
        at: LogPosition,
        membership: Membership,
    ) -> Result<(), Error> {
        self.run(|done| Job::Install {
            file,
            at,
            membership,
            done,
        })
        .await
    }
}

struct Worker {
    applier: Applier,
    space: Arc<Space>,
    /// Transactions since the last checkpoint.
    transactions: u64,
    shared: Arc<Shared>,
    compacting: bool,
    compacted: Vec<Done>,
    dirty_since: Option<Instant>,
    is_broken: bool,
}

impl Worker {
    fn run(mut self, queue: &Receiver<Job>) {
        loop {
            match queue.recv_timeout(self.patience()) {
                Ok(job) => self.handle(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if !self.is_broken {
                let upkeep = self.upkeep();
                self.check(&upkeep);
            }
        }
        if !self.is_broken && self.dirty_since.is_some() {
            let last = self.checkpoint();
            self.check(&last);
        }
    }

    fn patience(&self) -> Duration {
        let checkpoint = self.dirty_since.map_or(IDLE_INTERVAL, |since| {
            CHECKPOINT_INTERVAL.saturating_sub(since.elapsed())
        });
        if self.compacting && !self.is_broken {
            checkpoint.min(COMPACTION_REST)
        } else if self.is_broken {
            IDLE_INTERVAL
        } else {
            checkpoint
        }
    }

    fn handle(&mut self, job: Job) {
        if self.is_broken {
            let (Job::Apply { done, .. }
            | Job::Checkpoint { done }
            | Job::Defragment { done }
            | Job::Compacted { done }
            | Job::Install { done, .. }) = job;
            answer(done, Err(Error::Poisoned));
            return;
        }
        match job {
            Job::Apply { batch, done } => {
                let result = self.apply(batch);
                self.finish(done, result);
            }
            Job::Checkpoint { done } => {
                let result = self.checkpoint();
                self.finish(done, result);
            }
            Job::Defragment { done } => {
                // A rewrite that fails leaves the state as it was.
                answer(done, self.defragment());
            }
            Job::Compacted { done } => {
                self.compacting = true;
                self.compacted.push(done);
            }
            Job::Install {
                file,
                at,
                membership,
                done,
            } => {
                let result = self.applier.install(&file, at, membership);
                self.publish_position();
                self.publish_membership();
                self.finish(done, result);
            }
        }
    }

    fn apply(&mut self, batch: Batch) -> Result<(), Error> {
        let schedules_compaction = batch.entries.iter().any(|entry| match &entry.payload {
            EntryPayload::Command(command) => matches!(command.request, Some(Request::Compact(_))),
            _ => false,
        });
        let moves_members = batch
            .entries
            .iter()
            .any(|entry| matches!(entry.payload, EntryPayload::Membership(_)));
        let outcomes = self.applier.apply(batch.entries)?;
        self.compacting |= schedules_compaction;
        self.transactions += 1;
        self.note_undurable();
        self.dirty_since.get_or_insert_with(Instant::now);
        self.publish_position();
        if moves_members {
            self.publish_membership();
        }
        for (responder, outcome) in batch.responders.into_iter().zip(outcomes) {
            if let Some(responder) = responder {
                responder.send(outcome);
            }
        }
        Ok(())
    }

    /// Makes the state durable, or puts it off while the disk has no room: the log has it all.
    fn checkpoint(&mut self) -> Result<(), Error> {
        self.note_undurable();
        if !self.space.has_room_for_checkpoint() {
            self.dirty_since = Some(Instant::now());
            return Ok(());
        }
        self.applier.checkpoint()?;
        self.dirty_since = None;
        self.transactions = 0;
        self.note_undurable();
        self.publish_position();
        Ok(())
    }

    fn defragment(&mut self) -> Result<(), Error> {
        let checkpointed = self.checkpoint();
        self.check(&checkpointed);
        checkpointed?;
        self.applier.defragment()?;
        self.publish_position();
        Ok(())
    }

    fn note_undurable(&self) {
        self.space
            .set_undurable(self.applier.dirty_bytes(), self.transactions);
    }

    /// Checkpoints and compaction between jobs.
    fn upkeep(&mut self) -> Result<(), Error> {
        if self.compacting {
            match self.applier.compact_step()? {
                CompactionProgress::Working => {
                    self.transactions += 1;
                    self.dirty_since.get_or_insert_with(Instant::now);
                }
                CompactionProgress::Idle | CompactionProgress::Finished { .. } => {
                    self.compacting = false;
                    for done in self.compacted.drain(..) {
                        answer(done, Ok(()));
                    }
                }
            }
        }
        let Some(since) = self.dirty_since else {
            return Ok(());
        };
        if since.elapsed() >= CHECKPOINT_INTERVAL || self.applier.dirty_bytes() >= DIRTY_BYTES_MAX {
            self.checkpoint()?;
        }
        Ok(())
    }

    fn publish_position(&mut self) {
        let (applied, durable) = (self.applier.applied(), self.applier.durable());
        let mut position = self.shared.position.lock();
        position.applied = applied;
        position.durable = durable;
    }

    fn publish_membership(&mut self) {
        self.shared.position.lock().membership = self.applier.membership();
    }

    fn finish(&mut self, done: Done, result: Result<(), Error>) {
        self.check(&result);
        answer(done, result);
    }

    /// An error here is one of the disk or of damage: the state takes nothing more.
    fn check(&mut self, result: &Result<(), Error>) {
        if let Err(error) = result {
            let reason = describe(error);
            tracing::error!(%reason, "the state cannot be changed any more; the member stops");
            self.is_broken = true;
            self.shared.fatal.send_replace(Some(reason));
            for done in self.compacted.drain(..) {
                answer(done, Err(Error::Poisoned));
            }
        }
    }
}

/// An error with its causes, on one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn answer(done: Done, result: Result<(), Error>) {
    if done.send(result).is_err() {
        tracing::debug!("nobody waited for the apply thread");
    }
}
