//! What requests cost against the space quota, by etcd's rules.

use holdfast_proto::etcd::rpc::request_op::Request;
use holdfast_proto::etcd::rpc::{PutRequest, RequestOp, TxnRequest};

use crate::backend::Head;

/// etcd's quota when none is given: 2 GiB.
pub const QUOTA_DEFAULT_BYTES: i64 = 2 << 30;
/// What a lease costs, in bytes.
pub const LEASE_COST: u64 = 64;
/// What a key-value costs beyond its key and value, in bytes.
const PUT_OVERHEAD: u64 = 256;
/// About what a row takes in the store file beyond its key and record, in bytes.
const ROW_OVERHEAD: u64 = 32;

/// What a put costs, in bytes.
pub fn put_cost(request: &PutRequest) -> u64 {
    let length = request.key.len().saturating_add(request.value.len());
    u64::try_from(length)
        .unwrap_or(u64::MAX)
        .saturating_add(PUT_OVERHEAD)
}

/// What a transaction costs, in bytes: its more expensive branch. 0: it writes nothing new.
pub fn txn_cost(request: &TxnRequest) -> u64 {
    branch_cost(&request.success).max(branch_cost(&request.failure))
}

fn branch_cost(ops: &[RequestOp]) -> u64 {
    ops.iter().fold(0, |sum: u64, op| {
        sum.saturating_add(match &op.request {
            Some(Request::RequestPut(put)) => put_cost(put),
            Some(Request::RequestTxn(nested)) => txn_cost(nested),
            Some(Request::RequestRange(_) | Request::RequestDeleteRange(_)) | None => 0,
        })
    })
}

/// The quota that an option means: 0 is the default, negative is none.
pub(crate) fn effective_quota(quota_bytes: i64) -> i64 {
    if quota_bytes == 0 {
        QUOTA_DEFAULT_BYTES
    } else {
        quota_bytes
    }
}

/// Whether `cost` more bytes fit.
pub(crate) fn fits(quota: i64, in_use: u64, cost: u64) -> bool {
    let Ok(quota) = u64::try_from(quota) else {
        return true;
    };
    cost == 0 || in_use.saturating_add(cost) < quota
}

/// Space that holds data, in bytes.
pub(crate) fn in_use(head: &Head) -> u64 {
    head.bytes()
        .saturating_add(head.rows().saturating_mul(ROW_OVERHEAD))
}
