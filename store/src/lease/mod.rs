//! Leases: what is replicated (`lessor`), and the leader's clock over it (`clock`).

mod clock;
mod lessor;

pub use clock::{LeaseClock, LeaseClockOptions};
pub(crate) use lessor::{Lessor, encode, row_key};

/// Largest time to live a lease can have, in seconds (etcd's).
pub const TTL_MAX_S: i64 = 9_000_000_000;

/// The id of a lease; 0 is no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// What is known of a lease from the replicated state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseInfo {
    /// The lease.
    pub id: LeaseId,
    /// Granted time to live, in seconds.
    pub granted_ttl_s: i64,
    /// Time left at the last checkpoint, in seconds; 0: the whole granted time.
    pub checkpoint_ttl_s: i64,
    /// The attached keys, in order.
    pub keys: Vec<bytes::Bytes>,
}

/// A change of the set of leases, as the leader's clock needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseChange {
    /// A lease was granted.
    Granted {
        /// The lease.
        id: LeaseId,
        /// Granted time to live, in seconds.
        ttl_s: i64,
    },
    /// A lease is gone.
    Revoked {
        /// The lease.
        id: LeaseId,
    },
    /// The time left was recorded.
    Checkpointed {
        /// The lease.
        id: LeaseId,
        /// Time left, in seconds; 0: the whole granted time again.
        remaining_s: i64,
    },
    /// The whole state was replaced (a snapshot was installed): forget all, promote again.
    Replaced,
}
