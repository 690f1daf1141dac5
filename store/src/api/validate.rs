//! What makes a request wrong by itself, before anything is read or written: etcd's rules.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use holdfast_proto::etcd::rpc::{
    self, RangeRequest, TxnRequest, range_request::SortOrder, range_request::SortTarget,
    request_op::Request,
};
use prost::Message;
use tonic::Status;

use super::status::status;
use crate::error::Error;

/// Refuses a request larger than the limit.
pub(super) fn size(request: &impl Message, bytes_max: usize) -> Result<(), Error> {
    if request.encoded_len() > bytes_max {
        Err(Error::RequestTooLarge)
    } else {
        Ok(())
    }
}

pub(super) fn range(request: &RangeRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    let is_known = SortOrder::try_from(request.sort_order).is_ok()
        && SortTarget::try_from(request.sort_target).is_ok();
    if is_known {
        Ok(())
    } else {
        Err(Error::InvalidSortOption)
    }
}

/// A streamed range is in the order of keys and unfiltered.
pub(super) fn range_stream(request: &RangeRequest) -> Result<(), Status> {
    range(request).map_err(|error| status(&error))?;
    let is_default_order = request.sort_order() == SortOrder::None
        || (request.sort_order() == SortOrder::Ascend && request.sort_target() == SortTarget::Key);
    if !is_default_order {
        return Err(Status::unimplemented(
            "RangeStream does not support custom sort orders",
        ));
    }
    let has_filters = request.min_mod_revision != 0
        || request.max_mod_revision != 0
        || request.min_create_revision != 0
        || request.max_create_revision != 0;
    if has_filters {
        return Err(Status::unimplemented(
            "RangeStream does not support revision filters",
        ));
    }
    Ok(())
}

pub(super) fn put(request: &rpc::PutRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(Error::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Error::LeaseProvided);
    }
    Ok(())
}

pub(super) fn delete_range(request: &rpc::DeleteRangeRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        Err(Error::EmptyKey)
    } else {
        Ok(())
    }
}

/// A whole transaction, nested ones included.
pub(super) fn txn(request: &TxnRequest, ops_max: usize) -> Result<(), Error> {
    txn_shape(request, ops_max)?;
    // After the counts, so that the work here is bounded.
    intervals(&request.success)?;
    intervals(&request.failure)?;
    Ok(())
}

/// Whether a transaction only reads, so that it need not be replicated.
pub(super) fn is_read_only(request: &TxnRequest) -> bool {
    ranges(request).all(|range| range.is_some())
}

/// Whether a transaction that only reads is content with this member's own state.
pub(super) fn is_serializable(request: &TxnRequest) -> bool {
    ranges(request).all(|range| range.is_some_and(|range| range.serializable))
}

fn ranges(request: &TxnRequest) -> impl Iterator<Item = Option<&RangeRequest>> {
    request
        .success
        .iter()
        .chain(&request.failure)
        .map(|op| match &op.request {
            Some(Request::RequestRange(range)) => Some(range),
            _ => None,
        })
}

/// Counts and single operations. A nested transaction may have as many operations as its parent
/// left over. The depth is bounded by the decoder's.
fn txn_shape(request: &TxnRequest, ops_max: usize) -> Result<(), Error> {
    let ops = request
        .compare
        .len()
        .max(request.success.len())
        .max(request.failure.len());
    let Some(left) = ops_max.checked_sub(ops) else {
        return Err(Error::TooManyOps);
    };
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Error::EmptyKey);
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(Request::RequestRange(request)) => range(request)?,
            Some(Request::RequestPut(request)) => put(request)?,
            Some(Request::RequestDeleteRange(request)) => delete_range(request)?,
            Some(Request::RequestTxn(request)) => txn_shape(request, left)?,
            None => return Err(Error::KeyNotFound),
        }
    }
    Ok(())
}

/// What a list of operations writes.
#[derive(Debug, Default)]
struct Writes {
    puts: BTreeSet<Bytes>,
    deletes: Spans,
}

/// Disjoint spans of keys, from a start up to an end.
#[derive(Debug, Default)]
struct Spans(BTreeMap<Bytes, Bytes>);

impl Spans {
    fn add(&mut self, mut start: Bytes, mut end: Bytes) {
        if start >= end {
            return;
        }
        while let Some((known_start, known_end)) = self
            .0
            .range(..=end.clone())
            .next_back()
            .map(|(a, b)| (a.clone(), b.clone()))
            && known_end >= start
        {
            self.0.remove(&known_start);
            start = start.min(known_start);
            end = end.max(known_end);
        }
        self.0.insert(start, end);
    }

    fn contains(&self, key: &Bytes) -> bool {
        self.0
            .range::<Bytes, _>(..=key)
            .next_back()
            .is_some_and(|(_, end)| key < end)
    }
}

/// Refuses a list that writes one key twice: two puts, or a put under a delete of this level or of
/// a nested transaction before it. The two branches of one nested transaction may share keys.
fn intervals(ops: &[rpc::RequestOp]) -> Result<Writes, Error> {
    let mut writes = Writes::default();
    for op in ops {
        if let Some(Request::RequestDeleteRange(delete)) = &op.request {
            let end = if delete.range_end.is_empty() {
                let mut end = delete.key.to_vec();
                end.push(0);
                Bytes::from(end)
            } else {
                delete.range_end.clone()
            };
            writes.deletes.add(delete.key.clone(), end);
        }
    }
    for op in ops {
        let Some(Request::RequestTxn(nested)) = &op.request else {
            continue;
        };
        let then = intervals(&nested.success)?;
        let otherwise = intervals(&nested.failure)?;
        let is_taken = |writes: &Writes, key: &Bytes| {
            writes.puts.contains(key) || writes.deletes.contains(key)
        };
        let mut keys = then.puts.iter().chain(&otherwise.puts);
        if keys.any(|key| is_taken(&writes, key)) {
            return Err(Error::DuplicateKey);
        }
        writes.puts.extend(then.puts);
        writes.puts.extend(otherwise.puts);
        for (start, end) in then.deletes.0.into_iter().chain(otherwise.deletes.0) {
            writes.deletes.add(start, end);
        }
    }
    for op in ops {
        if let Some(Request::RequestPut(put)) = &op.request
            && (writes.deletes.contains(&put.key) || !writes.puts.insert(put.key.clone()))
        {
            return Err(Error::DuplicateKey);
        }
    }
    Ok(writes)
}

#[cfg(test)]
mod tests;
