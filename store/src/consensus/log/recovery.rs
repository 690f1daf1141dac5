//! Reading the log back at start.
//!
//! Every segment but the last must be whole, up to its end record; behind that it says, before
//! anything in the next one is acknowledged, that the next one is there. In the last one, bytes
//! that are not a record end the log: if they are the torn remains of the newest batch, which
//! nobody was told about, they are cut; if a later batch follows them, acknowledged data is damaged
//! and the member refuses to start, naming the segment and the offset.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use super::index::{Index, Slot};
use super::record::{self, Found, Place, RECORD_ALIGN, Record};
use super::segment::{LogIdentity, SEGMENT_HEADER_BYTES, Segment};
use super::{LogError, LogIo};
use crate::datadir::durable;
use crate::failpoint::{self, Point};

/// A log read back.
pub(super) struct Recovered {
    pub(super) index: Index,
    /// Finished segments, oldest first, with the highest index each may hold.
    pub(super) closed: Vec<(Segment, Option<u64>)>,
    /// The segment that is written to, and where; `None` in a new log.
    pub(super) active: Option<(Segment, u64)>,
    /// The highest index the active segment may hold.
    pub(super) active_highest: Option<u64>,
    /// Whether the active segment already ends with an end record.
    pub(super) is_ended: bool,
}

/// Reads the log in `dir`.
pub(super) fn recover(
    dir: &Path,
    identity: LogIdentity,
    log_io: &dyn LogIo,
) -> Result<Recovered, LogError> {
    let sequences = Segment::list(dir)?;
    let mut recovered = Recovered {
        index: Index::default(),
        closed: Vec::new(),
        active: None,
        active_highest: None,
        is_ended: false,
    };
    let mut previous = None;
    let mut unnoted = None;
    for sequence in &sequences {
        if previous.is_some_and(|previous: u64| previous.checked_add(1) != Some(*sequence)) {
            let missing = previous.map_or(0, |previous| previous + 1);
            return Err(LogError::Missing {
                segment: Segment::path(dir, missing),
            });
        }
        previous = Some(*sequence);
        let segment = Segment::open(dir, *sequence, identity)?;
        let is_last = sequences.last() == Some(sequence);
        recovered
            .index
            .files
            .insert(*sequence, Arc::clone(&segment.file));
        let scanned = Scan::new(dir, &segment)?.run(&mut recovered.index, is_last)?;
        if is_last {
            recovered.is_ended = scanned.is_ended;
            recovered.active_highest = scanned.highest;
            recovered.active = Some((segment, scanned.end));
        } else {
            unnoted = (!scanned.is_followed).then(|| (segment.clone(), scanned.end));
            recovered.closed.push((segment, scanned.highest));
        }
    }
    if let Some((segment, ended_at)) = unnoted {
        // The crash came after the newest segment got its name.
        segment.note_followed(ended_at, log_io)?;
    }
    Ok(recovered)
}

struct Scanned {
    end: u64,
    highest: Option<u64>,
    is_ended: bool,
    /// Whether it says that the next segment has its name.
    is_followed: bool,
}

struct Scan<'a> {
    dir: &'a Path,
    segment: &'a Segment,
    bytes: Vec<u8>,
    offset: usize,
    highest: Option<u64>,
    is_first: bool,
}

impl<'a> Scan<'a> {
    fn new(dir: &'a Path, segment: &'a Segment) -> Result<Self, LogError> {
        let Ok(size) = usize::try_from(segment.size) else {
            return Err(LogError::Damaged {
                segment: Segment::path(dir, segment.sequence),
                offset: 0,
                what: "the segment is larger than this machine can address".to_owned(),
            });
        };
        let mut bytes = vec![0; size];
        segment.file.read_exact_at(&mut bytes, 0)?;
        let offset = usize::try_from(SEGMENT_HEADER_BYTES).unwrap_or(usize::MAX);
        Ok(Self {
            dir,
            segment,
            bytes,
            offset,
            highest: None,
            is_first: true,
        })
    }

    fn place(&self) -> Place {
        Place {
            segment: self.segment.sequence,
            offset: offset_u64(self.offset),
        }
    }

    fn damaged(&self, what: &str) -> LogError {
        LogError::Damaged {
            segment: Segment::path(self.dir, self.segment.sequence),
            offset: offset_u64(self.offset),
            what: what.to_owned(),
        }
    }

    fn next_record(&self) -> Option<Found> {
        record::decode(self.bytes.get(self.offset..)?, self.place())
    }

    fn run(mut self, index: &mut Index, is_last: bool) -> Result<Scanned, LogError> {
        let is_oldest = index.files.len() == 1;
        while let Some(found) = self.next_record() {
            if found.record == Record::End {
                self.offset += found.bytes;
                let end = offset_u64(self.offset);
                let next = self.next_record();
                let is_followed = next.is_some_and(|next| next.record == Record::Followed);
                if is_last && is_followed {
                    let missing = self.segment.sequence.saturating_add(1);
                    return Err(LogError::Missing {
                        segment: Segment::path(self.dir, missing),
                    });
                }
                if is_last {
                    self.finish()?;
                }
                return Ok(Scanned {
                    end,
                    highest: self.highest,
                    is_ended: true,
                    is_followed,
                });
            }
            self.replay(index, &found, is_oldest)?;
            self.offset += found.bytes;
        }
        if !is_last {
            return Err(self.damaged("a finished segment does not reach its end record"));
        }
        if self.is_first {
            return Err(self.damaged("the segment does not begin with a head record"));
        }
        self.finish()?;
        Ok(Scanned {
            end: offset_u64(self.offset),
            highest: self.highest,
            is_ended: false,
            is_followed: false,
        })
    }

    fn replay(&mut self, index: &mut Index, found: &Found, oldest: bool) -> Result<(), LogError> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        match (&found.record, is_first) {
            (Record::Head(head), true) => {
                self.highest = head.last.map(|id| id.index);
                if oldest {
                    // Entries before this segment were purged and their segments deleted; a
                    // purge record further on says so.
                    index.head = head.clone();
                    if let Some(last) = head.last.filter(|last| head.purged != Some(*last)) {
                        index.expect_purge(last);
                    }
                } else if *head != index.head {
                    return Err(self.damaged("the head record does not continue the last segment"));
                }
            }
            (_, true) | (Record::Head(_) | Record::End | Record::Followed, false) => {
                return Err(self.damaged("a record stands where it must not"));
            }
            (Record::Entry(entry), false) => {
                if !index.accepts(entry.index) {
                    return Err(self.damaged("the entry does not follow the one before it"));
                }
                let slot = Slot {
                    term: entry.term,
                    place: Some(self.place()),
                    bytes: found.bytes,
                };
                index.push(entry.index, slot, None);
                self.highest = self.highest.max(Some(entry.index));
            }
            (Record::Vote(vote), false) => index.head.vote = Some(*vote),
            (Record::Committed(id), false) => index.head.committed = *id,
            (Record::Truncate(last), false) => index.truncate_after(last.as_ref()),
            (Record::Purge(upto), false) => index.purge(upto),
        }
        Ok(())
    }

    /// Cuts what is left of a torn batch, or refuses damage.
    fn finish(&mut self) -> Result<(), LogError> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        let Some(dirty) = rest.iter().rposition(|byte| *byte != 0) else {
            return self.sync();
        };
        if let Some(later) = self.later_batch() {
            return Err(self.damaged(&format!(
                "the record is damaged, and a batch written after it stands at offset {later}"
            )));
        }
        if failpoint::is_on(Point::BugTornTailFatal) {
            return Err(self.damaged("the record is damaged"));
        }
        let dirty = dirty + 1;
        tracing::warn!(
            segment = self.segment.sequence,
            offset = offset_u64(self.offset),
            bytes = dirty,
            "cut a torn, unacknowledged end of the raft log"
        );
        self.segment
            .file
            .write_all_at(&vec![0; dirty], offset_u64(self.offset))?;
        self.sync()
    }

    /// What was read may have been in the page cache only; it is about to be relied on.
    fn sync(&self) -> Result<(), LogError> {
        Ok(durable::sync_data(&self.segment.file)?)
    }

    /// Finds a valid record after the current offset whose batch began after it: proof that the
    /// bytes here had been durable.
    fn later_batch(&self) -> Option<u64> {
        let mut at = self.offset + RECORD_ALIGN;
        while let Some(rest) = self.bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let place = Place {
                segment: self.segment.sequence,
                offset: offset_u64(at),
            };
            if let Some(found) = record::decode(rest, place)
                && offset_u64(self.offset) < u64::from(found.batch_start)
            {
                return Some(place.offset);
            }
            at += RECORD_ALIGN;
        }
        None
    }
}

fn offset_u64(offset: usize) -> u64 {
    u64::try_from(offset).unwrap_or(u64::MAX)
}

/// After all segments are read: entries that a deleted segment held must have been purged.
pub(super) fn check_complete(dir: &Path, index: &Index) -> Result<(), LogError> {
    match index.expected_purge() {
        Some(last)
            if index
                .head
                .purged
                .is_none_or(|purged| purged.index < last.index) =>
        {
            let oldest = index.files.keys().next().copied().unwrap_or(0);
            let missing = Segment::path(dir, oldest.saturating_sub(1));
            Err(LogError::Missing { segment: missing })
        }
        _ => Ok(()),
    }
}
