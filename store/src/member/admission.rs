//! How much may be under way at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_proto::etcd::rpc::request_op;

use crate::command::Request;
use crate::error::Error;

/// Proposals under way; etcd's bound on entries committed and not applied.
const PENDING_MAX: u64 = 5_000;
/// The same for requests that free resources.
const PENDING_URGENT_MAX: u64 = 10_000;
/// Bytes of proposals under way.
const PENDING_BYTES_MAX: u64 = 256 << 20;

/// Counts what is under way.
#[derive(Debug, Default)]
pub(super) struct Admission {
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    proposals: AtomicU64,
    bytes: AtomicU64,
}

/// One proposal under way; leaves when dropped.
#[derive(Debug)]
pub(super) struct Admitted {
    counters: Arc<Counters>,
    bytes: u64,
}

impl Admission {
    /// Proposals under way.
    pub(super) fn pending(&self) -> u64 {
        self.counters.proposals.load(Ordering::Relaxed)
    }

    /// Bytes of proposals under way.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.counters.bytes.load(Ordering::Relaxed)
    }

    /// Lets a proposal of `bytes` in, or refuses it.
    pub(super) fn admit(&self, bytes: usize, is_urgent: bool) -> Result<Admitted, Error> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let limit = if is_urgent {
            PENDING_URGENT_MAX
        } else {
            PENDING_MAX
        };
        let counters = Arc::clone(&self.counters);
        let proposals = counters.proposals.fetch_add(1, Ordering::Relaxed);
        let before = counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        let admitted = Admitted { counters, bytes };
        // A single proposal is admitted however large it is: its size was judged before.
        if proposals >= limit || (before > 0 && before.saturating_add(bytes) > PENDING_BYTES_MAX) {
            return Err(Error::TooManyRequests);
        }
        Ok(admitted)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.counters.proposals.fetch_sub(1, Ordering::Relaxed);
        self.counters.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Whether a request makes the data larger: those are refused while the disk is full.
pub(super) fn takes_space(request: &Request) -> bool {
    match request {
        Request::Put(_) | Request::LeaseGrant(_) => true,
        Request::Txn(txn) => {
            let mut operations = txn.success.iter().chain(&txn.failure);
            operations.any(|operation| {
                matches!(
                    operation.request,
                    Some(request_op::Request::RequestPut(_) | request_op::Request::RequestTxn(_))
                )
            })
        }
        _ => false,
    }
}

/// Whether a request frees something, so that it may pass when others have to wait.
pub(super) fn is_urgent(request: &Request) -> bool {
    matches!(
        request,
        Request::Compact(_)
            | Request::LeaseRevoke(_)
            | Request::LeaseCheckpoint(_)
            | Request::Alarm(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_limit_is_refused_until_one_leaves() {
        let admission = Admission::default();
        let mut held: Vec<_> = (0..PENDING_MAX)
            .map(|_| admission.admit(1, false).expect("below the limit"))
            .collect();
        assert!(matches!(
            admission.admit(1, false),
            Err(Error::TooManyRequests)
        ));
        assert!(
            admission.admit(1, true).is_ok(),
            "what frees resources passes"
        );
        held.pop();
        assert!(admission.admit(1, false).is_ok());
    }

    #[test]
    fn a_large_proposal_passes_alone_and_not_beside_others() {
        let admission = Admission::default();
        let large = usize::try_from(PENDING_BYTES_MAX).expect("fits") + 1;
        let alone = admission
            .admit(large, false)
            .expect("nothing else is under way");
        assert!(matches!(
            admission.admit(1, false),
            Err(Error::TooManyRequests)
        ));
        drop(alone);
        assert_eq!(admission.pending(), 0);
    }
}
