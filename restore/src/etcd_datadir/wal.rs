//! The raft side of the directory: a snapshot that names the members, and a log that adds them.
//!
//! Records of the log are protobuf messages behind an 8-byte length, padded to 8 bytes; each
//! carries the CRC-32C of all data before it, its own included. The page
//! `docs/formats/etcd-snapshot.md` has the bytes.

use bytes::Bytes;
use holdfast_proto::etcd::{raft, snap, wal};
use holdfast_store::datadir::identity::{ClusterId, MemberId};
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::cluster::{Identified, first_store};
use crate::error::{Error, Result};

/// etcd creates the files of its log at this size and goes on behind the last record.
pub(super) const SEGMENT_BYTES: u64 = 64_000_000;
/// The name of the first file of a log.
pub(super) const FIRST_SEGMENT: &str = "0000000000000000-0000000000000000.wal";

const METADATA: i64 = 1;
const ENTRY: i64 = 2;
const STATE: i64 = 3;
const CRC: i64 = 4;
const SNAPSHOT: i64 = 5;

/// The log's records, with the checksum that runs through them.
#[derive(Default)]
struct Log {
    bytes: Vec<u8>,
    sum: u32,
}

impl Log {
    fn record(&mut self, kind: i64, data: Option<Vec<u8>>) {
        self.sum = crc32c::crc32c_append(self.sum, data.as_deref().unwrap_or_default());
        let record = wal::Record {
            r#type: Some(kind),
            crc: Some(self.sum),
            data: data.map(Bytes::from),
        };
        let body = record.encode_to_vec();
        let padding = body.len().next_multiple_of(8) - body.len();
        let mut frame = u64::try_from(body.len()).unwrap_or_default();
        if let Some(marked) = u64::try_from(padding).ok().filter(|padding| *padding > 0) {
            frame |= (0x80 | marked) << 56;
        }
        self.bytes.extend_from_slice(&frame.to_le_bytes());
        self.bytes.extend_from_slice(&body);
        self.bytes.resize(self.bytes.len() + padding, 0);
    }
}

/// The whole content of the first file of the log, without its empty tail.
pub(super) fn log(
    local: MemberId,
    cluster: ClusterId,
    members: &[Identified],
    term: u64,
) -> Result<Vec<u8>> {
    let index = u64::try_from(members.len()).unwrap_or(u64::MAX);
    let first = members.first().ok_or_else(|| Error::Refused {
        reason: "a cluster without members".into(),
    })?;
    let mut log = Log::default();
    log.record(CRC, None);
    log.record(METADATA, Some(metadata(local, cluster)));
    let nothing = wal::Snapshot {
        index: Some(0),
        term: Some(0),
        conf_state: None,
    };
    log.record(SNAPSHOT, Some(nothing.encode_to_vec()));
    for (index, member) in (1..).zip(members) {
        log.record(ENTRY, Some(add_member(member, index, term).encode_to_vec()));
    }
    let state = raft::HardState {
        term: Some(term),
        vote: Some(first.id.0),
        commit: Some(index),
    };
    log.record(STATE, Some(state.encode_to_vec()));
    let snapshot = wal::Snapshot {
        index: Some(index),
        term: Some(term),
        conf_state: Some(conf_state(members)),
    };
    log.record(SNAPSHOT, Some(snapshot.encode_to_vec()));
    Ok(log.bytes)
}

/// The content of the raft snapshot file that stands at the log's end.
pub(super) fn raft_snapshot(members: &[Identified], term: u64, index: u64) -> Vec<u8> {
    let snapshot = raft::Snapshot {
        data: Some(first_store(members).into()),
        metadata: Some(raft::SnapshotMetadata {
            conf_state: Some(conf_state(members)),
            index: Some(index),
            term: Some(term),
        }),
    };
    let data = snapshot.encode_to_vec();
    snap::Snapshot {
        crc: Some(crc32c::crc32c(&data)),
        data: Some(data.into()),
    }
    .encode_to_vec()
}

/// Who writes the log: field 1 the member, field 2 the cluster.
fn metadata(local: MemberId, cluster: ClusterId) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (field, value) in [(1, local.0), (2, cluster.0)] {
        encode_key(field, WireType::Varint, &mut bytes);
        encode_varint(value, &mut bytes);
    }
    bytes
}

fn add_member(member: &Identified, index: u64, term: u64) -> raft::Entry {
    let change = raft::ConfChange {
        r#type: Some(raft::ConfChangeType::ConfChangeAddNode.into()),
        node_id: Some(member.id.0),
        context: Some(member.record().into()),
        id: None,
    };
    raft::Entry {
        term: Some(term),
        index: Some(index),
        r#type: Some(raft::EntryType::EntryConfChange.into()),
        data: Some(change.encode_to_vec().into()),
    }
}

fn conf_state(members: &[Identified]) -> raft::ConfState {
    raft::ConfState {
        voters: members.iter().map(|member| member.id.0).collect(),
        ..raft::ConfState::default()
    }
}
