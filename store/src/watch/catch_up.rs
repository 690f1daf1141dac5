//! Reading the history for watchers that lag.

use std::sync::Arc;

use holdfast_proto::etcd::kv;

use super::history::{History, add_previous};
use super::hub::{Filter, WatcherId};
use super::range::KeyRange;
use crate::error::Error;
use crate::failpoint::{self, Point};

/// Watchers served by one read of the history.
pub(super) const READERS_MAX: usize = 512;

/// Bytes read at once, unless a single revision is larger.
const READ_BYTES_MAX: usize = 128 * 1024;

/// Attempts to read while compactions pass by.
const ATTEMPTS_MAX: usize = 3;

/// A lagging watcher.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) id: WatcherId,
    pub(super) range: KeyRange,
    pub(super) filter: Filter,
    pub(super) next: i64,
    pub(super) wants_previous: bool,
}

/// What a read brought for one watcher.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) id: WatcherId,
    pub(super) result: Found,
}

/// Events, or the end of the watch.
#[derive(Debug)]
pub(super) enum Found {
    /// Events, possibly none, and the revision to go on at.
    Events { events: Vec<kv::Event>, next: i64 },
    /// The watcher's cursor is before this compaction.
    Compacted { compact_revision: i64 },
    /// The history cannot be read.
    Failed { reason: String },
}

/// Reads the next piece of history, up to `target`, for all `readers`.
pub(super) fn read(history: &Arc<dyn History>, readers: &[Reader], target: i64) -> Vec<Reading> {
    let mut problem = Error::Compacted;
    for _attempt in 0..ATTEMPTS_MAX {
        match attempt(history.as_ref(), readers, target) {
            Ok(readings) => return readings,
            Err(Error::Compacted) => {}
            Err(error) => {
                problem = error;
                break;
            }
        }
    }
    tracing::error!(error = %problem, "cannot read the history for watches");
    let reason = format!("etcdserver: {problem}");
    let failed = |reader: &Reader| Reading {
        id: reader.id,
        result: Found::Failed {
            reason: reason.clone(),
        },
    };
    readers.iter().map(failed).collect()
}

fn attempt(history: &dyn History, readers: &[Reader], target: i64) -> Result<Vec<Reading>, Error> {
    let compact_revision = history.compact_revision();
    let skips = failpoint::is_on(Point::BugWatchSkipsCompacted);
    let is_kept = |reader: &&Reader| reader.next >= compact_revision || skips;
    let first = readers
        .iter()
        .filter(is_kept)
        .map(|reader| reader.next.max(compact_revision))
        .min();
    let (mut events, next) = match first {
        Some(first) if first <= target => {
            let batch = history.events(first, target, READ_BYTES_MAX)?;
            (batch.events, batch.next)
        }
        _ => (Vec::new(), target + 1),
    };
    if readers.iter().any(|reader| reader.wants_previous) {
        for event in &mut events {
            add_previous(history, event);
        }
    }
    let reading = |reader: &Reader| Reading {
        id: reader.id,
        result: if is_kept(&reader) {
            Found::Events {
                events: pick(reader, &events),
                next: reader.next.max(next),
            }
        } else {
            Found::Compacted { compact_revision }
        },
    };
    Ok(readers.iter().map(reading).collect())
}

/// The events that a watcher covers, wants, and has not been given.
fn pick(reader: &Reader, events: &[kv::Event]) -> Vec<kv::Event> {
    let is_wanted = |event: &&kv::Event| {
        !reader.filter.drops(event)
            && event
                .kv
                .as_ref()
                .is_some_and(|kv| kv.mod_revision >= reader.next && reader.range.contains(&kv.key))
    };
    let mut picked: Vec<kv::Event> = events.iter().filter(is_wanted).cloned().collect();
    if !reader.wants_previous {
        for event in &mut picked {
            event.prev_kv = None;
        }
    }
    picked
}
