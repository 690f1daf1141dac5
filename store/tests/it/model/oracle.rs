//! History as a list of whole maps: slow, obvious, and independent of the store.
#![expect(
    clippy::unwrap_used,
    clippy::panic_in_result_fn,
    clippy::unnecessary_wraps,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use holdfast_proto::etcd::kv::{Event, KeyValue};
use holdfast_proto::etcd::rpc;
use holdfast_proto::etcd::rpc::compare::TargetUnion;
use holdfast_proto::etcd::rpc::request_op::Request as Op;
use holdfast_proto::etcd::rpc::response_op::Response as Answer;
use holdfast_proto::store::v1::command::Request;
use holdfast_store::Error;
use holdfast_store::apply::Response;

type Keys = BTreeMap<Bytes, KeyValue>;

#[derive(Debug, Clone)]
pub(super) struct Oracle {
    /// By revision, from 1 on.
    history: Vec<Keys>,
    events: Vec<Vec<Event>>,
    compacted: i64,
    leases: BTreeSet<i64>,
}

impl Oracle {
    pub(super) fn new() -> Self {
        Self {
            history: vec![Keys::new()],
            events: vec![Vec::new()],
            compacted: -1,
            leases: BTreeSet::new(),
        }
    }

    pub(super) fn revision(&self) -> i64 {
        i64::try_from(self.history.len()).unwrap()
    }

    pub(super) fn compacted(&self) -> i64 {
        self.compacted
    }

    pub(super) fn at(&self, revision: i64) -> Option<&Keys> {
        self.history.get(usize::try_from(revision - 1).ok()?)
    }

    pub(super) fn events(&self, from: i64) -> Vec<Event> {
        let from = usize::try_from(from - 1).unwrap();
        self.events.iter().skip(from).flatten().cloned().collect()
    }

    pub(super) fn lease_keys(&self, id: i64) -> Vec<Bytes> {
        let newest = self.history.last().unwrap();
        newest
            .values()
            .filter(|kv| kv.lease == id)
            .map(|kv| kv.key.clone())
            .collect()
    }

    pub(super) fn range(&self, request: &rpc::RangeRequest) -> Result<rpc::RangeResponse, Error> {
        let newest = self.history.last().unwrap();
        self.range_in(request, newest, self.revision())
    }

    /// A range where the newest keys are `newest`, at `current`.
    fn range_in(
        &self,
        request: &rpc::RangeRequest,
        newest: &Keys,
        current: i64,
    ) -> Result<rpc::RangeResponse, Error> {
        if request.revision > current {
            return Err(Error::FutureRevision);
        }
        let at = if request.revision > 0 {
            request.revision
        } else {
            current
        };
        if at < self.compacted {
            return Err(Error::Compacted);
        }
        let keys = if at == current {
            newest
        } else {
            self.at(at).unwrap()
        };
        let all: Vec<KeyValue> = keys
            .values()
            .filter(|kv| contains(&request.key, &request.range_end, &kv.key))
            .cloned()
            .collect();
        let header = header(current);
        let count = i64::try_from(all.len()).unwrap();
        if request.count_only {
            return Ok(rpc::RangeResponse {
                header,
                count,
                ..rpc::RangeResponse::default()
            });
        }
        let (kvs, more) = shape(request, all);
        Ok(rpc::RangeResponse {
            header,
            kvs,
            more,
            count,
        })
    }

    pub(super) fn apply(&mut self, request: &Request) -> Result<Response, Error> {
        let mut draft = Draft {
            keys: self.history.last().unwrap().clone(),
            events: Vec::new(),
            oracle: self.clone(),
        };
        let mut response = match request {
            Request::Put(put) => draft.put(put).map(Response::Put)?,
            Request::DeleteRange(delete) => Response::DeleteRange(draft.delete(delete)),
            Request::Txn(txn) => {
                let base = draft.keys.clone();
                let mut response = draft.txn(txn, &base)?;
                response.header = header(draft.current());
                Response::Txn(response)
            }
            Request::Compact(compact) => {
                if compact.revision <= self.compacted {
                    return Err(Error::Compacted);
                }
                if compact.revision > self.revision() {
                    return Err(Error::FutureRevision);
                }
                self.compacted = compact.revision;
                Response::Compact(rpc::CompactionResponse { header: None })
            }
            Request::LeaseGrant(grant) => {
                if !self.leases.insert(grant.id) {
                    return Err(Error::LeaseExists);
                }
                Response::LeaseGrant(rpc::LeaseGrantResponse {
                    header: None,
                    id: grant.id,
                    ttl: grant.ttl,
                    error: String::new(),
                })
            }
            Request::LeaseRevoke(revoke) => {
                if !self.leases.remove(&revoke.id) {
                    return Err(Error::LeaseNotFound);
                }
                for key in self.lease_keys(revoke.id) {
                    draft.remove(&key);
                }
                Response::LeaseRevoke(rpc::LeaseRevokeResponse { header: None })
            }
            other => panic!("the model does not know {other:?}"),
        };
        let (keys, events, revision) = (draft.keys, draft.events, self.revision());
        if !events.is_empty() {
            self.history.push(keys);
            self.events.push(events);
        }
        let newest = if self.revision() > revision {
            revision + 1
        } else {
            revision
        };
        match &mut response {
            Response::Compact(response) => response.header = header(newest),
            Response::LeaseGrant(response) => response.header = header(newest),
            Response::LeaseRevoke(response) => response.header = header(newest),
            _ => {}
        }
        Ok(response)
    }
}

fn header(revision: i64) -> Option<rpc::ResponseHeader> {
    Some(rpc::ResponseHeader {
        revision,
        ..rpc::ResponseHeader::default()
    })
}

fn contains(from: &[u8], end: &[u8], key: &[u8]) -> bool {
    match end {
        [] => key == from,
        [0] => key >= from,
        end => key >= from && key < end,
    }
}

/// Limit, filters, order and fields as etcd applies them, in etcd's order.
fn shape(request: &rpc::RangeRequest, mut kvs: Vec<KeyValue>) -> (Vec<KeyValue>, bool) {
    let has_filter = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ]
    .iter()
    .any(|&bound| bound != 0);
    let (order, target) = (request.sort_order, request.sort_target);
    let is_native = order == 0 || (target == 0 && order == 1);
    let limit = usize::try_from(request.limit).unwrap();
    if limit > 0 && is_native && !has_filter {
        kvs.truncate(limit + 1);
    }
    let keep =
        |value: i64, min: i64, max: i64| (min == 0 || value >= min) && (max == 0 || value <= max);
    kvs.retain(|kv| {
        keep(
            kv.mod_revision,
            request.min_mod_revision,
            request.max_mod_revision,
        ) && keep(
            kv.create_revision,
            request.min_create_revision,
            request.max_create_revision,
        )
    });
    match target {
        1 => kvs.sort_by_key(|kv| kv.version),
        2 => kvs.sort_by_key(|kv| kv.create_revision),
        3 => kvs.sort_by_key(|kv| kv.mod_revision),
        4 => kvs.sort_by_key(|kv| kv.value.clone()),
        _ => {}
    }
    if order == 2 {
        // Descending, but equal elements stay in the order of their keys.
        let rank = |kv: &KeyValue| match target {
            1 => (kv.version, Bytes::new()),
            2 => (kv.create_revision, Bytes::new()),
            3 => (kv.mod_revision, Bytes::new()),
            4 => (0, kv.value.clone()),
            _ => (0, kv.key.clone()),
        };
        kvs.sort_by_key(|kv| std::cmp::Reverse(rank(kv)));
    }
    let more = limit > 0 && kvs.len() > limit;
    if more {
        kvs.truncate(limit);
    }
    if request.keys_only {
        for kv in &mut kvs {
            kv.value = Bytes::new();
            if target != 4 {
                kv.lease = 0;
            }
        }
    }
    (kvs, more)
}

/// A request under way.
struct Draft {
    keys: Keys,
    events: Vec<Event>,
    oracle: Oracle,
}

impl Draft {
    fn current(&self) -> i64 {
        self.oracle.revision() + i64::from(!self.events.is_empty())
    }

    fn put(&mut self, put: &rpc::PutRequest) -> Result<rpc::PutResponse, Error> {
        if put.lease != 0 && !self.oracle.leases.contains(&put.lease) {
            return Err(Error::LeaseNotFound);
        }
        let before = self.keys.get(&put.key).cloned();
        let revision = self.oracle.revision() + 1;
        let (mut value, mut lease) = (put.value.clone(), put.lease);
        if put.ignore_value || put.ignore_lease {
            let before = before.as_ref().ok_or(Error::KeyNotFound)?;
            if put.ignore_value {
                value = before.value.clone();
            }
            if put.ignore_lease {
                lease = before.lease;
            }
        }
        let kv = KeyValue {
            key: put.key.clone(),
            create_revision: before
                .as_ref()
                .map_or(revision, |before| before.create_revision),
            mod_revision: revision,
            version: before.as_ref().map_or(1, |before| before.version + 1),
            value,
            lease,
        };
        self.keys.insert(put.key.clone(), kv.clone());
        self.events.push(Event {
            r#type: 0,
            kv: Some(kv),
            prev_kv: None,
        });
        let prev_kv = before.filter(|_| put.prev_kv);
        Ok(rpc::PutResponse {
            header: header(self.current()),
            prev_kv,
        })
    }

    fn remove(&mut self, key: &Bytes) -> KeyValue {
        let gone = self.keys.remove(key).unwrap();
        let mod_revision = self.oracle.revision() + 1;
        let kv = KeyValue {
            key: key.clone(),
            mod_revision,
            ..KeyValue::default()
        };
        self.events.push(Event {
            r#type: 1,
            kv: Some(kv),
            prev_kv: None,
        });
        gone
    }

    fn delete(&mut self, delete: &rpc::DeleteRangeRequest) -> rpc::DeleteRangeResponse {
        let doomed: Vec<Bytes> = self
            .keys
            .keys()
            .filter(|key| contains(&delete.key, &delete.range_end, key))
            .cloned()
            .collect();
        let gone: Vec<KeyValue> = doomed.iter().map(|key| self.remove(key)).collect();
        rpc::DeleteRangeResponse {
            header: header(self.current()),
            deleted: i64::try_from(gone.len()).unwrap(),
            prev_kvs: if delete.prev_kv { gone } else { Vec::new() },
        }
    }

    /// `base` is what comparisons and checks of revisions see: the keys before the transaction.
    fn txn(&mut self, txn: &rpc::TxnRequest, base: &Keys) -> Result<rpc::TxnResponse, Error> {
        let succeeded = txn.compare.iter().all(|compare| holds(compare, base));
        let ops = if succeeded {
            &txn.success
        } else {
            &txn.failure
        };
        let mut responses = Vec::new();
        for op in ops {
            let response = match op.request.as_ref().unwrap() {
                Op::RequestPut(put) => Answer::ResponsePut(self.put(put)?),
                Op::RequestDeleteRange(delete) => Answer::ResponseDeleteRange(self.delete(delete)),
                Op::RequestTxn(txn) => Answer::ResponseTxn(self.txn(txn, base)?),
                Op::RequestRange(range) => {
                    // Checked against the revision before the transaction.
                    if range.revision > self.oracle.revision() {
                        return Err(Error::FutureRevision);
                    }
                    let answer = self.oracle.range_in(range, &self.keys, self.current())?;
                    Answer::ResponseRange(answer)
                }
            };
            responses.push(rpc::ResponseOp {
                response: Some(response),
            });
        }
        let header = Some(rpc::ResponseHeader::default());
        Ok(rpc::TxnResponse {
            header,
            succeeded,
            responses,
        })
    }
}

fn holds(compare: &rpc::Compare, keys: &Keys) -> bool {
    let mut meant: Vec<KeyValue> = keys
        .values()
        .filter(|kv| contains(&compare.key, &compare.range_end, &kv.key))
        .cloned()
        .collect();
    if meant.is_empty() {
        if compare.target == 3 {
            return false;
        }
        meant.push(KeyValue::default());
    }
    meant.iter().all(|kv| {
        let order = match compare.target_union.as_ref().unwrap() {
            TargetUnion::Version(given) => kv.version.cmp(given),
            TargetUnion::CreateRevision(given) => kv.create_revision.cmp(given),
            TargetUnion::ModRevision(given) => kv.mod_revision.cmp(given),
            TargetUnion::Value(given) => kv.value.cmp(given),
            TargetUnion::Lease(given) => kv.lease.cmp(given),
        };
        match compare.result {
            0 => order.is_eq(),
            1 => order.is_gt(),
            2 => order.is_lt(),
            _ => order.is_ne(),
        }
    })
}
