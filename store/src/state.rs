//! The read side of the state: shared, never in the writer's way for long.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use holdfast_proto::etcd::kv::event::EventType;
use holdfast_proto::etcd::{kv, rpc};
use parking_lot::{Mutex, RwLock};
use prost::Message as _;

use crate::apply::{LogPosition, Records, fits};
use crate::backend::{Home, Piece, Table, View, Walk};
use crate::error::{Error, ErrorKind};
use crate::etcd_file::{AUTH_ENABLED, AUTH_REVISION, Auth};
use crate::export::Export;
use crate::failpoint::{self, Point};
use crate::lease::{LeaseChange, LeaseId, LeaseInfo, Lessor};
use crate::mvcc::{Count, Horizon, Index, Revision, RowKey, hash_at, key_value, range, txn};

/// Hashes of compactions that are kept.
const HASHES_MAX: usize = 10;
/// How often a read starts again because a compaction or a snapshot overtook it.
const READ_ATTEMPTS_MAX: usize = 16;

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

/// What readers see: replaced as a whole after each batch.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) horizon: Horizon,
    pub(crate) view: View,
    pub(crate) applied: Option<LogPosition>,
    pub(crate) records: Records,
    pub(crate) in_use: u64,
    pub(crate) home: Home,
}

#[derive(Debug, Default)]
struct Counters {
    puts: AtomicU64,
    deletes: AtomicU64,
    ranges: AtomicU64,
    txns: AtomicU64,
    events: AtomicU64,
    put_bytes: AtomicU64,
    compacted_rows: AtomicU64,
    leases_granted: AtomicU64,
    leases_revoked: AtomicU64,
}

/// The read side of the state.
#[derive(Debug)]
pub struct State {
    /// Also holds revisions that are not published yet: look things up at a revision.
    pub(crate) index: RwLock<Index>,
    pub(crate) lessor: RwLock<Lessor>,
    published: ArcSwap<Published>,
    quota: i64,
    hashes: Mutex<Vec<HashKv>>,
    damage: Mutex<Option<String>>,
    counters: Counters,
}

impl State {
    pub(crate) fn new(index: Index, lessor: Lessor, published: Published, quota: i64) -> Self {
        Self {
            index: RwLock::new(index),
            lessor: RwLock::new(lessor),
            published: ArcSwap::from_pointee(published),
            quota,
            hashes: Mutex::default(),
            damage: Mutex::default(),
            counters: Counters::default(),
        }
    }

    pub(crate) fn published(&self) -> Arc<Published> {
        self.published.load_full()
    }

    pub(crate) fn publish(&self, published: Published) {
        self.published.store(Arc::new(published));
    }

    /// Puts another state in the place of this one. Readers that are half-way start again.
    pub(crate) fn replace(&self, index: Index, lessor: Lessor, published: Published) {
        let mut old_index = self.index.write();
        *old_index = index;
        *self.lessor.write() = lessor;
        self.hashes.lock().clear();
        self.publish(published);
    }

    pub(crate) fn quota(&self) -> i64 {
        self.quota
    }

    /// Latches damage that a read or a write has found.
    pub(crate) fn note(&self, error: &Error) {
        if error.kind() == ErrorKind::Corrupt {
            self.damage.lock().get_or_insert_with(|| error.to_string());
        }
    }

    /// Reads what is published; again when a compaction or a snapshot overtook the reader.
    fn read<T>(&self, mut work: impl FnMut(&Published) -> Result<T, Error>) -> Result<T, Error> {
        let mut published = self.published.load_full();
        for _ in 0..READ_ATTEMPTS_MAX {
            let result = work(&published);
            if !matches!(result, Err(Error::Compacted)) {
                return result.inspect_err(|error| self.note(error));
            }
            let newer = self.published.load_full();
            if Arc::ptr_eq(&newer, &published) {
                return result;
            }
            published = newer;
        }
        Err(Error::Compacted)
    }

    /// Reads a range at the published revision; the header carries the revision only.
    pub fn range(&self, request: &rpc::RangeRequest) -> Result<rpc::RangeResponse, Error> {
        self.ranged(request, Count::Total)
    }

    /// As [`State::range`], but `count` counts no further than the limit: for streamed pages.
    pub fn range_page(&self, request: &rpc::RangeRequest) -> Result<rpc::RangeResponse, Error> {
        self.ranged(request, Count::Page)
    }

    fn ranged(
        &self,
        request: &rpc::RangeRequest,
        count: Count,
    ) -> Result<rpc::RangeResponse, Error> {
        add(&self.counters.ranges, 1);
        self.read(|published| {
            range(
                &self.index,
                &mut &published.view,
                published.horizon,
                request,
                count,
            )
        })
    }

    /// A transaction of ranges only, all at one revision.
    pub fn txn(&self, request: &rpc::TxnRequest) -> Result<rpc::TxnResponse, Error> {
        add(&self.counters.txns, 1);
        self.read(|published| {
            txn::read_only(
                &self.index,
                &mut &published.view,
                published.horizon,
                request,
            )
        })
    }

    /// The published revision.
    pub fn revision(&self) -> i64 {
        self.published.load().horizon.current
    }

    /// The revision of the last compaction; -1: never compacted.
    pub fn compact_revision(&self) -> i64 {
        self.published.load().horizon.compacted
    }

    /// The last log entry that readers see.
    pub fn applied(&self) -> Option<LogPosition> {
        self.published.load().applied
    }

    /// HashKV at a revision (0: the current one), by etcd's rules.
    pub fn hash_kv(&self, revision: i64) -> Result<HashKv, Error> {
        let stored = self
            .hashes
            .lock()
            .iter()
            .find(|hash| hash.hash_revision == revision)
            .copied();
        if let Some(stored) = stored {
            return Ok(HashKv {
                current_revision: self.revision(),
                ..stored
            });
        }
        self.read(|published| {
            let Horizon {
                current,
                compacted,
                epoch,
            } = published.horizon;
            if revision > 0 && revision < compacted {
                return Err(Error::Compacted);
            }
            if revision > current {
                return Err(Error::FutureRevision);
            }
            let at = if revision <= 0 { current } else { revision };
            let is_newest = failpoint::is_on(Point::BugHashOfNewest);
            let hashed = if is_newest { current } else { at };
            let hash = hash_at(&self.index, &published.view, compacted, hashed, epoch)?;
            Ok(HashKv {
                hash,
                compact_revision: compacted,
                hash_revision: at,
                current_revision: current,
            })
        })
    }

    /// The hashes that the last compactions left, the newest first.
    pub fn compaction_hashes(&self) -> Vec<HashKv> {
        let mut hashes = self.hashes.lock().clone();
        hashes.sort_by_key(|hash| std::cmp::Reverse(hash.hash_revision));
        hashes
    }

    /// Keeps the hash that a compaction found. Of one at revision 0, which is before all others,
    /// there is nothing to compare, and asking for revision 0 is asking for the current one.
    pub(crate) fn store_hash(&self, hash: u32, compact_revision: i64, hash_revision: i64) {
        if hash_revision == 0 {
            return;
        }
        let mut hashes = self.hashes.lock();
        let current_revision = hash_revision;
        hashes.push(HashKv {
            hash,
            compact_revision,
            hash_revision,
            current_revision,
        });
        if hashes.len() > HASHES_MAX {
            hashes.remove(0);
        }
    }

    /// CRC-32C over all tables, by the rules of etcd's Hash.
    pub fn hash(&self) -> Result<u32, Error> {
        self.read(|published| {
            let mut sum = 0;
            for table in Table::ETCD {
                sum = crc32c::crc32c_append(sum, table.name().as_bytes());
                published.view.scan_all(table, |key, value| {
                    sum = crc32c::crc32c_append(sum, key);
                    sum = crc32c::crc32c_append(sum, value);
                    Ok(())
                })?;
            }
            Ok(sum)
        })
    }

    /// All leases, by id.
    pub fn leases(&self) -> Vec<LeaseId> {
        self.lessor.read().ids()
    }

    /// All leases without their keys; what a new leader's clock needs.
    pub fn lease_infos(&self) -> Vec<LeaseInfo> {
        self.lessor.read().infos()
    }

    /// One lease with its keys.
    pub fn lease(&self, id: LeaseId) -> Option<LeaseInfo> {
        self.lessor.read().info(id)
    }

    /// Active alarms.
    pub fn alarms(&self) -> Vec<rpc::AlarmMember> {
        self.published.load().records.alarms.clone()
    }

    /// Members, by id.
    pub fn members(&self) -> Vec<MemberRecord> {
        self.published.load().records.members.clone()
    }

    /// Whether a member of this id was removed: it never comes back.
    pub fn is_removed(&self, id: u64) -> bool {
        self.published.load().records.removed.contains(&id)
    }

    /// Ids of members that were removed.
    pub fn removed_members(&self) -> BTreeSet<u64> {
        self.published.load().records.removed.clone()
    }

    /// The version the whole cluster speaks, as `3.7.0`.
    pub fn cluster_version(&self) -> Option<String> {
        self.published.load().records.cluster_version.clone()
    }

    /// Whether the data has authentication enabled.
    pub fn is_auth_enabled(&self) -> bool {
        self.published.load().records.is_auth_enabled
    }

    /// Users, roles and whether they are in force, read from the tables.
    pub fn auth(&self) -> Result<Auth, Error> {
        let published = self.published.load();
        let view = &published.view;
        let rows = |table| {
            let mut rows = Vec::new();
            view.scan_all(table, |key, value| {
                rows.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
                Ok(())
            })?;
            Ok::<_, Error>(rows)
        };
        Auth::from_rows(
            view.get(Table::Auth, AUTH_ENABLED)?.as_deref(),
            view.get(Table::Auth, AUTH_REVISION)?.as_deref(),
            &rows(Table::AuthUsers)?,
            &rows(Table::AuthRoles)?,
        )
    }

    /// Sizes on disk and of the data.
    pub fn sizes(&self) -> Sizes {
        use std::os::unix::fs::MetadataExt as _;
        let published = self.published.load();
        let on_disk = match &published.home {
            Home::Path(path, _) => {
                // A size that cannot be had is no reason to fail: say what the data takes.
                std::fs::metadata(path)
                    .ok()
                    .map(|metadata| metadata.blocks().saturating_mul(512))
            }
            Home::Detached => None,
        };
        let in_use = published.in_use;
        Sizes {
            total: on_disk.unwrap_or(in_use).max(in_use),
            in_use,
            quota: self.quota,
        }
    }

    /// Whether a request that adds about `cost` bytes fits into the quota.
    pub fn has_space_for(&self, cost: u64) -> bool {
        fits(self.quota, self.published.load().in_use, cost)
    }

    /// Events of the revisions `from..=to`, whole revisions only, about `limit_bytes` of them but
    /// at least one revision. `Compacted` when `from` is before the last compaction.
    pub fn events(&self, from: i64, to: i64, limit_bytes: usize) -> Result<EventBatch, Error> {
        let published = self.published.load_full();
        if from < published.horizon.compacted {
            return Err(Error::Compacted);
        }
        let to = to.min(published.horizon.current);
        let mut batch = EventBatch {
            events: Vec::new(),
            next: to.saturating_add(1).max(from),
        };
        let mut bytes = 0_usize;
        let mut newest = 0;
        let first = Revision::new(from.max(0), 0).encode();
        let end = Revision::new(to.saturating_add(1).max(0), 0).encode();
        if first >= end {
            return Ok(batch);
        }
        let bounds = (
            Bound::Included(first.as_slice()),
            Bound::Excluded(end.as_slice()),
        );
        published
            .view
            .scan(Table::Key, bounds, |key, value, _sum| {
                let (row, event) = event(key, value)?;
                if row.revision.main != newest && bytes >= limit_bytes && newest != 0 {
                    batch.next = row.revision.main;
                    return Ok(false);
                }
                newest = row.revision.main;
                bytes = bytes.saturating_add(value.len());
                batch.events.push(event);
                Ok(true)
            })
            .inspect_err(|error| self.note(error))?;
        Ok(batch)
    }

    /// The key's value just before `revision`; `None` when there was none or it is compacted.
    pub fn previous(&self, key: &[u8], revision: i64) -> Result<Option<kv::KeyValue>, Error> {
        let published = self.published.load_full();
        let at = revision.saturating_sub(1);
        let found = {
            let index = self.index.read();
            let is_gone = at < index.compacted() || index.epoch() != published.horizon.epoch;
            if is_gone { None } else { index.get(key, at) }
        };
        found
            .map(|found| key_value(&mut &published.view, found.modified))
            .transpose()
            .inspect_err(|error| self.note(error))
    }

    /// A consistent view of everything, for a snapshot.
    pub fn export(&self) -> Result<Export, Error> {
        Ok(Export::new(self.published.load_full()))
    }

    /// Verifies some more rows of a walk over all of them, on a view held no longer than that.
    pub(crate) fn scrub(&self, walk: &mut Walk, bytes_max: u64) -> Result<Piece, Error> {
        let published = self.published.load_full();
        walk.step(&published.view, bytes_max)
            .inspect_err(|error| self.note(error))
    }

    /// What was found damaged so far, if anything: raise the CORRUPT alarm then.
    pub fn damage(&self) -> Option<String> {
        self.damage.lock().clone()
    }

    /// Counters since start.
    pub fn metrics(&self) -> CoreCounters {
        let counters = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CoreCounters {
            puts: get(&counters.puts),
            deletes: get(&counters.deletes),
            ranges: get(&counters.ranges),
            txns: get(&counters.txns),
            events: get(&counters.events),
            keys: self.index.read().live(),
            put_bytes: get(&counters.put_bytes),
            compacted_rows: get(&counters.compacted_rows),
            leases_granted: get(&counters.leases_granted),
            leases_revoked: get(&counters.leases_revoked),
        }
    }

    pub(crate) fn count(&self, changes: &[(i64, Vec<kv::Event>)], leases: &[LeaseChange]) {
        let (mut puts, mut deletes, mut bytes, mut txns) = (0, 0, 0, 0);
        for (_, events) in changes {
            txns += u64::from(events.len() > 1);
            for event in events {
                if event.r#type == i32::from(EventType::Put) {
                    puts += 1;
                    let kv = event.kv.as_ref();
                    let length = kv.map_or(0, |kv| kv.key.len() + kv.value.len());
                    bytes += u64::try_from(length).unwrap_or(0);
                } else {
                    deletes += 1;
                }
            }
        }
        add(&self.counters.puts, puts);
        add(&self.counters.deletes, deletes);
        add(&self.counters.events, puts + deletes);
        add(&self.counters.put_bytes, bytes);
        add(&self.counters.txns, txns);
        for change in leases {
            match change {
                LeaseChange::Granted { .. } => add(&self.counters.leases_granted, 1),
                LeaseChange::Revoked { .. } => add(&self.counters.leases_revoked, 1),
                LeaseChange::Checkpointed { .. } | LeaseChange::Replaced => {}
            }
        }
    }

    pub(crate) fn count_compacted(&self, rows: u64) {
        add(&self.counters.compacted_rows, rows);
    }
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// A row as an event.
fn event(key: &[u8], value: &[u8]) -> Result<(RowKey, kv::Event), Error> {
    let wrong = |reason| Error::Record {
        table: Table::Key.name(),
        key: hex::encode(key),
        reason,
    };
    let row = RowKey::decode(key).ok_or_else(|| wrong("not a revision"))?;
    let record = Bytes::copy_from_slice(value);
    let mut stored =
        kv::KeyValue::decode(record).map_err(|_undecodable| wrong("not a key-value"))?;
    let kind = if row.is_tombstone {
        stored.mod_revision = row.revision.main;
        EventType::Delete
    } else {
        EventType::Put
    };
    Ok((
        row,
        kv::Event {
            r#type: kind.into(),
            kv: Some(stored),
            prev_kv: None,
        },
    ))
}
