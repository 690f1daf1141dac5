//! Writing the log: one writer, on one thread.
//!
//! Whatever is queued becomes one batch: one write, one sync, then the answers. The first error
//! is final: nothing is acknowledged after it, and the files are not touched again.
//!
//! A single small entry that finds the writer idle is written where it is appended: the way to the
//! thread and back costs more than the disk. See [`Desk`]. Under load it is the other way around:
//! a sync costs more than a batch that waits for those who are about to append.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use openraft::storage::IOFlushed;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::super::types::{LogId, TypeConfig, Vote, log_id};
use super::index::Index;
use super::record::{self, EntryRecord, Head, Place, Record};
use super::segment::{LogIdentity, SEGMENT_HEADER_BYTES, Segment};
use super::spare::Spares;
use super::{LogIo, LogObserver};
use crate::datadir::durable;
use crate::failpoint::{self, Point};

/// Bytes of records gathered into one batch.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// More than the payload of any record but an entry's; a generous bound saves a second encoding.
const OTHER_BYTES_MAX: usize = 128;
/// What ends a segment: the end record, and the one that says that the next has its name.
const CLOSING_BYTES: usize = 2 * record::record_bytes(0);
/// The largest record written where it is appended.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// After a sync as slow as this nothing is written where it is appended until one is faster.
const SLOW_SYNC: Duration = Duration::from_millis(4);
/// After a batch of so many entries the next one gives way to those who run, at most so often and
/// for so long: what they append meanwhile joins it.
const BUSY_ENTRIES: usize = 8;
const YIELDS_MAX: u32 = 16;
const YIELDING_MAX: Duration = Duration::from_millis(2);

pub(super) type Done = oneshot::Sender<io::Result<()>>;

/// Work for the writer.
pub(super) enum Job {
    Append {
        entries: Vec<EntryRecord>,
        done: IOFlushed<TypeConfig>,
    },
    Vote {
        vote: Vote,
        done: Done,
    },
    Committed(Option<LogId>),
    Truncate {
        last: Option<LogId>,
        done: Done,
    },
    Purge {
        upto: LogId,
        done: Done,
    },
}

/// Where the log's one owner finds its writer.
pub(super) struct Desk {
    writer: Arc<Mutex<Writer>>,
    /// Jobs that the thread has not finished. Only the owner adds to it, so that the writer is the
    /// owner's as long as it is 0.
    pending: Arc<AtomicUsize>,
    jobs: mpsc::Sender<Job>,
    /// Whether the caller may wait for the disk: others run the rest of the process meanwhile.
    may_wait: bool,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk")
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

impl Desk {
    /// A desk for `writer`, and what its thread or task works off.
    pub(super) fn new(writer: Writer, queue: usize) -> (Self, Backlog) {
        let (jobs, queue) = mpsc::channel(queue);
        let desk = Self {
            writer: Arc::new(Mutex::new(writer)),
            pending: Arc::default(),
            jobs,
            may_wait: tokio::runtime::Handle::try_current()
                .is_ok_and(|runtime| runtime.metrics().num_workers() > 1),
        };
        let backlog = Backlog {
            writer: Arc::clone(&desk.writer),
            pending: Arc::clone(&desk.pending),
            jobs: queue,
        };
        (desk, backlog)
    }

    /// Does `job` here when it is small and the writer has nothing else to do; gives it back
    /// otherwise.
    pub(super) fn do_here(&self, job: Job) -> Option<Job> {
        // Pairs with the thread's: what it wrote is seen.
        if !self.may_wait || failpoint::is_armed() || self.pending.load(Ordering::Acquire) != 0 {
            return Some(job);
        }
        let mut writer = self.writer.lock();
        let is_quick = match &job {
            Job::Committed(_) => writer.has_room(record::record_bytes(OTHER_BYTES_MAX)),
            Job::Append { entries, .. } => match entries.as_slice() {
                [entry] => writer.is_quick(record::entry_bytes(entry)),
                _ => false,
            },
            Job::Vote { .. } | Job::Truncate { .. } | Job::Purge { .. } => false,
        };
        if !is_quick {
            return Some(job);
        }
        writer.serve(job, || None);
        None
    }

    /// Gives `job` to the thread.
    pub(super) async fn submit(&self, job: Job) -> io::Result<()> {
        self.pending.fetch_add(1, Ordering::AcqRel);
        self.jobs.send(job).await.or(Err(closed()))
    }

    /// As [`Desk::submit`], unless the queue is full.
    pub(super) fn try_submit(&self, job: Job) -> io::Result<()> {
        self.pending.fetch_add(1, Ordering::AcqRel);
        match self.jobs.try_send(job) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.pending.fetch_sub(1, Ordering::AcqRel);
                Ok(())
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(closed()),
        }
    }
}

pub(super) fn closed() -> io::Error {
    io::Error::other("the raft log is closed")
}

enum Ack {
    Append(IOFlushed<TypeConfig>),
    Vote(Vote, Done),
    Truncate(Option<LogId>, Done),
    Purge(LogId, Done),
}

/// Where the writer stands.
pub(super) struct Writer {
    pub(super) dir: PathBuf,
    pub(super) identity: LogIdentity,
    pub(super) index: Arc<Mutex<Index>>,
    pub(super) io: Arc<dyn LogIo>,
    pub(super) observer: Option<Arc<dyn LogObserver>>,
    pub(super) spares: Spares,
    pub(super) segment: Segment,
    /// Where the next byte goes.
    pub(super) offset: u64,
    /// The offset behind the segment's end record, when it has one already: a crash came before
    /// the next one began.
    pub(super) ended_at: Option<u64>,
    /// Up to where the segment is durable: what follows may arrive on the disk in any order.
    pub(super) durable: u64,
    pub(super) highest: Option<u64>,
    pub(super) closed: Vec<(Segment, Option<u64>)>,
    /// The log as its records so far leave it.
    pub(super) head: Head,
    pub(super) buffer: Vec<u8>,
    pub(super) placed: Vec<(u64, Place)>,
    pub(super) failed: Option<Failure>,
    /// How long the last sync took.
    pub(super) last_sync: Duration,
    /// Entries of the last batch that had any.
    pub(super) last_entries: usize,
}

/// The jobs that were handed in, on the side that does them.
pub(super) struct Backlog {
    writer: Arc<Mutex<Writer>>,
    pending: Arc<AtomicUsize>,
    jobs: mpsc::Receiver<Job>,
}

impl Backlog {
    /// Serves the queue until it is closed, on a thread.
    pub(super) fn work(mut self) {
        while let Some(job) = self.jobs.blocking_recv() {
            let patience = Patience::after(self.writer.lock().last_entries);
            self.serve(job, patience);
        }
        self.writer.lock().spares.stop();
    }

    /// The same as a task, on a disk that takes its simulated time.
    pub(super) async fn work_as_task(mut self) {
        while let Some(job) = self.jobs.recv().await {
            let latency = self.writer.lock().io.latency();
            tokio::time::sleep(latency).await;
            self.serve(job, Patience::after(0));
        }
    }

    /// Does `job` and all that waits behind it, or comes while there is patience.
    fn serve(&mut self, job: Job, mut patience: Patience) {
        let mut done = 1;
        self.writer.lock().serve(job, || {
            let job = patience.until_some(|| self.jobs.try_recv().ok())?;
            done += 1;
            Some(job)
        });
        self.pending.fetch_sub(done, Ordering::Release);
    }
}

/// How long a batch goes on giving way to those who may add to it.
struct Patience {
    yields: u32,
    since: Instant,
}

impl Patience {
    fn after(last_entries: usize) -> Self {
        let yields = if last_entries >= BUSY_ENTRIES {
            YIELDS_MAX
        } else {
            0
        };
        Self {
            yields,
            since: Instant::now(),
        }
    }

    fn until_some<T>(&mut self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            let found = look();
            if found.is_some() || self.yields == 0 || self.since.elapsed() > YIELDING_MAX {
                return found;
            }
            self.yields -= 1;
            std::thread::yield_now();
        }
    }
}

/// The error after which the log takes nothing more.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    kind: io::ErrorKind,
    text: String,
}

impl Failure {
    fn new(error: &io::Error) -> Self {
        Self {
            kind: error.kind(),
            text: error.to_string(),
        }
    }

    fn to_error(&self) -> io::Error {
        io::Error::new(
            self.kind,
            format!("the raft log failed earlier: {}", self.text),
        )
    }
}

impl Writer {
    /// Does `job` and what `more` has besides, as one batch, and answers.
    fn serve(&mut self, job: Job, mut more: impl FnMut() -> Option<Job>) {
        let mut acks = Vec::new();
        let mut needs_sync = false;
        let mut result = self.add(job, &mut acks, &mut needs_sync);
        while result.is_ok()
            && self.buffer.len() < BATCH_BYTES_MAX
            && let Some(job) = more()
        {
            result = self.add(job, &mut acks, &mut needs_sync);
        }
        failpoint::hit(Point::RaftBeforeSave);
        let result = result.and_then(|()| self.flush(needs_sync));
        failpoint::hit(Point::RaftAfterSave);
        if let Err(error) = &result
            && self.failed.is_none()
        {
            tracing::error!(%error, "the raft log failed; the member takes no more writes");
            self.failed = Some(Failure::new(error));
        }
        for ack in acks {
            let ok = match &self.failed {
                Some(failure) => Err(failure.to_error()),
                None => Ok(()),
            };
            self.complete(ack, ok);
        }
        failpoint::hit(Point::RaftBeforeAdvance);
    }

    /// Whether a record of so many bytes fits into the segment.
    fn has_room(&self, bytes: usize) -> bool {
        let needed = u64::try_from(bytes + CLOSING_BYTES).unwrap_or(u64::MAX);
        self.next_place().offset.saturating_add(needed) <= self.segment.size
    }

    /// Whether a record of so many bytes will be durable soon, and nobody else appends.
    fn is_quick(&self, bytes: usize) -> bool {
        bytes <= SMALL_BYTES_MAX
            && self.last_sync < SLOW_SYNC
            && self.last_entries <= 1
            && self.has_room(bytes)
    }

    fn check(&self) -> io::Result<()> {
        match &self.failed {
            Some(failure) => Err(failure.to_error()),
            None => Ok(()),
        }
    }

    fn add(&mut self, job: Job, acks: &mut Vec<Ack>, needs_sync: &mut bool) -> io::Result<()> {
        let working = self.check();
        *needs_sync |= match job {
            Job::Committed(_) => false,
            Job::Vote { .. } => !failpoint::is_on(Point::BugVoteBeforeSync),
            Job::Append { .. } | Job::Truncate { .. } | Job::Purge { .. } => true,
        };
        match job {
            Job::Append { entries, done } => {
                acks.push(Ack::Append(done));
                working?;
                entries
                    .into_iter()
                    .try_for_each(|entry| self.add_entry(entry))
            }
            Job::Vote { vote, done } => {
                acks.push(Ack::Vote(vote, done));
                working?;
                self.put(&Record::Vote(vote))?;
                self.head.vote = Some(vote);
                Ok(())
            }
            Job::Committed(committed) => {
                working?;
                self.put(&Record::Committed(committed))?;
                self.head.committed = committed;
                Ok(())
            }
            Job::Truncate { last, done } => {
                acks.push(Ack::Truncate(last, done));
                working?;
                self.put(&Record::Truncate(last))?;
                self.head.truncate_after(last);
                Ok(())
            }
            Job::Purge { upto, done } => {
                acks.push(Ack::Purge(upto, done));
                working?;
                self.put(&Record::Purge(upto))?;
                self.head.purge(upto);
                Ok(())
            }
        }
    }

    fn add_entry(&mut self, entry: EntryRecord) -> io::Result<()> {
        let (term, index) = (entry.term, entry.index);
        let place = self.put(&Record::Entry(entry))?;
        self.placed.push((index, place));
        self.head.last = Some(log_id(term, index));
        self.highest = self.highest.max(Some(index));
        Ok(())
    }

    /// Where the next record goes.
    fn next_place(&self) -> Place {
        let buffered = u64::try_from(self.buffer.len()).unwrap_or(u64::MAX);
        Place {
            segment: self.segment.sequence,
            offset: self.offset.saturating_add(buffered),
        }
    }

    fn put(&mut self, record: &Record) -> io::Result<Place> {
        let needed = match record {
            Record::Entry(entry) => record::entry_bytes(entry),
            _ => record::record_bytes(OTHER_BYTES_MAX),
        };
        if !self.has_room(needed) {
            let needed = needed + CLOSING_BYTES;
            self.roll_over(u64::try_from(needed).map_err(io::Error::other)?)?;
        }
        let place = self.next_place();
        let batch_start = u32::try_from(self.durable).map_err(io::Error::other)?;
        record::encode(record, place, batch_start, &mut self.buffer);
        Ok(place)
    }

    /// Ends the segment and goes on in the spare.
    fn roll_over(&mut self, needed: u64) -> io::Result<()> {
        if self.ended_at.is_none() {
            let place = self.next_place();
            let batch_start = u32::try_from(self.durable).map_err(io::Error::other)?;
            record::encode(&Record::End, place, batch_start, &mut self.buffer);
        }
        self.flush(true)?;
        let ended_at = self.ended_at.unwrap_or(self.offset);
        let sequence = self.segment.sequence + 1;
        let mut first = Vec::new();
        let place = Place {
            segment: sequence,
            offset: SEGMENT_HEADER_BYTES,
        };
        let batch_start = u32::try_from(SEGMENT_HEADER_BYTES).map_err(io::Error::other)?;
        record::encode(
            &Record::Head(self.head.clone()),
            place,
            batch_start,
            &mut first,
        );
        let first_bytes = u64::try_from(first.len()).map_err(io::Error::other)?;
        let start = SEGMENT_HEADER_BYTES + first_bytes;
        let prepared = self.spares.take(start.saturating_add(needed))?;
        let next = Segment::begin(
            &self.dir,
            prepared,
            sequence,
            self.identity,
            (&first, self.io.as_ref()),
        )?;
        self.spares.taken();
        self.segment.note_followed(ended_at, self.io.as_ref())?;
        self.index
            .lock()
            .files
            .insert(sequence, Arc::clone(&next.file));
        let ended = std::mem::replace(&mut self.segment, next);
        self.closed.push((ended, self.highest));
        self.ended_at = None;
        self.highest = self.head.last.map(|id| id.index);
        self.offset = start;
        self.durable = start;
        Ok(())
    }

    /// Writes what is gathered and, when something needs it, waits until it is durable.
    fn flush(&mut self, needs_sync: bool) -> io::Result<()> {
        self.check()?;
        let mut started = Instant::now();
        if !self.buffer.is_empty() {
            self.segment.file.write_all_at(&self.buffer, self.offset)?;
            let written = Instant::now();
            if let Some(observer) = &self.observer {
                observer.written(written - started);
            }
            started = written;
        }
        if needs_sync {
            failpoint::failure(Point::WalBeforeSync, io::ErrorKind::Other)?;
            if !failpoint::is_on(Point::BugAckBeforeSync) {
                self.io.sync(&self.segment.file)?;
            }
            failpoint::hit(Point::WalAfterSync);
            self.last_sync = started.elapsed();
            if let Some(observer) = &self.observer {
                observer.synced(self.last_sync, self.buffer.len());
            }
        }
        self.offset = self.next_place().offset;
        if needs_sync {
            self.durable = self.offset;
        }
        self.buffer.clear();
        if !self.placed.is_empty() {
            self.last_entries = self.placed.len();
        }
        let mut index = self.index.lock();
        for (at, place) in self.placed.drain(..) {
            index.written(at, place);
        }
        index.head.committed = self.head.committed;
        Ok(())
    }

    fn complete(&mut self, ack: Ack, result: io::Result<()>) {
        match ack {
            Ack::Append(done) => done.io_completed(result),
            Ack::Vote(vote, done) => {
                if result.is_ok() {
                    self.index.lock().head.vote = Some(vote);
                }
                answer(done, result);
            }
            Ack::Truncate(last, done) => {
                if result.is_ok() {
                    self.index.lock().truncate_after(last.as_ref());
                }
                answer(done, result);
            }
            Ack::Purge(upto, done) => {
                let result = result.and_then(|()| self.remove_purged(&upto));
                answer(done, result);
            }
        }
    }

    /// Deletes segments that hold nothing after `upto`, oldest first; the purge is durable.
    fn remove_purged(&mut self, upto: &LogId) -> io::Result<()> {
        self.index.lock().purge(upto);
        let keep = self
            .closed
            .iter()
            .position(|(_, highest)| highest.is_some_and(|highest| highest > upto.index))
            .unwrap_or(self.closed.len());
        for (segment, _) in self.closed.drain(..keep) {
            durable::remove_file(&Segment::path(&self.dir, segment.sequence))?;
            self.index.lock().files.remove(&segment.sequence);
        }
        failpoint::hit(Point::RaftAfterWalRelease);
        Ok(())
    }
}

fn answer(done: Done, result: io::Result<()>) {
    if done.send(result).is_err() {
        tracing::debug!("nobody waited for the raft log");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_after_a_batch_of_many_does_the_next_one_give_way_and_not_for_ever() {
        let looks = |last_entries| {
            let mut looks = 0;
            let found = Patience::after(last_entries).until_some(|| {
                looks += 1;
                None::<()>
            });
            assert!(found.is_none());
            looks
        };
        assert_eq!(looks(1), 1);
        assert_eq!(looks(BUSY_ENTRIES - 1), 1);
        assert!((2..=YIELDS_MAX + 1).contains(&looks(BUSY_ENTRIES)));
    }
}
