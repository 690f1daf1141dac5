//! The database file that a replay writes: the backup's entries, and the rows of the deltas behind
//! them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};

use holdfast_proto::etcd::lease;
use holdfast_store::bolt::{Measure, ReadAt, Writer};
use holdfast_store::etcd_file::{EtcdFile, Pair};
use holdfast_store::mvcc::{Revision, RowKey};
use prost::Message as _;

use super::Changes;
use crate::delta::rows::Item;
use crate::error::{Error, Result};
use crate::etcd_datadir::Pass;
use crate::inspect::unreadable;
use crate::part::{PART_BYTES, length_of};
use crate::spool::{Spool, SpoolReader};

/// The buckets that change.
const KEY: &[u8] = b"key";
const LEASE: &[u8] = b"lease";
const META: &[u8] = b"meta";

/// How the compaction is noted, as etcd does once it has been carried out.
const COMPACTION_MARKS: [&[u8]; 2] = [b"finishedCompactRev", b"scheduledCompactRev"];

/// Entries that a bucket has beside, or in place of, the backup's own.
type Overlay = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes the content of both into `spool`; with a compaction, without what that drops. Blocks.
pub(super) fn write<R: ReadAt>(
    base: &EtcdFile<R>,
    changes: &Changes,
    spool: Spool,
    compact_revision: Option<i64>,
) -> Result<SpoolReader> {
    let failed = |error: holdfast_store::bolt::WriteError| unreadable(&error);
    let content = Content::of(base, changes, compact_revision)?;
    let mut measure = Measure::with_page_size(base.bolt().page_size()).map_err(failed)?;
    content.feed(base, changes, &mut measure)?;
    let plan = measure.finish().map_err(failed)?;
    let bytes = plan.size();
    let sink = SpoolSink {
        spool: &spool,
        part: Vec::with_capacity(PART_BYTES),
        index: 0,
    };
    let mut writer = Writer::new(plan, sink).map_err(failed)?;
    content.feed(base, changes, &mut writer)?;
    let mut sink = writer.finish().map_err(failed)?;
    sink.flush_part().map_err(|error| unreadable(&error))?;
    Ok(spool.into_reader(bytes, length_of(PART_BYTES)))
}

/// What the new file holds beside the rows of both, and which of these it does not.
struct Content {
    buckets: Vec<Vec<u8>>,
    /// Leases that the backup does not have.
    leases: Overlay,
    /// The marks of the compaction.
    meta: Overlay,
    compaction: Option<Compaction>,
    base: i64,
}

impl Content {
    fn of<R: ReadAt>(
        base: &EtcdFile<R>,
        changes: &Changes,
        compact_revision: Option<i64>,
    ) -> Result<Self> {
        let bolt = base.bolt();
        let names = bolt.buckets().map_err(|error| unreadable(&error))?;
        let mut buckets: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
        for needed in [KEY, LEASE, META] {
            if !buckets.iter().any(|name| name == needed) {
                buckets.push(needed.to_vec());
            }
        }
        buckets.sort_unstable();
        let revision = base.newest_revision().map_err(|error| unreadable(&error))?;
        let own = base
            .compact_revision()
            .map_err(|error| unreadable(&error))?;
        let compaction = match compact_revision.filter(|wanted| *wanted > own) {
            Some(at) => Some(Compaction::of(base, (changes, revision), at)?),
            None => None,
        };
        let meta = compaction.as_ref().map(Compaction::marks);
        Ok(Self {
            buckets,
            leases: new_leases(base, changes, revision)?,
            meta: meta.unwrap_or_default(),
            compaction,
            base: revision,
        })
    }

    fn feed<R: ReadAt, P: Pass>(
        &self,
        base: &EtcdFile<R>,
        changes: &Changes,
        pass: &mut P,
    ) -> Result<()> {
        let nothing = Overlay::new();
        for name in &self.buckets {
            pass.bucket(name).map_err(|error| unreadable(&error))?;
            let overlay = match name.as_slice() {
                LEASE => &self.leases,
                META => &self.meta,
                _ => &nothing,
            };
            let mut extra = overlay.iter().peekable();
            let bucket = base
                .bolt()
                .bucket(name)
                .map_err(|error| unreadable(&error))?;
            if let Some(bucket) = bucket {
                let mut cursor = bucket.cursor();
                while let Some(entry) = cursor.advance().map_err(|error| unreadable(&error))? {
                    if entry.is_bucket {
                        return Err(Error::Content {
                            reason: "a bucket inside a bucket".to_owned(),
                        });
                    }
                    while let Some((key, value)) =
                        extra.next_if(|(key, _)| key.as_slice() < entry.key)
                    {
                        put(pass, key, value)?;
                    }
                    match extra.next_if(|(key, _)| key.as_slice() == entry.key) {
                        Some((key, value)) => put(pass, key, value)?,
                        None if name == KEY && self.drops_entry(entry.key) => {}
                        None => put(pass, entry.key, entry.value)?,
                    }
                }
            }
            extra.try_for_each(|(key, value)| put(pass, key, value))?;
            if name == KEY {
                changes.each(self.base, |item| match item {
                    Item::Row { row, record } if !self.drops(row) => put_row(pass, row, record),
                    _ => Ok(()),
                })?;
            }
        }
        Ok(())
    }

    fn drops(&self, row: RowKey) -> bool {
        let compaction = self.compaction.as_ref();
        compaction.is_some_and(|compaction| compaction.drops(row))
    }

    fn drops_entry(&self, key: &[u8]) -> bool {
        RowKey::decode(key).is_some_and(|row| self.drops(row))
    }
}

/// Leases that the deltas name and the backup does not have.
fn new_leases<R: ReadAt>(base: &EtcdFile<R>, changes: &Changes, revision: i64) -> Result<Overlay> {
    let mut leases = Overlay::new();
    changes.each(revision, |item| {
        if let Item::Lease { id, ttl } = item {
            let record = lease::Lease {
                id,
                ttl,
                remaining_ttl: 0,
            };
            leases.insert(id.to_be_bytes().to_vec(), record.encode_to_vec());
        }
        Ok(())
    })?;
    let bolt = base.bolt();
    if let Some(bucket) = bolt.bucket(LEASE).map_err(|error| unreadable(&error))? {
        let mut cursor = bucket.cursor();
        while let Some(entry) = cursor.advance().map_err(|error| unreadable(&error))? {
            leases.remove(entry.key);
        }
    }
    Ok(leases)
}

/// A compaction: of the rows at or before it stay the newest of the keys that existed then.
struct Compaction {
    at: i64,
    kept: BTreeSet<Revision>,
}

impl Compaction {
    fn of<R: ReadAt>(
        base: &EtcdFile<R>,
        (changes, revision): (&Changes, i64),
        at: i64,
    ) -> Result<Self> {
        let mut newest: HashMap<Box<[u8]>, Revision> = HashMap::new();
        let mut take = |row: RowKey, record: &[u8]| {
            let pair = Pair::decode(record).ok_or_else(|| Error::Content {
                reason: format!("row {} is no key-value", row.revision),
            })?;
            if row.revision.main > at {
                return Ok(());
            }
            if row.is_tombstone {
                newest.remove(pair.key);
            } else {
                newest.insert(pair.key.into(), row.revision);
            }
            Ok::<_, Error>(())
        };
        let bolt = base.bolt();
        if let Some(bucket) = bolt.bucket(KEY).map_err(|error| unreadable(&error))? {
            let mut cursor = bucket.cursor();
            while let Some(entry) = cursor.advance().map_err(|error| unreadable(&error))? {
                if let Some(row) = RowKey::decode(entry.key) {
                    take(row, entry.value)?;
                }
            }
        }
        changes.each(revision, |item| match item {
            Item::Row { row, record } => take(row, record),
            _ => Ok(()),
        })?;
        Ok(Self {
            at,
            kept: newest.into_values().collect(),
        })
    }

    fn drops(&self, row: RowKey) -> bool {
        row.revision.main <= self.at && (row.is_tombstone || !self.kept.contains(&row.revision))
    }

    fn marks(&self) -> Overlay {
        let at = Revision::new(self.at, 0).encode().to_vec();
        let marks = COMPACTION_MARKS.iter();
        marks.map(|name| (name.to_vec(), at.clone())).collect()
    }
}

fn put<P: Pass>(pass: &mut P, key: &[u8], value: &[u8]) -> Result<()> {
    pass.entry(key, value).map_err(|error| unreadable(&error))
}

fn put_row<P: Pass>(pass: &mut P, row: RowKey, record: &[u8]) -> Result<()> {
    if row.is_tombstone {
        put(pass, &row.revision.encode_tombstone(), record)
    } else {
        put(pass, &row.revision.encode(), record)
    }
}

/// Writes a file into a spool, part by part.
struct SpoolSink<'a> {
    spool: &'a Spool,
    part: Vec<u8>,
    index: usize,
}

impl SpoolSink<'_> {
    fn flush_part(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        let written = self.spool.write(self.index, &self.part);
        written.map_err(|error| match error {
            Error::Io { source, .. } => source,
            other => io::Error::other(other),
        })?;
        self.index += 1;
        self.part.clear();
        Ok(())
    }
}

impl Write for SpoolSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PART_BYTES.saturating_sub(self.part.len());
        let taken = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.part.extend_from_slice(taken);
        if self.part.len() >= PART_BYTES {
            self.flush_part()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
