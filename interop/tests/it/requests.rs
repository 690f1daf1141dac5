//! Random requests over a small set of keys, valid and invalid ones, with a seed.

use holdfast_proto::etcd::rpc;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Fewer keys than Go's sort needs to become unstable, so that equal sort keys keep their order.
const KEYS: u32 = 10;
const LEASES: i64 = 4;
/// Depth of nested transactions.
const DEPTH_MAX: u32 = 2;

/// One call of a service.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Range(rpc::RangeRequest),
    Put(rpc::PutRequest),
    Delete(rpc::DeleteRangeRequest),
    Txn(rpc::TxnRequest),
    Compact(rpc::CompactionRequest),
    Grant(rpc::LeaseGrantRequest),
    Revoke(rpc::LeaseRevokeRequest),
}

/// Draws calls and follows the revision, so that past and future ones are asked for on purpose.
pub(crate) struct Calls {
    rng: StdRng,
    revision: i64,
    compacted: i64,
}

impl Calls {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            revision: 1,
            compacted: 0,
        }
    }

    /// Takes note of the revision that an answer showed.
    pub(crate) fn saw(&mut self, revision: Option<i64>) {
        self.revision = revision.unwrap_or(self.revision).max(self.revision);
    }

    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    /// The highest revision that a compaction was asked for and could be done.
    pub(crate) fn compacted(&self) -> i64 {
        self.compacted
    }

    pub(crate) fn draw(&mut self) -> Call {
        match self.rng.random_range(0..100) {
            0..30 => Call::Put(self.put()),
            30..42 => Call::Delete(self.delete()),
            42..67 => Call::Range(self.range()),
            67..90 => Call::Txn(self.txn(0)),
            90..93 => Call::Compact(self.compact()),
            93..97 => Call::Grant(rpc::LeaseGrantRequest {
                ttl: 100_000,
                id: self.lease(),
            }),
            _ => Call::Revoke(rpc::LeaseRevokeRequest { id: self.lease() }),
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// A key; now and then an odd one.
    fn key(&mut self) -> Vec<u8> {
        if self.chance(3) {
            return vec![];
        }
        format!("k{}", self.rng.random_range(0..KEYS)).into_bytes()
    }

    fn key_and_end(&mut self) -> (Vec<u8>, Vec<u8>) {
        let key = self.key();
        let end = match self.rng.random_range(0..10) {
            0..4 => vec![],
            4..7 => self.key(),
            7 => vec![0],
            8 => return (vec![0], vec![0]),
            _ => return (b"k".to_vec(), b"l".to_vec()),
        };
        (key, end)
    }

    fn lease(&mut self) -> i64 {
        self.rng.random_range(1..=LEASES)
    }

    /// Mostly "now"; else a revision around the known history, possibly compacted or future.
    fn past(&mut self, percent: u32) -> i64 {
        if !self.chance(percent) {
            return 0;
        }
        self.rng.random_range(-1..=self.revision + 2)
    }

    fn put(&mut self) -> rpc::PutRequest {
        let lease = if self.chance(15) { self.lease() } else { 0 };
        let length = self.rng.random_range(0..40);
        let value: Vec<u8> = (0..length).map(|_| self.rng.random()).collect();
        let ignore_value = self.chance(5);
        let ignore_lease = self.chance(5);
        rpc::PutRequest {
            key: self.key().into(),
            value: if ignore_value && self.chance(80) {
                vec![]
            } else {
                value
            }
            .into(),
            lease: if ignore_lease && self.chance(80) {
                0
            } else {
                lease
            },
            prev_kv: self.chance(40),
            ignore_value,
            ignore_lease,
        }
    }

    fn delete(&mut self) -> rpc::DeleteRangeRequest {
        let (key, range_end) = self.key_and_end();
        rpc::DeleteRangeRequest {
            key: key.into(),
            range_end: range_end.into(),
            prev_kv: self.chance(50),
        }
    }

    fn range(&mut self) -> rpc::RangeRequest {
        let (key, range_end) = self.key_and_end();
        rpc::RangeRequest {
            key: key.into(),
            range_end: range_end.into(),
            limit: if self.chance(40) {
                self.rng.random_range(0..6)
            } else {
                0
            },
            revision: self.past(35),
            sort_order: self.rng.random_range(0..3),
            sort_target: self.rng.random_range(0..5),
            serializable: self.chance(30),
            keys_only: self.chance(20),
            count_only: self.chance(15),
            min_mod_revision: self.past(10),
            max_mod_revision: self.past(10),
            min_create_revision: self.past(10),
            max_create_revision: self.past(10),
        }
    }

    fn compact(&mut self) -> rpc::CompactionRequest {
        let revision = self
            .rng
            .random_range(self.revision - 60..=self.revision + 1);
        if revision <= self.revision {
            self.compacted = self.compacted.max(revision);
        }
        // A physical one, so that hashes of both sides speak of the same rows.
        rpc::CompactionRequest {
            revision,
            physical: true,
        }
    }

    fn txn(&mut self, depth: u32) -> rpc::TxnRequest {
        let compares = self.rng.random_range(0..3);
        let successes = self.rng.random_range(0..4);
        let failures = self.rng.random_range(0..3);
        rpc::TxnRequest {
            compare: (0..compares).map(|_| self.compare()).collect(),
            success: (0..successes).map(|_| self.operation(depth)).collect(),
            failure: (0..failures).map(|_| self.operation(depth)).collect(),
        }
    }

    fn operation(&mut self, depth: u32) -> rpc::RequestOp {
        use rpc::request_op::Request;
        let request = match self.rng.random_range(0..10) {
            // No put of a transaction depends on its key being there: real etcd 3.7.3 dies when an
            // earlier operation of the same transaction has deleted it. Ours refuses the call.
            0..4 => Request::RequestPut(rpc::PutRequest {
                ignore_value: false,
                ignore_lease: false,
                ..self.put()
            }),
            4..6 => Request::RequestDeleteRange(self.delete()),
            6..8 => Request::RequestRange(self.range()),
            _ if depth < DEPTH_MAX => Request::RequestTxn(self.txn(depth + 1)),
            _ => Request::RequestRange(self.range()),
        };
        rpc::RequestOp {
            request: Some(request),
        }
    }

    fn compare(&mut self) -> rpc::Compare {
        use rpc::compare::TargetUnion;
        let target = self.rng.random_range(0..5);
        let number = self.rng.random_range(0..=self.revision);
        let target_union = match target {
            0 => TargetUnion::Version(number % 4),
            1 => TargetUnion::CreateRevision(number),
            2 => TargetUnion::ModRevision(number),
            3 => TargetUnion::Value(vec![self.rng.random()].into()),
            _ => TargetUnion::Lease(number % (LEASES + 1)),
        };
        let range_end = if self.chance(25) { self.key() } else { vec![] };
        rpc::Compare {
            result: self.rng.random_range(0..4),
            target,
            key: self.key().into(),
            range_end: range_end.into(),
            target_union: Some(target_union),
        }
    }
}
