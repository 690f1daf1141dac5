//! The payload of a delta: rows as etcd stores them, when they were seen, leases they name.
//!
//! Rows are complete revisions in order, without a gap: what does not follow is refused when it is
//! written and again when it is read, so no replay can lose, double or split a revision. The bytes
//! are described in `docs/formats/delta.md`.

use std::collections::BTreeSet;

use holdfast_proto::etcd::kv;
use holdfast_store::etcd_file::Pair;
use holdfast_store::mvcc::{Revision, RowKey};
use prost::Message as _;

use crate::error::{Error, Result};
use crate::part::PART_BYTES_MAX;

/// Most bytes of a payload; a revision that alone is larger cannot be captured.
pub const PAYLOAD_BYTES_MAX: usize = PART_BYTES_MAX;

/// The first bytes of a payload; the last is the version.
const MAGIC: [u8; 4] = *b"HFD\x01";

const PUT: u8 = 1;
const TOMBSTONE: u8 = 2;
const TIME: u8 = 3;
const LEASE: u8 = 4;

/// Least time between two marks, in milliseconds.
const MARK_EVERY_MS: i64 = 1000;

/// One record of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// A row of the key bucket.
    Row {
        /// Its place in the history.
        row: RowKey,
        /// The key-value as etcd stores it.
        record: &'a [u8],
    },
    /// Everything up to `revision`, and nothing after it, had been seen at `at_ms`.
    Time {
        /// The newest revision then.
        revision: i64,
        /// Milliseconds since 1970, by the writer's clock.
        at_ms: i64,
    },
    /// A lease that a row names.
    Lease {
        /// The lease.
        id: i64,
        /// Granted time to live, in seconds.
        ttl: i64,
    },
}

/// A payload being written: the changes after one revision.
#[derive(Debug)]
pub struct Builder {
    bytes: Vec<u8>,
    from: i64,
    to: i64,
    events: u64,
    marked_ms: Option<i64>,
    leases: BTreeSet<i64>,
}

impl Builder {
    /// Nothing yet, after revision `from`.
    pub fn new(from: i64) -> Self {
        Self {
            bytes: MAGIC.to_vec(),
            from,
            to: from,
            events: 0,
            marked_ms: None,
            leases: BTreeSet::new(),
        }
    }

    /// Adds one whole revision, which must be the next.
    pub fn revision(&mut self, events: &[kv::Event]) -> Result<()> {
        let expected = self.to.saturating_add(1);
        let start = self.bytes.len();
        for (sub, event) in (0_i64..).zip(events) {
            let Some(pair) = &event.kv else {
                return Err(broken(self.to, "an event without a key"));
            };
            if pair.mod_revision != expected {
                let found = pair.mod_revision;
                let reason = format!("revision {found} came where {expected} is next");
                return Err(broken(self.to, reason));
            }
            let revision = Revision::new(expected, sub);
            if event.r#type() == kv::event::EventType::Delete {
                let bare = kv::KeyValue {
                    key: pair.key.clone(),
                    ..Default::default()
                };
                self.row(TOMBSTONE, revision, &bare)?;
            } else {
                if pair.lease != 0 {
                    self.leases.insert(pair.lease);
                }
                self.row(PUT, revision, pair)?;
            }
        }
        if self.bytes.len() == start {
            return Err(broken(self.to, "a revision without changes"));
        }
        if self.bytes.len() > PAYLOAD_BYTES_MAX {
            let reason = format!("revision {expected} is larger than {PAYLOAD_BYTES_MAX} bytes");
            return Err(broken(self.to, reason));
        }
        self.to = expected;
        Ok(())
    }

    fn row(&mut self, tag: u8, revision: Revision, pair: &kv::KeyValue) -> Result<()> {
        let record = pair.encode_to_vec();
        let length = u32::try_from(record.len())
            .map_err(|_wide| broken(self.to, "a record beyond four gigabytes"))?;
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&revision.main.to_be_bytes());
        self.bytes.extend_from_slice(&revision.sub.to_be_bytes());
        self.bytes.extend_from_slice(&length.to_be_bytes());
        self.bytes.extend_from_slice(&record);
        self.events += 1;
        Ok(())
    }

    /// Notes that everything so far had been seen at `at_ms`; at most once a second.
    pub fn mark(&mut self, at_ms: i64) {
        let is_soon = |last: i64| at_ms < last.saturating_add(MARK_EVERY_MS);
        if !self.marked_ms.is_some_and(is_soon) {
            self.close(at_ms);
        }
    }

    /// As [`Builder::mark`], whenever the last one was: the end of what the delta tells.
    pub fn close(&mut self, at_ms: i64) {
        self.marked_ms = Some(at_ms);
        self.pair(TIME, self.to, at_ms);
    }

    /// Notes a lease.
    pub fn lease(&mut self, id: i64, ttl: i64) {
        self.pair(LEASE, id, ttl);
    }

    fn pair(&mut self, tag: u8, left: i64, right: i64) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&left.to_be_bytes());
        self.bytes.extend_from_slice(&right.to_be_bytes());
    }

    /// The revision it begins after.
    pub fn from(&self) -> i64 {
        self.from
    }

    /// The newest revision in it.
    pub fn to(&self) -> i64 {
        self.to
    }

    /// Rows in it.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Leases that its rows name.
    pub fn leases(&self) -> &BTreeSet<i64> {
        &self.leases
    }

    /// The payload.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

fn broken(at: i64, reason: impl Into<String>) -> Error {
    Error::CaptureBroken {
        at,
        reason: reason.into(),
    }
}

/// Reads a payload of the delta that goes from `from` to `to`: calls `visit` for each record.
/// Every rule is checked on the way; what was visited before an error must not be used.
pub fn read<F>(object: &str, payload: &[u8], (from, to): (i64, i64), mut visit: F) -> Result<()>
where
    F: FnMut(Item<'_>) -> Result<()>,
{
    let malformed = |reason: &str| Error::malformed(object, reason);
    let mut rest = payload
        .strip_prefix(&MAGIC)
        .ok_or_else(|| malformed("not a delta's payload of version 1"))?;
    let mut last = Revision::new(from, i64::MAX);
    while !rest.is_empty() {
        let item = next(&mut rest).ok_or_else(|| malformed("a record is cut off or unknown"))?;
        match item {
            Item::Row { row, record } => {
                let revision = row.revision;
                let follows = if revision.main == last.main && last.main != from {
                    last.sub.checked_add(1) == Some(revision.sub)
                } else {
                    last.main.checked_add(1) == Some(revision.main) && revision.sub == 0
                };
                if !follows || revision.main > to {
                    return Err(malformed(&format!("row {revision} does not follow {last}")));
                }
                check_record(row, record).ok_or_else(|| malformed("a row is no key-value"))?;
                last = revision;
            }
            Item::Time { revision, .. } if revision != last.main => {
                return Err(malformed("a time in the middle of a revision"));
            }
            Item::Time { .. } | Item::Lease { .. } => {}
        }
        visit(item)?;
    }
    if last.main != to {
        return Err(malformed("does not end at the revision it says"));
    }
    Ok(())
}

/// The key that a row is of.
pub(crate) fn key_of(record: &[u8]) -> Option<&[u8]> {
    Pair::decode(record).map(|pair| pair.key)
}

fn check_record(row: RowKey, record: &[u8]) -> Option<()> {
    let pair = Pair::decode(record)?;
    let is_right = if row.is_tombstone {
        pair.mod_revision == 0
    } else {
        pair.mod_revision == row.revision.main
    };
    (is_right && !pair.key.is_empty()).then_some(())
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<Item<'a>> {
    let tag = *take(rest, 1)?.first()?;
    let (left, right) = (number(rest)?, number(rest)?);
    match tag {
        PUT | TOMBSTONE => {
            let length = take(rest, 4)?
                .first_chunk()
                .map(|b| u32::from_be_bytes(*b))?;
            let record = take(rest, usize::try_from(length).ok()?)?;
            let row = RowKey {
                revision: Revision::new(left, right),
                is_tombstone: tag == TOMBSTONE,
            };
            Some(Item::Row { row, record })
        }
        TIME => Some(Item::Time {
            revision: left,
            at_ms: right,
        }),
        LEASE => Some(Item::Lease {
            id: left,
            ttl: right,
        }),
        _ => None,
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

/// A number; none of them is negative.
fn number(rest: &mut &[u8]) -> Option<i64> {
    let bytes = take(rest, 8)?.first_chunk::<8>()?;
    Some(i64::from_be_bytes(*bytes)).filter(|number| *number >= 0)
}

#[cfg(test)]
mod tests;
