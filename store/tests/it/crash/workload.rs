//! A fixed workload, and what the state has to be after each of its entries.
#![expect(
    clippy::unwrap_used,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::etcd::rpc;
use holdfast_proto::etcd::rpc::request_op::Request as Op;
use holdfast_proto::store::v1::Command;
use holdfast_proto::store::v1::command::Request;
use holdfast_store::Error;
use holdfast_store::apply::{
    Applier, Entry, EntryPayload, LogPosition, Membership, NoEvents, Seat, StateOptions,
};
use holdfast_store::state::State;
use prost::Message as _;

use super::disk::Disk;

/// Entries of the workload.
const ENTRIES: u64 = 260;

/// So small that pages reach the storage before a checkpoint.
const CACHE_BYTES: usize = 16 << 10;

pub(crate) fn open(disk: Disk) -> Result<(Applier, Arc<State>), Error> {
    let options = StateOptions {
        load_threads: 1,
        cache_bytes: CACHE_BYTES,
        ..StateOptions::default()
    };
    Applier::open_with_backend(disk, &options, Arc::new(NoEvents))
}

pub(crate) fn entry(index: u64) -> Entry {
    let position = LogPosition {
        term: 1,
        node: 7,
        index,
    };
    let payload = if index == 1 {
        let seat = Seat {
            id: 7,
            peer_urls: vec!["http://seven".to_owned()],
            is_learner: false,
        };
        EntryPayload::Membership(Membership {
            encoded: Bytes::from_static(b"first"),
            seats: vec![seat],
        })
    } else {
        EntryPayload::Command(Command {
            id: index,
            request: Some(request(index)),
        })
    };
    Entry { position, payload }
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key-{:03}", number % 60))
}

fn put(index: u64, number: u64, lease: i64) -> rpc::PutRequest {
    let length = usize::try_from(index * 37 % 900).unwrap();
    let mut value = format!("value of {index} ").into_bytes();
    value.resize(value.len() + length, u8::try_from(index % 251).unwrap());
    rpc::PutRequest {
        key: key(number),
        value: value.into(),
        lease,
        ..rpc::PutRequest::default()
    }
}

fn request(index: u64) -> Request {
    let id = i64::try_from(index / 40).unwrap() + 1;
    match index % 20 {
        2 if index % 40 == 2 => Request::LeaseGrant(rpc::LeaseGrantRequest { ttl: 60, id }),
        7 => Request::DeleteRange(rpc::DeleteRangeRequest {
            key: key(index),
            range_end: key(index + 4),
            ..rpc::DeleteRangeRequest::default()
        }),
        11 => {
            let ops = (0..3).map(|step| rpc::RequestOp {
                request: Some(Op::RequestPut(put(index, index * 3 + step, 0))),
            });
            Request::Txn(rpc::TxnRequest {
                success: ops.collect(),
                ..rpc::TxnRequest::default()
            })
        }
        15 if index % 60 == 15 => Request::Compact(rpc::CompactionRequest {
            revision: i64::try_from(index / 2).unwrap(),
            physical: false,
        }),
        17 if index % 80 == 77 => Request::LeaseRevoke(rpc::LeaseRevokeRequest { id: id - 1 }),
        19 => Request::Put(put(index, index * 7, if index % 40 == 19 { id } else { 0 })),
        _ => Request::Put(put(index, index * 13, 0)),
    }
}

/// Everything a client can read, in bytes.
pub(crate) fn content(state: &State) -> Result<Vec<u8>, Error> {
    let all = |revision| rpc::RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        revision,
        ..rpc::RangeRequest::default()
    };
    let mut bytes = state.range(&all(0))?.encode_to_vec();
    bytes.extend(state.compact_revision().to_be_bytes());
    bytes.extend(state.hash_kv(0)?.hash.to_be_bytes());
    let from = state.compact_revision().max(1) + 1;
    for event in state.events(from, state.revision(), usize::MAX)?.events {
        bytes.extend(event.encode_to_vec());
    }
    bytes.extend(format!("{:?}", state.lease_infos()).bytes());
    for id in state.leases() {
        bytes.extend(format!("{:?}", state.lease(id)).bytes());
    }
    bytes.extend(format!("{:?}{:?}", state.alarms(), state.members()).bytes());
    Ok(bytes)
}

/// The workload done once, with everything there is to know about it.
pub(crate) struct Run {
    pub(crate) disk: Disk,
    /// Content after each applied index; 0: before the first entry.
    pub(crate) contents: BTreeMap<u64, Vec<u8>>,
    /// Operations of the storage at which an index had become durable.
    pub(crate) durable: Vec<(usize, u64)>,
    /// Operations of the storage at which the application of an index had come to its end.
    answered: Vec<(usize, u64)>,
}

impl Run {
    /// The newest entry in the log when power is lost before operation `at`: the one that was
    /// being applied, which the log holds already.
    pub(crate) fn acknowledged(&self, at: usize) -> u64 {
        let whole = self
            .answered
            .partition_point(|(position, _)| *position <= at);
        let last = self.answered.len() - 1;
        self.answered
            .get(whole.min(last))
            .map_or(0, |(_, index)| *index)
    }
}

pub(crate) fn run() -> Run {
    let disk = Disk::new(Vec::new(), true);
    let (mut applier, state) = open(disk.clone()).unwrap();
    let mut contents = BTreeMap::from([(0, content(&state).unwrap())]);
    let mut durable = vec![(disk.position(), 0)];
    let mut answered = Vec::new();
    let mut next = 1;
    while next <= ENTRIES {
        let size = 1 + next % 4;
        for index in next..(next + size).min(ENTRIES + 1) {
            // One entry a batch here: the content after each is wanted.
            applier.apply(vec![entry(index)]).unwrap();
            contents.insert(index, content(&state).unwrap());
            answered.push((disk.position(), index));
        }
        next += size;
        if next.is_multiple_of(5) {
            applier.compact_step().unwrap();
        }
        if next % 7 < 2 {
            applier.checkpoint().unwrap();
            durable.push((disk.position(), applier.applied().unwrap().index));
            assert_eq!(applier.durable(), applier.applied());
        }
    }
    Run {
        disk,
        contents,
        durable,
        answered,
    }
}
