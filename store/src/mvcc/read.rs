//! Ranges, as etcd 3.7 answers them.

use std::ops::Bound;

use bytes::Bytes;
use holdfast_proto::etcd::kv::KeyValue;
use holdfast_proto::etcd::rpc::range_request::{SortOrder, SortTarget};
use holdfast_proto::etcd::rpc::{RangeRequest, RangeResponse, ResponseHeader};
use parking_lot::{RwLock, RwLockReadGuard};
use prost::Message as _;

use crate::backend::{Rows, Table, View};
use crate::error::Error;

use super::index::{Index, Span};
use super::key_index::Found;
use super::revision::Revision;

/// Keys of the index looked at under one hold of its lock.
const STEPS: usize = 2_000;

/// Where values come from.
pub(crate) trait Values {
    /// The record of a put at `revision`.
    fn value(&mut self, revision: Revision) -> Result<Option<Bytes>, Error>;
}

impl Values for &View {
    fn value(&mut self, revision: Revision) -> Result<Option<Bytes>, Error> {
        self.key_row(&revision.encode())
    }
}

impl Values for Rows<'_> {
    fn value(&mut self, revision: Revision) -> Result<Option<Bytes>, Error> {
        self.get(Table::Key, &revision.encode())
    }
}

/// Reads the key-value at `revision`, which the index says is there.
pub(crate) fn key_value(values: &mut impl Values, revision: Revision) -> Result<KeyValue, Error> {
    let record = values
        .value(revision)?
        .ok_or_else(|| wrong(revision, "missing"))?;
    KeyValue::decode(record).map_err(|_undecodable| wrong(revision, "not a key-value"))
}

fn wrong(revision: Revision, reason: &'static str) -> Error {
    Error::Record {
        table: Table::Key.name(),
        key: hex::encode(revision.encode()),
        reason,
    }
}

/// What a reader may see.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Horizon {
    /// The newest revision.
    pub(crate) current: i64,
    /// The last compaction; negative: none.
    pub(crate) compacted: i64,
    /// The index this was taken from.
    pub(crate) epoch: u64,
}

impl Horizon {
    /// The revision a request means.
    pub(crate) fn resolve(self, revision: i64) -> Result<i64, Error> {
        if revision > self.current {
            return Err(Error::FutureRevision);
        }
        let at = if revision <= 0 {
            self.current
        } else {
            revision
        };
        if at < self.compacted {
            Err(Error::Compacted)
        } else {
            Ok(at)
        }
    }
}

/// How a range is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// `count` is the number of all keys of the span.
    Total,
    /// `count` stops at the limit.
    Page,
}

/// Answers a range. `Compacted` also when a compaction overtakes the reader.
pub(crate) fn range(
    index: &RwLock<Index>,
    values: &mut impl Values,
    horizon: Horizon,
    request: &RangeRequest,
    count: Count,
) -> Result<RangeResponse, Error> {
    let at = horizon.resolve(request.revision)?;
    let order = Order::of(request)?;
    let span = Span::new(&request.key, &request.range_end);
    let reach = Reach {
        at,
        epoch: horizon.epoch,
    };
    let header = ResponseHeader {
        revision: horizon.current,
        ..ResponseHeader::default()
    };
    if request.count_only {
        let total = reach.count(index, span, None)?;
        return Ok(RangeResponse {
            header: Some(header),
            count: total,
            ..RangeResponse::default()
        });
    }
    let limit = order.limit(request);
    let select = Select {
        limit,
        counts_all: count == Count::Total,
    };
    let (mut kvs, total) = if request.keys_only && order.target != SortTarget::Value {
        keys_only(index, reach, span, select)?
    } else {
        let mut revisions = Vec::new();
        let total = reach.select(index, span, select, |_key, found| {
            revisions.push(found.modified);
        })?;
        let kvs: Result<Vec<_>, _> = revisions
            .into_iter()
            .map(|revision| key_value(values, revision))
            .collect();
        (kvs?, total)
    };
    filter(&mut kvs, request);
    order.sort(&mut kvs);
    let mut more = false;
    if let Ok(limit) = usize::try_from(request.limit)
        && limit > 0
        && kvs.len() > limit
    {
        kvs.truncate(limit);
        more = true;
    }
    if request.keys_only {
        for kv in &mut kvs {
            kv.value = Bytes::new();
        }
    }
    Ok(RangeResponse {
        header: Some(header),
        kvs,
        more,
        count: total,
    })
}

/// Keys without values, from the index alone; as in etcd they carry no lease.
fn keys_only(
    index: &RwLock<Index>,
    reach: Reach,
    span: Span<'_>,
    select: Select,
) -> Result<(Vec<KeyValue>, i64), Error> {
    let mut kvs = Vec::new();
    let total = reach.select(index, span, select, |key, found| {
        kvs.push(KeyValue {
            key: Bytes::copy_from_slice(key),
            create_revision: found.created,
            mod_revision: found.modified.main,
            version: found.version,
            ..KeyValue::default()
        });
    })?;
    Ok((kvs, total))
}

/// At which revision of which index to read.
#[derive(Debug, Clone, Copy)]
struct Reach {
    at: i64,
    epoch: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Select {
    /// 0: no limit.
    limit: usize,
    counts_all: bool,
}

impl Reach {
    /// Calls `take` with the first keys of the span, up to the limit, and counts them all if so
    /// asked. Holds the lock for a bounded number of keys at a time.
    fn select(
        self,
        index: &RwLock<Index>,
        span: Span<'_>,
        select: Select,
        mut take: impl FnMut(&[u8], Found),
    ) -> Result<i64, Error> {
        let mut total = 0_usize;
        let mut last_taken: Option<Box<[u8]>> = None;
        let mut after: Option<Box<[u8]>> = None;
        loop {
            let index = self.lock(index)?;
            after = index.visit(span, after.as_deref(), self.at, STEPS, |key, found| {
                take(key, found);
                total += 1;
                let is_full = select.limit > 0 && total >= select.limit;
                if is_full {
                    last_taken = Some(key.into());
                }
                !is_full
            });
            if after.is_none() || last_taken.is_some() {
                break;
            }
        }
        let total = i64::try_from(total).unwrap_or(i64::MAX);
        match last_taken {
            Some(last) if select.counts_all => {
                let rest = self.count(index, span, Some(&last))?;
                Ok(total.saturating_add(rest))
            }
            _ => Ok(total),
        }
    }

    /// Counts the keys of the span, or those after one of them. Holds the lock for a bounded
    /// number of keys or blocks of them at a time.
    fn count(
        self,
        index: &RwLock<Index>,
        span: Span<'_>,
        after: Option<&[u8]>,
    ) -> Result<i64, Error> {
        if let (Span::One(_), Some(_)) = (span, after) {
            return Ok(0);
        }
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut total, mut next) = self.lock(index)?.count(span, start, self.at, STEPS);
        while let Some(from) = next {
            let start = Bound::Included(&*from);
            let (more, then) = self.lock(index)?.count(span, start, self.at, STEPS);
            total += more;
            next = then;
        }
        Ok(i64::try_from(total).unwrap_or(i64::MAX))
    }

    /// The index as this reader may see it.
    fn lock(self, index: &RwLock<Index>) -> Result<RwLockReadGuard<'_, Index>, Error> {
        let index = index.read();
        if index.compacted() > self.at || index.epoch() != self.epoch {
            return Err(Error::Compacted);
        }
        Ok(index)
    }
}

/// The keys of a span that exist at the newest revision.
pub(crate) fn keys_at(
    index: &RwLock<Index>,
    horizon: Horizon,
    span: Span<'_>,
) -> Result<Vec<Box<[u8]>>, Error> {
    let mut keys = Vec::new();
    let reach = Reach {
        at: horizon.current,
        epoch: horizon.epoch,
    };
    reach.select(index, span, Select::default(), |key, _found| {
        keys.push(key.into());
    })?;
    Ok(keys)
}

#[derive(Debug, Clone, Copy)]
struct Order {
    order: SortOrder,
    target: SortTarget,
}

impl Order {
    fn of(request: &RangeRequest) -> Result<Self, Error> {
        let order =
            SortOrder::try_from(request.sort_order).map_err(|_unknown| Error::InvalidSortOption)?;
        let target = SortTarget::try_from(request.sort_target)
            .map_err(|_unknown| Error::InvalidSortOption)?;
        Ok(Self { order, target })
    }

    /// Whether the index already yields this order.
    fn is_native(self) -> bool {
        self.order == SortOrder::None
            || (self.target == SortTarget::Key && self.order == SortOrder::Ascend)
    }

    /// How many keys to look for: one more than asked tells whether there are more. What is
    /// sorted or filtered has to be read whole.
    fn limit(self, request: &RangeRequest) -> usize {
        let has_filters = request.min_mod_revision != 0
            || request.max_mod_revision != 0
            || request.min_create_revision != 0
            || request.max_create_revision != 0;
        if !self.is_native() || has_filters {
            return 0;
        }
        usize::try_from(request.limit)
            .ok()
            .filter(|&limit| limit > 0)
            .map_or(0, |limit| limit.saturating_add(1))
    }

    fn sort(self, kvs: &mut [KeyValue]) {
        let order = if self.target != SortTarget::Key && self.order == SortOrder::None {
            SortOrder::Ascend
        } else {
            self.order
        };
        if (Self { order, ..self }).is_native() {
            return;
        }
        let compare = |left: &KeyValue, right: &KeyValue| match self.target {
            SortTarget::Key => left.key.cmp(&right.key),
            SortTarget::Version => left.version.cmp(&right.version),
            SortTarget::Create => left.create_revision.cmp(&right.create_revision),
            SortTarget::Mod => left.mod_revision.cmp(&right.mod_revision),
            SortTarget::Value => left.value.cmp(&right.value),
        };
        if order == SortOrder::Descend {
            kvs.sort_by(|left, right| compare(right, left));
        } else {
            kvs.sort_by(compare);
        }
    }
}

fn filter(kvs: &mut Vec<KeyValue>, request: &RangeRequest) {
    let within =
        |value: i64, min: i64, max: i64| (min == 0 || value >= min) && (max == 0 || value <= max);
    kvs.retain(|kv| {
        within(
            kv.mod_revision,
            request.min_mod_revision,
            request.max_mod_revision,
        ) && within(
            kv.create_revision,
            request.min_create_revision,
            request.max_create_revision,
        )
    });
}
