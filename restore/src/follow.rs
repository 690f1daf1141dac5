//! Following a source: its changes after a revision, whole revisions only, as they happen.
//!
//! A [`Feed`] brings them, from a real etcd's watch or out of the bundled store; a [`Follower`]
//! gathers them into the payload of one delta at a time. Anything that could hide a change
//! (a compaction that overtook the reader, a revision that went back, another cluster, a revision
//! that does not follow) is [`Error::CaptureBroken`]: the run ends there and only a new backup can
//! begin another. Any other error may pass: open a new feed after the last delta that was stored.

mod bundled;
mod watch;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use holdfast_proto::etcd::kv;
use tokio::time::Instant;

use crate::delta::rows::Builder;
use crate::error::{Error, Result};
use crate::manifest::SourceRecord;

pub use bundled::{BundledFeed, FollowedBundled};
pub use watch::{FollowedEtcd, WatchFeed};

/// A delta is cut early when its payload has so many bytes.
pub const CUT_BYTES: usize = 16 * 1024 * 1024;

/// Most leases looked up for one delta; the others are looked up when they are named again.
const LEASES_MAX: usize = 1000;

/// Most leases remembered as known.
const KNOWN_MAX: usize = 1_000_000;

/// Reads the clock of whoever follows.
pub type Now<'a> = &'a (dyn Fn() -> DateTime<Utc> + Send + Sync);

/// Brings the changes of a source after a revision.
#[async_trait]
pub trait Feed: Send + std::fmt::Debug {
    /// Waits for more. Events of whole revisions, in order; those at or before the revision it was
    /// opened at may come again. May be empty. Dropping the future loses nothing.
    async fn next(&mut self) -> Result<Vec<kv::Event>>;

    /// Has everything that the source had when this was called brought by [`Feed::next`], or
    /// returns what was still missing. An error when the source does not say so in time.
    async fn confirm(&mut self) -> Result<Vec<kv::Event>>;

    /// Granted times to live of those of these leases that exist.
    async fn leases(&mut self, ids: &[i64]) -> Result<Vec<(i64, i64)>>;

    /// Where the changes come from.
    fn source(&self) -> &SourceRecord;
}

#[async_trait]
impl Feed for Box<dyn Feed> {
    async fn next(&mut self) -> Result<Vec<kv::Event>> {
        self.as_mut().next().await
    }

    async fn confirm(&mut self) -> Result<Vec<kv::Event>> {
        self.as_mut().confirm().await
    }

    async fn leases(&mut self, ids: &[i64]) -> Result<Vec<(i64, i64)>> {
        self.as_mut().leases(ids).await
    }

    fn source(&self) -> &SourceRecord {
        self.as_ref().source()
    }
}

/// The changes of one interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathered {
    /// They begin after this revision.
    pub from: i64,
    /// The newest revision in them; `from` when nothing had changed.
    pub to: i64,
    /// Rows.
    pub events: u64,
    /// When gathering began.
    pub started: DateTime<Utc>,
    /// When the source had nothing newer.
    pub finished: DateTime<Utc>,
    /// Where from.
    pub source: SourceRecord,
    /// The payload of the delta.
    pub payload: Vec<u8>,
    /// It was cut for its size: more is there at once.
    pub is_cut: bool,
}

/// Gathers the changes of a source. After an error it is of no more use. Gather on while what was
/// gathered is being stored: a watch that nobody reads falls behind, where a compaction can
/// overtake it.
#[derive(Debug)]
pub struct Follower<F> {
    feed: F,
    to: i64,
    finished: Option<DateTime<Utc>>,
    pending: VecDeque<Vec<kv::Event>>,
    known: BTreeSet<i64>,
}

impl<F: Feed> Follower<F> {
    /// Follows `feed` from `revision` on, at which it was opened.
    pub fn new(feed: F, revision: i64) -> Self {
        Self {
            feed,
            to: revision,
            finished: None,
            pending: VecDeque::new(),
            known: BTreeSet::new(),
        }
    }

    /// The newest revision gathered.
    pub fn to(&self) -> i64 {
        self.to
    }

    /// Gathers for `every`, or until there is enough for a delta, and asks the source whether that
    /// is all.
    pub async fn gather(&mut self, every: Duration, now: Now<'_>) -> Result<Gathered> {
        let started = self.finished.unwrap_or_else(now);
        let deadline = Instant::now() + every;
        let mut rows = Builder::new(self.to);
        self.take(&mut rows, now)?;
        while rows.bytes() < CUT_BYTES {
            let Ok(events) = tokio::time::timeout_at(deadline, self.feed.next()).await else {
                break;
            };
            self.push(events?);
            self.take(&mut rows, now)?;
        }
        let mut finished = now();
        if rows.bytes() < CUT_BYTES {
            let events = self.feed.confirm().await?;
            if !events.is_empty() {
                self.push(events);
                self.take(&mut rows, now)?;
                finished = now();
            }
        }
        let is_cut = !self.pending.is_empty() || rows.bytes() >= CUT_BYTES;
        // A clock that was set back must not make a delta that ends before it begins.
        let finished = finished.max(started);
        self.look_up(&mut rows).await?;
        rows.close(finished.timestamp_millis());
        self.to = rows.to();
        self.finished = Some(finished);
        Ok(Gathered {
            from: rows.from(),
            to: rows.to(),
            events: rows.events(),
            started,
            finished,
            source: self.feed.source().clone(),
            is_cut,
            payload: rows.finish(),
        })
    }

    /// Cuts events into revisions. What was gathered already is skipped: a feed begins at it.
    fn push(&mut self, events: Vec<kv::Event>) {
        let mut current: Vec<kv::Event> = Vec::new();
        let revision_of = |event: &kv::Event| event.kv.as_ref().map_or(0, |pair| pair.mod_revision);
        for event in events {
            if revision_of(&event) <= self.to {
                continue;
            }
            let is_other = current
                .first()
                .is_some_and(|first| revision_of(first) != revision_of(&event));
            if is_other {
                self.pending.push_back(std::mem::take(&mut current));
            }
            current.push(event);
        }
        if !current.is_empty() {
            self.pending.push_back(current);
        }
    }

    /// Takes what is pending, as far as a delta may grow.
    fn take(&mut self, rows: &mut Builder, now: Now<'_>) -> Result<()> {
        let before = rows.to();
        while rows.bytes() < CUT_BYTES
            && let Some(revision) = self.pending.pop_front()
        {
            let bytes: usize = revision.iter().map(prost::Message::encoded_len).sum();
            if rows.to() > rows.from() && rows.bytes().saturating_add(bytes) > CUT_BYTES {
                self.pending.push_front(revision);
                break;
            }
            rows.revision(&revision)?;
        }
        if rows.to() > before {
            rows.mark(now().timestamp_millis());
        }
        Ok(())
    }

    /// Looks up leases named for the first time. One that is gone by then needs no record: its
    /// keys go with it.
    async fn look_up(&mut self, rows: &mut Builder) -> Result<()> {
        let is_new = |id: &i64| !self.known.contains(id);
        let new: Vec<i64> = rows
            .leases()
            .iter()
            .copied()
            .filter(is_new)
            .take(LEASES_MAX)
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        for (id, ttl) in self.feed.leases(&new).await? {
            rows.lease(id, ttl);
        }
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
        }
        self.known.extend(new);
        Ok(())
    }
}

/// Why a source cannot be followed any further.
fn broken(at: i64, reason: impl Into<String>) -> Error {
    Error::CaptureBroken {
        at,
        reason: reason.into(),
    }
}
