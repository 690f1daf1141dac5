//! The records of a log segment. Format page: `docs/formats/raft-log.md`.
//!
//! Every record carries a CRC-32C that also covers the segment's number and the record's offset,
//! so that bytes that are right but in the wrong place are not taken for a record. It also names
//! an offset up to which everything was durable when it was written, which is how recovery tells a
//! torn tail from damage to acknowledged data.

use bytes::{Buf as _, BufMut as _, Bytes};

use super::super::types::{LogId, Vote, log_id, term_of};

/// Bytes before a record's payload.
pub(super) const RECORD_HEADER_BYTES: usize = 16;
/// Records start at multiples of this.
pub(super) const RECORD_ALIGN: usize = 8;
/// The largest payload of a record.
pub(super) const RECORD_PAYLOAD_BYTES_MAX: usize = 512 << 20;

const KIND_ENTRY: u8 = 1;
const KIND_VOTE: u8 = 2;
const KIND_COMMITTED: u8 = 3;
const KIND_TRUNCATE: u8 = 4;
const KIND_PURGE: u8 = 5;
const KIND_HEAD: u8 = 6;
const KIND_END: u8 = 7;
const KIND_FOLLOWED: u8 = 8;
/// The newest kind.
const KIND_MAX: u8 = KIND_FOLLOWED;

/// What an entry's body holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyKind {
    Blank,
    Command,
    Membership,
}

impl BodyKind {
    fn code(self) -> u8 {
        match self {
            Self::Blank => 0,
            Self::Command => 1,
            Self::Membership => 2,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Blank),
            1 => Some(Self::Command),
            2 => Some(Self::Membership),
            _ => None,
        }
    }
}

/// One entry as the log stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EntryRecord {
    pub(super) term: u64,
    pub(super) index: u64,
    pub(super) body_kind: BodyKind,
    pub(super) body: Bytes,
}

/// What each segment repeats at its start, so that older segments can be deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    pub(super) purged: Option<LogId>,
    pub(super) last: Option<LogId>,
}

impl Head {
    /// Entries after `last` are gone.
    pub(super) fn truncate_after(&mut self, last: Option<LogId>) {
        if self.last > last {
            self.last = last.max(self.purged);
        }
    }

    /// Entries up to `upto` are gone.
    pub(super) fn purge(&mut self, upto: LogId) {
        self.purged = self.purged.max(Some(upto));
        self.last = self.last.max(Some(upto));
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    Entry(EntryRecord),
    Vote(Vote),
    Committed(Option<LogId>),
    /// Entries after this one are gone; `None`: all of them.
    Truncate(Option<LogId>),
    /// Entries up to this one are gone.
    Purge(LogId),
    Head(Head),
    /// The log goes on in the next segment.
    End,
    /// The next segment has its name: it is missing when it is not there.
    Followed,
}

/// A record found in a segment.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) record: Record,
    /// Up to where the segment was durable when it was written: its batch began there, or what was
    /// written without a sync before it.
    pub(super) batch_start: u32,
    /// Bytes of the record, header and padding included.
    pub(super) bytes: usize,
}

/// The size of a record with a payload of `payload` bytes.
pub(super) const fn record_bytes(payload: usize) -> usize {
    (RECORD_HEADER_BYTES + payload).next_multiple_of(RECORD_ALIGN)
}

/// The size of an entry's record.
pub(super) fn entry_bytes(entry: &EntryRecord) -> usize {
    record_bytes(17 + entry.body.len())
}

/// Where a record stands, as its checksum binds it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

/// Appends the encoding of `record`, which will stand at `place`, to `buffer`.
pub(super) fn encode(record: &Record, place: Place, batch_start: u32, buffer: &mut Vec<u8>) {
    let start = buffer.len();
    buffer.put_u32_le(0);
    buffer.put_u32_le(0);
    buffer.put_u32_le(batch_start);
    buffer.put_u8(kind_of(record));
    buffer.put_bytes(0, 3);
    encode_payload(record, buffer);
    let payload = buffer.len() - start - RECORD_HEADER_BYTES;
    buffer.resize(start + record_bytes(payload), 0);
    let length = u32::try_from(payload).expect("payloads are limited to RECORD_PAYLOAD_BYTES_MAX");
    if let Some(record) = buffer.get_mut(start..) {
        let (header, rest) = record.split_at_mut(RECORD_HEADER_BYTES);
        let (crc, sealed) = header.split_at_mut(4);
        sealed
            .split_at_mut(4)
            .0
            .copy_from_slice(&length.to_le_bytes());
        let sum = checksum(place, sealed, rest.get(..payload).unwrap_or_default());
        crc.copy_from_slice(&sum.to_le_bytes());
    }
}

/// Reads the record at the start of `bytes`; `None` when there is no whole valid one.
pub(super) fn decode(bytes: &[u8], place: Place) -> Option<Found> {
    let (header, rest) = bytes.split_at_checked(RECORD_HEADER_BYTES)?;
    let (mut crc, sealed) = header.split_at_checked(4)?;
    let mut fields = sealed;
    let length = usize::try_from(fields.get_u32_le()).ok()?;
    let batch_start = fields.get_u32_le();
    let kind = fields.get_u8();
    if kind == 0 || kind > KIND_MAX || fields.iter().any(|byte| *byte != 0) {
        return None;
    }
    let payload = rest.get(..length)?;
    if checksum(place, sealed, payload) != crc.get_u32_le() {
        return None;
    }
    let record = decode_payload(kind, payload)?;
    Some(Found {
        record,
        batch_start,
        bytes: record_bytes(length),
    })
}

fn checksum(place: Place, sealed: &[u8], payload: &[u8]) -> u32 {
    let mut sum = crc32c::crc32c(&place.segment.to_le_bytes());
    sum = crc32c::crc32c_append(sum, &place.offset.to_le_bytes());
    sum = crc32c::crc32c_append(sum, sealed);
    crc32c::crc32c_append(sum, payload)
}

fn kind_of(record: &Record) -> u8 {
    match record {
        Record::Entry(_) => KIND_ENTRY,
        Record::Vote(_) => KIND_VOTE,
        Record::Committed(_) => KIND_COMMITTED,
        Record::Truncate(_) => KIND_TRUNCATE,
        Record::Purge(_) => KIND_PURGE,
        Record::Head(_) => KIND_HEAD,
        Record::End => KIND_END,
        Record::Followed => KIND_FOLLOWED,
    }
}

fn encode_payload(record: &Record, buffer: &mut Vec<u8>) {
    match record {
        Record::Entry(entry) => {
            buffer.put_u64_le(entry.term);
            buffer.put_u64_le(entry.index);
            buffer.put_u8(entry.body_kind.code());
            buffer.put_slice(&entry.body);
        }
        Record::Vote(vote) => put_vote(buffer, Some(vote)),
        Record::Committed(id) | Record::Truncate(id) => put_log_id(buffer, id.as_ref()),
        Record::Purge(id) => put_log_id(buffer, Some(id)),
        Record::Head(head) => {
            put_vote(buffer, head.vote.as_ref());
            put_log_id(buffer, head.committed.as_ref());
            put_log_id(buffer, head.purged.as_ref());
            put_log_id(buffer, head.last.as_ref());
        }
        Record::End | Record::Followed => {}
    }
}

fn decode_payload(kind: u8, mut payload: &[u8]) -> Option<Record> {
    let record = match kind {
        KIND_ENTRY => {
            let (mut fields, body) = payload.split_at_checked(17)?;
            payload = &[];
            Record::Entry(EntryRecord {
                term: fields.get_u64_le(),
                index: fields.get_u64_le(),
                body_kind: BodyKind::from_code(fields.get_u8())?,
                body: Bytes::copy_from_slice(body),
            })
        }
        KIND_VOTE => Record::Vote(take_vote(&mut payload)??),
        KIND_COMMITTED => Record::Committed(take_log_id(&mut payload)?),
        KIND_TRUNCATE => Record::Truncate(take_log_id(&mut payload)?),
        KIND_PURGE => Record::Purge(take_log_id(&mut payload)??),
        KIND_HEAD => Record::Head(Head {
            vote: take_vote(&mut payload)?,
            committed: take_log_id(&mut payload)?,
            purged: take_log_id(&mut payload)?,
            last: take_log_id(&mut payload)?,
        }),
        KIND_END => Record::End,
        KIND_FOLLOWED => Record::Followed,
        _ => return None,
    };
    payload.is_empty().then_some(record)
}

fn put_vote(buffer: &mut Vec<u8>, vote: Option<&Vote>) {
    let state = vote.map_or(0, |vote| if vote.committed { 2 } else { 1 });
    buffer.put_u8(state);
    buffer.put_u64_le(vote.map_or(0, |vote| vote.leader_id.term));
    buffer.put_u64_le(vote.map_or(0, |vote| vote.leader_id.voted_for));
}

/// The outer `None`: not a vote; the inner: the absence of one.
#[expect(
    clippy::option_option,
    reason = "an absent vote is a value of the format"
)]
fn take_vote(payload: &mut &[u8]) -> Option<Option<Vote>> {
    let state = payload.try_get_u8().ok()?;
    let term = payload.try_get_u64_le().ok()?;
    let node = payload.try_get_u64_le().ok()?;
    match state {
        0 => Some(None),
        1 => Some(Some(Vote::new(term, node))),
        2 => Some(Some(Vote::new_committed(term, node))),
        _ => None,
    }
}

fn put_log_id(buffer: &mut Vec<u8>, id: Option<&LogId>) {
    buffer.put_u8(u8::from(id.is_some()));
    buffer.put_u64_le(id.map_or(0, term_of));
    buffer.put_u64_le(id.map_or(0, |id| id.index));
}

/// The outer `None`: not a log id; the inner: the absence of one.
#[expect(
    clippy::option_option,
    reason = "an absent log id is a value of the format"
)]
fn take_log_id(payload: &mut &[u8]) -> Option<Option<LogId>> {
    let present = payload.try_get_u8().ok()?;
    let term = payload.try_get_u64_le().ok()?;
    let index = payload.try_get_u64_le().ok()?;
    match present {
        0 => Some(None),
        1 => Some(Some(log_id(term, index))),
        _ => None,
    }
}
