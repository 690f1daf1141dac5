//! The read side of the state: shared, never in the writer's way for long.

use holdfast_proto::etcd::{kv, rpc};

use crate::apply::LogPosition;
use crate::error::Error;
use crate::export::Export;
use crate::lease::{LeaseId, LeaseInfo};

/// The answer to a hash of the key-values (etcd's HashKV).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashKv {
    /// CRC-32C over the rows, by etcd's rules.
    pub hash: u32,
    /// The compaction the hash starts at; -1: never compacted.
    pub compact_revision: i64,
    /// The revision that was hashed.
    pub hash_revision: i64,
    /// The store's revision at that time.
    pub current_revision: i64,
}

/// Events of whole revisions.
#[derive(Debug, Clone, PartialEq)]
pub struct EventBatch {
    /// In order of revision; deletes carry the key and the revision only.
    pub events: Vec<kv::Event>,
    /// Where to go on.
    pub next: i64,
}

/// Sizes of the store, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Space taken on disk.
    pub total: u64,
    /// Space that holds data.
    pub in_use: u64,
    /// The quota; negative: none.
    pub quota: i64,
}

/// A member as the replicated state knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRecord {
    /// The member id.
    pub id: u64,
    /// Its name; empty until it has published itself.
    pub name: String,
    /// Where its peers reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
    /// Whether it only learns.
    pub is_learner: bool,
}

/// Counters since start, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoreCounters {
    /// Keys put.
    pub puts: u64,
    /// Keys deleted.
    pub deletes: u64,
    /// Ranges read.
    pub ranges: u64,
    /// Transactions applied or read.
    pub txns: u64,
    /// Events published.
    pub events: u64,
    /// Live keys.
    pub keys: u64,
    /// Bytes put (keys and values).
    pub put_bytes: u64,
    /// Rows removed by compactions.
    pub compacted_rows: u64,
    /// Leases granted.
    pub leases_granted: u64,
    /// Leases revoked.
    pub leases_revoked: u64,
}

/// The read side of the state.
#[derive(Debug)]
pub struct State {}

#[expect(
    clippy::todo,
    clippy::unused_self,
    reason = "signatures first; bodies follow in hours"
)]
impl State {
    /// Reads a range at the published revision; the header carries the revision only.
    pub fn range(&self, _request: &rpc::RangeRequest) -> Result<rpc::RangeResponse, Error> {
        todo!()
    }

    /// As [`State::range`], but `count` counts no further than the limit: for streamed pages.
    pub fn range_page(&self, _request: &rpc::RangeRequest) -> Result<rpc::RangeResponse, Error> {
        todo!()
    }

    /// A transaction of ranges only, all at one revision.
    pub fn txn(&self, _request: &rpc::TxnRequest) -> Result<rpc::TxnResponse, Error> {
        todo!()
    }

    /// The published revision.
    pub fn revision(&self) -> i64 {
        todo!()
    }

    /// The revision of the last compaction; -1: never compacted.
    pub fn compact_revision(&self) -> i64 {
        todo!()
    }

    /// The last log entry that readers see.
    pub fn applied(&self) -> Option<LogPosition> {
        todo!()
    }

    /// HashKV at a revision (0: the current one), by etcd's rules.
    pub fn hash_kv(&self, _revision: i64) -> Result<HashKv, Error> {
        todo!()
    }

    /// CRC-32C over all tables, by the rules of etcd's Hash.
    pub fn hash(&self) -> Result<u32, Error> {
        todo!()
    }

    /// All leases, by id.
    pub fn leases(&self) -> Vec<LeaseId> {
        todo!()
    }

    /// All leases without their keys; what a new leader's clock needs.
    pub fn lease_infos(&self) -> Vec<LeaseInfo> {
        todo!()
    }

    /// One lease with its keys.
    pub fn lease(&self, _id: LeaseId) -> Option<LeaseInfo> {
        todo!()
    }

    /// Active alarms.
    pub fn alarms(&self) -> Vec<rpc::AlarmMember> {
        todo!()
    }

    /// Members, by id.
    pub fn members(&self) -> Vec<MemberRecord> {
        todo!()
    }

    /// The version the whole cluster speaks, as `3.7.0`.
    pub fn cluster_version(&self) -> Option<String> {
        todo!()
    }

    /// Whether the data has authentication enabled.
    pub fn is_auth_enabled(&self) -> bool {
        todo!()
    }

    /// Sizes on disk and of the data.
    pub fn sizes(&self) -> Sizes {
        todo!()
    }

    /// Whether a request that adds about `cost` bytes fits into the quota.
    pub fn has_space_for(&self, _cost: u64) -> bool {
        todo!()
    }

    /// Events of the revisions `from..=to`, whole revisions only, about `limit_bytes` of them but
    /// at least one revision. `Compacted` when `from` is before the last compaction.
    pub fn events(&self, _from: i64, _to: i64, _limit_bytes: usize) -> Result<EventBatch, Error> {
        todo!()
    }

    /// The key's value just before `revision`; `None` when there was none or it is compacted.
    pub fn previous(&self, _key: &[u8], _revision: i64) -> Result<Option<kv::KeyValue>, Error> {
        todo!()
    }

    /// A consistent view of everything, for a snapshot.
    pub fn export(&self) -> Result<Export, Error> {
        todo!()
    }

    /// What was found damaged so far, if anything: raise the CORRUPT alarm then.
    pub fn damage(&self) -> Option<String> {
        todo!()
    }

    /// Counters since start.
    pub fn metrics(&self) -> CoreCounters {
        todo!()
    }
}
