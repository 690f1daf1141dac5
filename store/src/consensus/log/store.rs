//! The log as openraft sees it.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::super::membership::{decode_plain_membership, encode_plain_membership};
use super::super::types::{LogEntry, LogId, Payload, Proposal, TypeConfig, Vote, log_id, term_of};
use super::super::workers::Workers;
use super::index::{Index, Lookup, Slot};
use super::record::{self, BodyKind, EntryRecord, Head, Place, Record};
use super::recovery::{self, Recovered};
use super::segment::{Prepared, SEGMENT_BYTES_MIN, SEGMENT_HEADER_BYTES, Segment};
use super::spare::Spares;
use super::writer::{Desk, Job, Writer, closed};
use super::{LogError, LogOptions};
use crate::datadir::durable;

/// Batches waiting for the writer.
const QUEUE_MAX: usize = 1024;
/// The first segment of a new log is small, so that a start does not wait for it.
const FIRST_SEGMENT_BYTES: u64 = 4 << 20;
/// Bytes of entries read at once.
const READ_BYTES_MAX: usize = 4 << 20;

/// An open raft log.
#[derive(Debug)]
pub struct RaftLog {
    index: Arc<Mutex<Index>>,
    desk: Option<Desk>,
    thread: Option<JoinHandle<()>>,
}

/// Reads entries and the vote; cheap to clone.
#[derive(Debug, Clone)]
pub struct RaftLogReader {
    index: Arc<Mutex<Index>>,
}

impl RaftLog {
    /// Opens the log of `options`, or makes a new one.
    pub fn open(options: &LogOptions) -> Result<Self, LogError> {
        durable::private_dir_all(&options.dir)?;
        let mut recovered = recovery::recover(&options.dir, options.identity, options.io.as_ref())?;
        recovery::check_complete(&options.dir, &recovered.index)?;
        let (segment, offset) = match recovered.active.take() {
            Some(active) => active,
            None => begin_log(options, &mut recovered)?,
        };
        let head = recovered.index.head.clone();
        let index = Arc::new(Mutex::new(recovered.index));
        let spares = Spares::start(
            &options.dir,
            options.segment_bytes,
            Arc::clone(&options.space),
            options.workers,
        )?;
        let ended_at = recovered.is_ended.then_some(offset);
        // Nothing fits after an end record.
        let offset = if recovered.is_ended {
            segment.size
        } else {
            offset
        };
        let writer = Writer {
            dir: options.dir.clone(),
            identity: options.identity,
            index: Arc::clone(&index),
            io: Arc::clone(&options.io),
            observer: options.observer.clone(),
            spares,
            offset,
            // Recovery has synced what it read.
            durable: offset,
            ended_at,
            segment,
            highest: recovered.active_highest,
            closed: recovered.closed,
            head,
            buffer: Vec::new(),
            placed: Vec::new(),
            failed: None,
            last_sync: Duration::ZERO,
            last_entries: 0,
        };
        let (desk, backlog) = Desk::new(writer, QUEUE_MAX);
        let thread = match options.workers {
            Workers::Threads => {
                let thread = std::thread::Builder::new().name("holdfast-log".to_owned());
                Some(thread.spawn(move || backlog.work())?)
            }
            Workers::Tasks => {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a simulation has no thread; the task ends with the desk"
                )]
                drop(tokio::spawn(backlog.work_as_task()));
                None
            }
        };
        Ok(Self {
            index,
            desk: Some(desk),
            thread,
        })
    }

    /// A reader of this log.
    pub fn reader(&self) -> RaftLogReader {
        RaftLogReader {
            index: Arc::clone(&self.index),
        }
    }

    fn desk(&self) -> io::Result<&Desk> {
        self.desk.as_ref().ok_or_else(closed)
    }

    async fn wait(
        &self,
        job: impl FnOnce(oneshot::Sender<io::Result<()>>) -> Job,
    ) -> io::Result<()> {
        let (done, result) = oneshot::channel();
        self.desk()?.submit(job(done)).await?;
        result.await.unwrap_or_else(|_| Err(closed()))
    }
}

impl Drop for RaftLog {
    fn drop(&mut self) {
        self.desk = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the raft log's writer panicked");
        }
    }
}

/// Makes the first segment of a new log.
fn begin_log(options: &LogOptions, recovered: &mut Recovered) -> io::Result<(Segment, u64)> {
    let size = options
        .segment_bytes
        .clamp(SEGMENT_BYTES_MIN, FIRST_SEGMENT_BYTES);
    let prepared = Prepared::create(&options.dir, size)?;
    let mut first = Vec::new();
    let place = Place {
        segment: 1,
        offset: SEGMENT_HEADER_BYTES,
    };
    let batch_start = u32::try_from(SEGMENT_HEADER_BYTES).map_err(io::Error::other)?;
    record::encode(
        &Record::Head(Head::default()),
        place,
        batch_start,
        &mut first,
    );
    let segment = Segment::begin(
        &options.dir,
        prepared,
        1,
        options.identity,
        (&first, options.io.as_ref()),
    )?;
    recovered.index.files.insert(1, Arc::clone(&segment.file));
    let used = u64::try_from(first.len()).map_err(io::Error::other)?;
    Ok((segment, SEGMENT_HEADER_BYTES + used))
}

impl RaftLogStorage<TypeConfig> for RaftLog {
    type LogReader = RaftLogReader;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let index = self.index.lock();
        Ok(LogState {
            last_purged_log_id: index.head.purged,
            last_log_id: index.head.last,
        })
    }

    async fn get_log_reader(&mut self) -> RaftLogReader {
        self.reader()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let vote = *vote;
        self.wait(|done| Job::Vote { vote, done }).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let desk = self.desk()?;
        match desk.do_here(Job::Committed(committed)) {
            // When there is no room for it a later position will be saved; restart replays a
            // little more.
            Some(job) => desk.try_submit(job),
            None => Ok(()),
        }
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        let index = self.index.lock();
        Ok(index.head.committed.min(index.head.last))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut records = Vec::new();
        {
            let mut index = self.index.lock();
            for entry in entries {
                let record = to_record(&entry)?;
                if !index.accepts(record.index) {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidInput,
                        format!(
                            "entry {} does not follow entry {}",
                            record.index,
                            index.next()
                        ),
                    ));
                }
                let bytes = record::entry_bytes(&record);
                let slot = Slot {
                    term: record.term,
                    place: None,
                    bytes,
                };
                index.push(record.index, slot, Some(record.clone()));
                records.push(record);
            }
        }
        let job = Job::Append {
            entries: records,
            done: callback,
        };
        let desk = self.desk()?;
        match desk.do_here(job) {
            Some(job) => desk.submit(job).await,
            None => Ok(()),
        }
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        self.wait(|done| Job::Truncate { last, done }).await
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.wait(|done| Job::Purge { upto, done }).await
    }
}

/// Tells whether two members hold the same entry at an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    /// The term it was proposed in.
    pub term: u64,
    /// CRC-32C of its body.
    pub crc: u32,
}

impl RaftLogReader {
    /// The fingerprint of the entry at `index`, when the log holds it.
    ///
    /// # Errors
    /// When the entry cannot be read, or is damaged.
    pub fn fingerprint(&self, index: u64) -> io::Result<Option<Fingerprint>> {
        let entries = self.read(index..index.saturating_add(1), usize::MAX)?;
        let Some(entry) = entries.first() else {
            return Ok(None);
        };
        let record = to_record(entry)?;
        Ok(Some(Fingerprint {
            term: record.term,
            crc: crc32c::crc32c(&record.body),
        }))
    }

    /// The indexes the log holds.
    pub fn range(&self) -> Range<u64> {
        self.index.lock().range()
    }

    /// Bytes of the entries the log holds.
    pub fn stored_bytes(&self) -> u64 {
        self.index.lock().stored_bytes()
    }

    fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<LogEntry>> {
        let found = self.index.lock().lookup(range, bytes_max);
        found.into_iter().map(load).collect()
    }
}

impl openraft::RaftLogReader<TypeConfig> for RaftLogReader {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<LogEntry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.read(bounds(&range), usize::MAX)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<LogEntry>> {
        self.read(start..end, READ_BYTES_MAX)
    }

    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<LogEntry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let range = bounds(&range);
        let range = range.start..range.end.min(self.range().end);
        EntryStream {
            reader: self.clone(),
            range,
            loaded: Vec::new().into_iter(),
        }
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.index.lock().vote())
    }
}

/// Entries of a range, read a few megabytes at a time.
struct EntryStream {
    reader: RaftLogReader,
    range: Range<u64>,
    loaded: std::vec::IntoIter<LogEntry>,
}

impl Stream for EntryStream {
    type Item = io::Result<LogEntry>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        if let Some(entry) = self.loaded.next() {
            self.range.start = entry.log_id.index + 1;
            return std::task::Poll::Ready(Some(Ok(entry)));
        }
        if self.range.is_empty() {
            return std::task::Poll::Ready(None);
        }
        let item = match self.reader.read(self.range.clone(), READ_BYTES_MAX) {
            Ok(entries) => {
                self.loaded = entries.into_iter();
                self.loaded.next().map(Ok)
            }
            Err(error) => Some(Err(error)),
        };
        match &item {
            Some(Ok(entry)) => self.range.start = entry.log_id.index + 1,
            Some(Err(_)) | None => self.range.start = self.range.end,
        }
        std::task::Poll::Ready(item)
    }
}

fn bounds(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

fn to_record(entry: &LogEntry) -> io::Result<EntryRecord> {
    let (body_kind, body) = match &entry.payload {
        Payload::Blank => (BodyKind::Blank, Bytes::new()),
        Payload::Normal(proposal) => (BodyKind::Command, proposal.encoded.clone()),
        Payload::Membership(membership) => {
            (BodyKind::Membership, encode_plain_membership(membership)?)
        }
    };
    if body.len() >= record::RECORD_PAYLOAD_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the entry is too large",
        ));
    }
    Ok(EntryRecord {
        term: term_of(&entry.log_id),
        index: entry.log_id.index,
        body_kind,
        body,
    })
}

/// The way back: values are slices of the record's body.
fn from_record(entry: EntryRecord) -> io::Result<LogEntry> {
    let payload = match entry.body_kind {
        BodyKind::Blank => Payload::Blank,
        BodyKind::Command => {
            Payload::Normal(Proposal::decode(entry.body).map_err(io::Error::other)?)
        }
        BodyKind::Membership => Payload::Membership(decode_plain_membership(&entry.body)?),
    };
    Ok(LogEntry {
        log_id: log_id(entry.term, entry.index),
        payload,
    })
}

fn load(found: Lookup) -> io::Result<LogEntry> {
    let (index, term, place, bytes, file) = match found {
        Lookup::Cached(entry) => return from_record(entry),
        Lookup::Stored {
            index,
            term,
            place,
            bytes,
            file,
        } => (index, term, place, bytes, file),
    };
    let mut buffer = vec![0; bytes];
    file.read_exact_at(&mut buffer, place.offset)?;
    let damaged = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "raft log damaged: entry {index}, segment {:016x}, offset {}",
                place.segment, place.offset
            ),
        )
    };
    match record::decode(&buffer, place).map(|found| found.record) {
        Some(Record::Entry(entry)) if entry.index == index && entry.term == term => {
            from_record(entry).or(Err(damaged()))
        }
        _ => Err(damaged()),
    }
}

impl RaftLog {
    /// The folder in which `open` would find a log already.
    pub fn exists(dir: &Path) -> io::Result<bool> {
        match Segment::list(dir) {
            Ok(sequences) => Ok(!sequences.is_empty()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
