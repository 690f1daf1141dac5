//! The one place that changes the state, and the thread that does it.
//!
//! Batches of committed entries, checkpoints, compaction steps, defragmentation and snapshot
//! installs take turns on the thread. Only a few light entries that find it idle are applied by
//! who brings them: the way to the thread and back costs more than they do.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use holdfast_proto::etcd::rpc::RequestOp;
use holdfast_proto::etcd::rpc::request_op::Request as Operation;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::log::LogObserver;
use super::space::Space;
use super::types::ApplyResponder;
use super::upkeep::GivingBack;
use super::waiters::Waiters;
use super::workers::Workers;
use crate::apply::Operation as AppliedOperation;
use crate::apply::{Applier, Entry, EntryPayload, LogPosition, Membership, Outcome};
use crate::command::Request;
use crate::error::Error;
use crate::failpoint;

/// Jobs waiting for the thread.
const QUEUE_MAX: usize = 64;
/// A checkpoint is due at so many bytes not yet durable: more would stall writes noticeably.
const DIRTY_BYTES_MAX: u64 = 16 << 20;
/// A checkpoint is due this long after the first change it would cover.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
/// Compaction rests this long between its steps, as etcd's does.
const COMPACTION_REST: Duration = Duration::from_millis(10);
/// Entries that may be applied without the thread.
const LIGHT_ENTRIES_MAX: usize = 4;
/// The shortest wait of a task that tends.
const TEND_PAUSE: Duration = Duration::from_millis(1);
/// The longest wait of an idle thread.
const IDLE_INTERVAL: Duration = Duration::from_hours(1);

pub(crate) type Done = oneshot::Sender<Result<(), Error>>;

/// Entries with those who wait for their outcome.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) entries: Vec<Entry>,
    pub(crate) responders: Vec<Option<ApplyResponder>>,
}

impl Batch {
    /// Whether it is applied in less time than it takes to hand over.
    fn is_light(&self) -> bool {
        let is_light = |entry: &Entry| match &entry.payload {
            EntryPayload::Command(command) => command.request.as_ref().is_some_and(is_light),
            EntryPayload::Blank | EntryPayload::Membership(_) => false,
        };
        self.entries.len() <= LIGHT_ENTRIES_MAX && self.entries.iter().all(is_light)
    }
}

/// Whether a request reads and writes a few single keys.
fn is_light(request: &Request) -> bool {
    match request {
        Request::Put(_) => true,
        Request::Txn(txn) => {
            let operations = txn.success.len() + txn.failure.len();
            operations <= LIGHT_ENTRIES_MAX
                && txn.compare.len() <= LIGHT_ENTRIES_MAX
                && txn
                    .compare
                    .iter()
                    .all(|compare| compare.range_end.is_empty())
                && txn.success.iter().chain(&txn.failure).all(is_of_one_key)
        }
        _ => false,
    }
}

fn is_of_one_key(operation: &RequestOp) -> bool {
    match &operation.request {
        Some(Operation::RequestPut(_)) => true,
        Some(Operation::RequestRange(range)) => range.range_end.is_empty(),
        Some(Operation::RequestDeleteRange(range)) => range.range_end.is_empty(),
        Some(Operation::RequestTxn(_)) | None => false,
    }
}

enum Job {
    /// Nothing but a look at what is due.
    Tend,
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
pub(super) struct Shared {
    pub(super) position: Mutex<Position>,
    pub(super) fatal: watch::Sender<Option<String>>,
    pub(super) observer: Option<Arc<dyn LogObserver>>,
    waiters: Arc<Waiters>,
}

/// Gives work to the apply thread; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ApplyHandle {
    // Dropped before the queue: the thread is the last to have it.
    worker: Arc<Mutex<Worker>>,
    /// Whether the caller may do the thread's work: others run the rest of the process meanwhile.
    may_work: bool,
    /// Absent when there is no thread: who brings work does it.
    jobs: Option<SyncSender<Job>>,
    shared: Arc<Shared>,
}

/// Starts the thread. It ends, after a last checkpoint, when all handles are dropped.
pub(crate) fn spawn(
    applier: Applier,
    space: Arc<Space>,
    fatal: watch::Sender<Option<String>>,
    observer: Option<Arc<dyn LogObserver>>,
    workers: Workers,
) -> Result<(ApplyHandle, Option<JoinHandle<()>>), Error> {
    let shared = Arc::new(Shared {
        position: Mutex::default(),
        fatal,
        observer,
        waiters: Arc::default(),
    });
    let mut worker = Worker {
        applier,
        space,
        transactions: 0,
        shared: Arc::clone(&shared),
        compacting: true,
        compacted: Vec::new(),
        dirty_since: None,
        is_put_off: false,
        giving_back: GivingBack::default(),
        is_broken: false,
    };
    worker.publish_position();
    worker.publish_membership();
    let worker = Arc::new(Mutex::new(worker));
    let (jobs, thread) = match workers {
        Workers::Threads => {
            let (jobs, thread) = spawn_thread(&worker)?;
            (Some(jobs), Some(thread))
        }
        Workers::Tasks => {
            #[expect(
                clippy::disallowed_methods,
                reason = "a simulation has no thread; the task ends with the last handle"
            )]
            drop(tokio::spawn(tend_as_task(Arc::downgrade(&worker))));
            (None, None)
        }
    };
    let may_work = tokio::runtime::Handle::try_current()
        .is_ok_and(|runtime| runtime.metrics().num_workers() > 1);
    let handle = ApplyHandle {
        worker,
        may_work,
        jobs,
        shared,
    };
    Ok((handle, thread))
}

fn spawn_thread(worker: &Arc<Mutex<Worker>>) -> Result<(SyncSender<Job>, JoinHandle<()>), Error> {
    let (jobs, queue) = sync_channel(QUEUE_MAX);
    let own = Arc::clone(worker);
    let thread = std::thread::Builder::new()
        .name("holdfast-apply".to_owned())
        .spawn(move || run(&own, &queue))
        .map_err(|source| Error::Io {
            doing: "start the apply thread",
            source,
        })?;
    Ok((jobs, thread))
}

impl ApplyHandle {
    /// What the state covers now.
    pub(crate) fn position(&self) -> Position {
        self.shared.position.lock().clone()
    }

    /// Those who wait for commands of other members' logs to be applied here.
    pub(crate) fn waiters(&self) -> &Arc<Waiters> {
        &self.shared.waiters
    }

    async fn run(&self, job: impl FnOnce(Done) -> Job) -> Result<(), Error> {
        let (done, result) = oneshot::channel();
        match &self.jobs {
            Some(jobs) => jobs.send(job(done)).or(Err(Error::Stopped))?,
            None => self.worker.lock().work(Some(job(done))),
        }
        result.await.unwrap_or(Err(Error::Stopped))
    }

    /// Applies a batch in one transaction and answers its responders.
    pub(crate) async fn apply(&self, batch: Batch) -> Result<(), Error> {
        match self.apply_here(batch) {
            Ok(result) => result,
            Err(batch) => self.run(|done| Job::Apply { batch, done }).await,
        }
    }

    /// Applies a light batch here when the thread is idle; gives it back otherwise.
    fn apply_here(&self, batch: Batch) -> Result<Result<(), Error>, Batch> {
        if !self.may_work || failpoint::is_armed() || !batch.is_light() {
            return Err(batch);
        }
        let Some(mut worker) = self.worker.try_lock() else {
            return Err(batch);
        };
        if worker.has_work() {
            return Err(batch);
        }
        let was_clean = worker.dirty_since.is_none();
        let result = worker.apply(batch);
        worker.check(&result);
        let needs_thread = was_clean || worker.is_checkpoint_due();
        drop(worker);
        let jobs = self.jobs.as_ref();
        if needs_thread && jobs.is_some_and(|jobs| jobs.try_send(Job::Tend).is_err()) {
            // A full queue: the thread will look at what is due by itself.
            tracing::debug!("the apply thread is busy");
        }
        Ok(result)
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

/// The thread.
fn run(worker: &Mutex<Worker>, queue: &Receiver<Job>) {
    loop {
        let patience = worker.lock().patience();
        let job = match queue.recv_timeout(patience) {
            Ok(job) => Some(job),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        worker.lock().work(job);
    }
    worker.lock().close();
}

/// What the thread does between jobs, where there is none: until all handles are gone.
async fn tend_as_task(worker: Weak<Mutex<Worker>>) {
    while let Some(worker) = worker.upgrade() {
        worker.lock().work(None);
        // Nothing tells of new work.
        let patience = worker.lock().patience().min(CHECKPOINT_INTERVAL);
        drop(worker);
        tokio::time::sleep(patience.max(TEND_PAUSE)).await;
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("applier", &self.applier)
            .finish_non_exhaustive()
    }
}

pub(super) struct Worker {
    pub(super) applier: Applier,
    pub(super) space: Arc<Space>,
    /// Transactions since the last checkpoint.
    pub(super) transactions: u64,
    pub(super) shared: Arc<Shared>,
    pub(super) compacting: bool,
    pub(super) compacted: Vec<Done>,
    pub(super) dirty_since: Option<Instant>,
    /// Whether the last checkpoint found no room.
    pub(super) is_put_off: bool,
    pub(super) giving_back: GivingBack,
    pub(super) is_broken: bool,
}

impl Worker {
    /// Whether the thread is needed before anything else is applied.
    fn has_work(&self) -> bool {
        self.is_broken || self.compacting || self.is_checkpoint_due()
    }

    pub(super) fn is_checkpoint_due(&self) -> bool {
        self.dirty_since
            .is_some_and(|since| since.elapsed() >= CHECKPOINT_INTERVAL)
            || self.applier.dirty_bytes() >= DIRTY_BYTES_MAX
            || self.space.wants_checkpoint()
    }

    /// Does a job and what is due.
    fn work(&mut self, job: Option<Job>) {
        if let Some(job) = job {
            self.handle(job);
        }
        self.tend();
    }

    fn tend(&mut self) {
        if !self.is_broken {
            let upkeep = self.upkeep();
            self.check(&upkeep);
        }
    }

    fn close(&mut self) {
        if !self.is_broken && self.dirty_since.is_some() {
            let last = self.checkpoint();
            self.check(&last);
        }
    }

    fn patience(&self) -> Duration {
        let checkpoint = self.dirty_since.map_or(IDLE_INTERVAL, |since| {
            CHECKPOINT_INTERVAL.saturating_sub(since.elapsed())
        });
        let give_back = self.giving_back.due.map_or(IDLE_INTERVAL, |due| {
            due.saturating_duration_since(Instant::now())
        });
        let checkpoint = checkpoint.min(give_back);
        if self.compacting && !self.is_broken && !self.is_put_off {
            checkpoint.min(COMPACTION_REST)
        } else if self.is_broken {
            IDLE_INTERVAL
        } else {
            checkpoint
        }
    }

    fn handle(&mut self, job: Job) {
        if self.is_broken {
            match job {
                Job::Tend => {}
                Job::Apply { done, .. }
                | Job::Checkpoint { done }
                | Job::Defragment { done }
                | Job::Compacted { done }
                | Job::Install { done, .. } => answer(done, Err(Error::Poisoned)),
            }
            return;
        }
        match job {
            Job::Tend => {}
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
        let mut waiting = self.shared.waiters.take(&batch.entries).into_iter();
        let operations: Vec<_> = batch.entries.iter().map(AppliedOperation::of).collect();
        let start = Instant::now();
        let outcomes = self.applier.apply(batch.entries)?;
        self.observe(&operations, &outcomes, start.elapsed());
        self.compacting |= schedules_compaction;
        self.transactions += 1;
        self.note_undurable();
        self.dirty_since.get_or_insert_with(Instant::now);
        self.publish_position();
        if moves_members {
            self.publish_membership();
        }
        for (responder, outcome) in batch.responders.into_iter().zip(outcomes) {
            let waiter = waiting.next().flatten();
            if let Some(responder) = responder {
                responder.send(outcome);
            } else if let Some((waiter, position)) = waiter {
                // One that gave up meanwhile is no error.
                drop(waiter.send((outcome, position)));
            }
        }
        Ok(())
    }

    /// Tells how long each entry took: its share of the batch.
    fn observe(
        &self,
        operations: &[Option<AppliedOperation>],
        outcomes: &[Outcome],
        elapsed: Duration,
    ) {
        let Some(observer) = &self.shared.observer else {
            return;
        };
        let share = elapsed / u32::try_from(operations.len().max(1)).unwrap_or(u32::MAX);
        for (operation, outcome) in operations.iter().zip(outcomes) {
            if let Some(operation) = operation {
                observer.applied(*operation, outcome.is_ok(), share);
            }
        }
    }

    pub(super) fn publish_position(&mut self) {
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
    pub(super) fn check(&mut self, result: &Result<(), Error>) {
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

pub(super) fn answer(done: Done, result: Result<(), Error>) {
    if done.send(result).is_err() {
        tracing::debug!("nobody waited for the apply thread");
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::etcd::rpc;

    use super::*;

    fn operation(operation: Operation) -> RequestOp {
        RequestOp {
            request: Some(operation),
        }
    }

    fn txn(success: Vec<RequestOp>) -> Request {
        Request::Txn(rpc::TxnRequest {
            success,
            ..rpc::TxnRequest::default()
        })
    }

    #[test]
    fn only_requests_of_a_few_single_keys_are_applied_without_the_thread() {
        let put = || operation(Operation::RequestPut(rpc::PutRequest::default()));
        let one = rpc::DeleteRangeRequest {
            key: "a".into(),
            ..rpc::DeleteRangeRequest::default()
        };
        let many = rpc::DeleteRangeRequest {
            range_end: "b".into(),
            ..one.clone()
        };
        let delete = |request| operation(Operation::RequestDeleteRange(request));
        let nested = operation(Operation::RequestTxn(rpc::TxnRequest::default()));
        assert!(is_light(&Request::Put(rpc::PutRequest::default())));
        assert!(is_light(&txn(vec![put(), delete(one.clone())])));
        for heavy in [
            Request::DeleteRange(one),
            Request::Compact(rpc::CompactionRequest::default()),
            Request::LeaseRevoke(rpc::LeaseRevokeRequest::default()),
            txn(vec![delete(many)]),
            txn(vec![nested]),
            txn(vec![put(), put(), put(), put(), put()]),
        ] {
            assert!(!is_light(&heavy), "{heavy:?}");
        }
    }
}
