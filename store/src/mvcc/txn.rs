//! Transactions: choose the branches, check everything, then do it.

use std::cmp::Ordering;

use holdfast_proto::etcd::kv::KeyValue;
use holdfast_proto::etcd::rpc::compare::{CompareResult, CompareTarget, TargetUnion};
use holdfast_proto::etcd::rpc::request_op::Request;
use holdfast_proto::etcd::rpc::response_op::Response;
use holdfast_proto::etcd::rpc::{
    Compare, PutRequest, RangeRequest, RequestOp, ResponseHeader, ResponseOp, TxnRequest,
    TxnResponse,
};
use parking_lot::RwLock;

use crate::error::Error;
use crate::failpoint::{self, Point};
use crate::lease::LeaseId;

use super::index::{Index, Span};
use super::read::{self, Count, Horizon, Values};
use super::write::Writer;

/// A transaction whose comparisons have been made.
#[derive(Debug)]
struct Chosen<'request> {
    succeeded: bool,
    ops: Vec<Op<'request>>,
}

#[derive(Debug)]
enum Op<'request> {
    Plain(&'request RequestOp),
    Nested(Chosen<'request>),
}

/// Does a transaction. An error of the request leaves everything as it was.
pub(crate) fn write(
    writer: &mut Writer<'_, '_>,
    request: &TxnRequest,
) -> Result<TxnResponse, Error> {
    let horizon = writer.horizon();
    let chosen = choose(writer.index, writer.rows, horizon, request)?;
    if !failpoint::is_on(Point::BugTxnUnchecked) {
        check(writer, &chosen, &mut Vec::new())?;
    }
    let mut response = execute(writer, &chosen)?;
    response.header = Some(writer.header());
    Ok(response)
}

/// Answers a transaction of ranges only.
pub(crate) fn read_only(
    index: &RwLock<Index>,
    values: &mut impl Values,
    horizon: Horizon,
    request: &TxnRequest,
) -> Result<TxnResponse, Error> {
    let chosen = choose(index, values, horizon, request)?;
    let mut responses = Vec::with_capacity(chosen.ops.len());
    for op in &chosen.ops {
        let response = match op {
            Op::Plain(RequestOp {
                request: Some(Request::RequestRange(range)),
            }) => {
                let answer = read::range(index, values, horizon, range, Count::Total)?;
                Some(Response::ResponseRange(answer))
            }
            Op::Plain(_) | Op::Nested(_) => None,
        };
        responses.push(ResponseOp { response });
    }
    let header = ResponseHeader {
        revision: horizon.current,
        ..ResponseHeader::default()
    };
    Ok(TxnResponse {
        header: Some(header),
        succeeded: chosen.succeeded,
        responses,
    })
}

fn choose<'request>(
    index: &RwLock<Index>,
    values: &mut impl Values,
    horizon: Horizon,
    request: &'request TxnRequest,
) -> Result<Chosen<'request>, Error> {
    let mut succeeded = true;
    for compare in &request.compare {
        if !holds(index, values, horizon, compare)? {
            succeeded = false;
            break;
        }
    }
    let branch = if succeeded {
        &request.success
    } else {
        &request.failure
    };
    let mut ops = Vec::with_capacity(branch.len());
    for op in branch {
        ops.push(match &op.request {
            Some(Request::RequestTxn(nested)) => {
                Op::Nested(choose(index, values, horizon, nested)?)
            }
            _ => Op::Plain(op),
        });
    }
    Ok(Chosen { succeeded, ops })
}

/// Whether a comparison holds for every key of its span.
fn holds(
    index: &RwLock<Index>,
    values: &mut impl Values,
    horizon: Horizon,
    compare: &Compare,
) -> Result<bool, Error> {
    let request = RangeRequest {
        key: compare.key.clone(),
        range_end: compare.range_end.clone(),
        keys_only: !matches!(
            CompareTarget::try_from(compare.target),
            Ok(CompareTarget::Value | CompareTarget::Lease)
        ),
        ..RangeRequest::default()
    };
    let kvs = read::range(index, values, horizon, &request, Count::Total)?.kvs;
    if kvs.is_empty() {
        // An absent value equals nothing, not even the empty value.
        return Ok(compare.target != i32::from(CompareTarget::Value)
            && holds_for(compare, &KeyValue::default()));
    }
    Ok(kvs.iter().all(|kv| holds_for(compare, kv)))
}

fn holds_for(compare: &Compare, kv: &KeyValue) -> bool {
    let number = |is_meant: bool, given: i64| if is_meant { given } else { 0 };
    let union = compare.target_union.as_ref();
    let ordering = match CompareTarget::try_from(compare.target) {
        Ok(CompareTarget::Version) => {
            let given = match union {
                Some(TargetUnion::Version(given)) => number(true, *given),
                _ => number(false, 0),
            };
            kv.version.cmp(&given)
        }
        Ok(CompareTarget::Create) => {
            let given = match union {
                Some(TargetUnion::CreateRevision(given)) => *given,
                _ => 0,
            };
            kv.create_revision.cmp(&given)
        }
        Ok(CompareTarget::Mod) => {
            let given = match union {
                Some(TargetUnion::ModRevision(given)) => *given,
                _ => 0,
            };
            kv.mod_revision.cmp(&given)
        }
        Ok(CompareTarget::Value) => {
            let given: &[u8] = match union {
                Some(TargetUnion::Value(given)) => given,
                _ => &[],
            };
            kv.value.as_ref().cmp(given)
        }
        Ok(CompareTarget::Lease) => {
            let given = match union {
                Some(TargetUnion::Lease(given)) => *given,
                _ => 0,
            };
            kv.lease.cmp(&given)
        }
        Err(_unknown) => Ordering::Equal,
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => ordering == Ordering::Equal,
        Ok(CompareResult::NotEqual) => ordering != Ordering::Equal,
        Ok(CompareResult::Greater) => ordering == Ordering::Greater,
        Ok(CompareResult::Less) => ordering == Ordering::Less,
        Err(_unknown) => true,
    }
}

/// What earlier operations of the transaction do to later ones.
#[derive(Debug)]
enum Before<'request> {
    Put(&'request [u8]),
    Deleted(Span<'request>),
}

/// Makes sure that no operation can fail half-way.
fn check<'request>(
    writer: &mut Writer<'_, '_>,
    chosen: &Chosen<'request>,
    before: &mut Vec<Before<'request>>,
) -> Result<(), Error> {
    for op in &chosen.ops {
        match op {
            Op::Nested(nested) => check(writer, nested, before)?,
            Op::Plain(op) => match &op.request {
                Some(Request::RequestRange(range)) => check_range(writer, range)?,
                Some(Request::RequestPut(put)) => {
                    check_lease(writer, put)?;
                    if (put.ignore_value || put.ignore_lease)
                        && !will_exist(writer, before, &put.key)
                    {
                        return Err(Error::KeyNotFound);
                    }
                    before.push(Before::Put(&put.key));
                }
                Some(Request::RequestDeleteRange(delete)) => {
                    before.push(Before::Deleted(Span::new(&delete.key, &delete.range_end)));
                }
                Some(Request::RequestTxn(_)) | None => {}
            },
        }
    }
    Ok(())
}

fn check_range(writer: &Writer<'_, '_>, range: &RangeRequest) -> Result<(), Error> {
    let horizon = writer.horizon();
    if range.revision == 0 {
        Ok(())
    } else if range.revision > horizon.current {
        Err(Error::FutureRevision)
    } else if range.revision < horizon.compacted {
        Err(Error::Compacted)
    } else {
        Ok(())
    }
}

/// Whether the lease of a put exists.
pub(crate) fn check_lease(writer: &Writer<'_, '_>, put: &PutRequest) -> Result<(), Error> {
    if put.lease == 0 || writer.lessor.read().contains(LeaseId(put.lease)) {
        Ok(())
    } else {
        Err(Error::LeaseNotFound)
    }
}

fn will_exist(writer: &Writer<'_, '_>, before: &[Before<'_>], key: &[u8]) -> bool {
    for earlier in before.iter().rev() {
        match earlier {
            Before::Put(put) if *put == key => return true,
            Before::Deleted(span) if span.contains(key) => return false,
            Before::Put(_) | Before::Deleted(_) => {}
        }
    }
    writer.exists(key)
}

fn execute(writer: &mut Writer<'_, '_>, chosen: &Chosen<'_>) -> Result<TxnResponse, Error> {
    let mut responses = Vec::with_capacity(chosen.ops.len());
    for op in &chosen.ops {
        let response = match op {
            Op::Nested(nested) => Some(Response::ResponseTxn(execute(writer, nested)?)),
            Op::Plain(op) => match &op.request {
                Some(Request::RequestRange(range)) => {
                    Some(Response::ResponseRange(writer.range(range)?))
                }
                Some(Request::RequestPut(put)) => {
                    Some(Response::ResponsePut(writer.put(put.clone())?))
                }
                Some(Request::RequestDeleteRange(delete)) => {
                    Some(Response::ResponseDeleteRange(writer.delete_range(delete)?))
                }
                Some(Request::RequestTxn(_)) | None => None,
            },
        };
        responses.push(ResponseOp { response });
    }
    Ok(TxnResponse {
        header: Some(ResponseHeader::default()),
        succeeded: chosen.succeeded,
        responses,
    })
}
