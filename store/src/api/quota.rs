//! The space quota, asked before a write goes into the log: a write that would not fit raises the
//! alarm and is refused, so that the log does not fill with what cannot be applied.

use holdfast_proto::etcd::rpc::{
    AlarmRequest, AlarmType, PutRequest, RequestOp, TxnRequest, alarm_request::AlarmAction,
    request_op::Request,
};

use super::context::Context;
use crate::command::Request as Command;
use crate::error::Error;

/// Bytes a pair takes beyond its key and value, roughly (etcd's figure).
const PAIR_OVERHEAD_BYTES: usize = 256;

/// Bytes a lease takes, roughly (etcd's figure).
pub(super) const LEASE_BYTES: usize = 64;

/// Bytes a put adds, roughly.
pub(super) fn put_bytes(request: &PutRequest) -> usize {
    PAIR_OVERHEAD_BYTES + request.key.len() + request.value.len()
}

/// Bytes a transaction adds, roughly: the larger of its branches.
pub(super) fn txn_bytes(request: &TxnRequest) -> usize {
    let branch = |ops: &[RequestOp]| ops.iter().map(op_bytes).sum::<usize>();
    branch(&request.success).max(branch(&request.failure))
}

fn op_bytes(op: &RequestOp) -> usize {
    match &op.request {
        Some(Request::RequestPut(put)) => put_bytes(put),
        Some(Request::RequestTxn(txn)) => txn_bytes(txn),
        _ => 0,
    }
}

/// Refuses a write of about `bytes` that does not fit, after raising the alarm.
///
/// # Errors
/// [`Error::NoSpace`].
pub(super) async fn check(context: &Context, bytes: usize) -> Result<(), Error> {
    let cost = u64::try_from(bytes).unwrap_or(u64::MAX);
    if cost == 0 || context.state().has_space_for(cost) {
        return Ok(());
    }
    let own = context.member().id().0;
    let is_raised = context
        .state()
        .alarms()
        .iter()
        .any(|alarm| alarm.member_id == own && alarm.alarm() == AlarmType::Nospace);
    if !is_raised {
        tracing::warn!("the space quota is used up; raise the NOSPACE alarm");
        let request = AlarmRequest {
            action: AlarmAction::Activate.into(),
            member_id: own,
            alarm: AlarmType::Nospace.into(),
        };
        if let Err(error) = context.member().propose(Command::Alarm(request)).await {
            tracing::warn!(%error, "the NOSPACE alarm could not be raised");
        }
    }
    Err(Error::NoSpace)
}

#[cfg(test)]
mod tests {
    use holdfast_proto::etcd::rpc::{PutRequest, RequestOp, TxnRequest, request_op::Request};

    #[test]
    fn a_transaction_costs_its_larger_branch() {
        let put = |bytes: usize| {
            let put = PutRequest {
                value: vec![0; bytes].into(),
                ..PutRequest::default()
            };
            RequestOp {
                request: Some(Request::RequestPut(put)),
            }
        };
        let nested = TxnRequest {
            success: vec![put(300)],
            ..TxnRequest::default()
        };
        let nested = RequestOp {
            request: Some(Request::RequestTxn(nested)),
        };
        let txn = TxnRequest {
            success: vec![put(10), put(20)],
            failure: vec![nested],
            ..TxnRequest::default()
        };
        assert_eq!(super::txn_bytes(&txn), 556);
        assert_eq!(super::txn_bytes(&TxnRequest::default()), 0);
    }
}
