//! The replicated part of leases: which there are, and which keys hang on them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use holdfast_proto::etcd::lease as record;
use prost::Message as _;

use super::{LeaseId, LeaseInfo};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Lease {
    granted_ttl_s: i64,
    checkpoint_ttl_s: i64,
    keys: BTreeSet<Bytes>,
}

/// All leases and the keys attached to them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lessor {
    leases: BTreeMap<LeaseId, Lease>,
    holders: BTreeMap<Bytes, LeaseId>,
}

impl Lessor {
    pub(crate) fn contains(&self, id: LeaseId) -> bool {
        self.leases.contains_key(&id)
    }

    pub(crate) fn ids(&self) -> Vec<LeaseId> {
        self.leases.keys().copied().collect()
    }

    pub(crate) fn info(&self, id: LeaseId) -> Option<LeaseInfo> {
        self.leases.get(&id).map(|lease| LeaseInfo {
            keys: lease.keys.iter().cloned().collect(),
            ..brief(id, lease)
        })
    }

    /// All leases, without their keys.
    pub(crate) fn infos(&self) -> Vec<LeaseInfo> {
        self.leases
            .iter()
            .map(|(&id, lease)| brief(id, lease))
            .collect()
    }

    /// Adds a lease, or replaces one that is read again.
    pub(crate) fn grant(&mut self, id: LeaseId, granted_ttl_s: i64, checkpoint_ttl_s: i64) {
        let lease = Lease {
            granted_ttl_s,
            checkpoint_ttl_s,
            keys: BTreeSet::new(),
        };
        self.leases.insert(id, lease);
    }

    /// Records the time left; the lease's new record, if there is such a lease.
    pub(crate) fn checkpoint(&mut self, id: LeaseId, remaining_s: i64) -> Option<Vec<u8>> {
        let lease = self.leases.get_mut(&id)?;
        lease.checkpoint_ttl_s = remaining_s;
        Some(encode(id, lease.granted_ttl_s, remaining_s))
    }

    /// The keys attached to a lease, in order; `None` when there is no such lease.
    pub(crate) fn keys(&self, id: LeaseId) -> Option<Vec<Bytes>> {
        self.leases
            .get(&id)
            .map(|lease| lease.keys.iter().cloned().collect())
    }

    /// Forgets a lease; its keys have been deleted.
    pub(crate) fn remove(&mut self, id: LeaseId) {
        if let Some(lease) = self.leases.remove(&id) {
            for key in lease.keys {
                self.holders.remove(&key);
            }
        }
    }

    /// Attaches a key to a lease (0: to none) and detaches it from the one it had. A lease that
    /// does not exist, as damaged histories may name, attaches nothing.
    pub(crate) fn reattach(&mut self, key: &Bytes, id: LeaseId) {
        if id.0 == 0 && self.holders.is_empty() {
            return;
        }
        if self.holders.get(key) == Some(&id) {
            return;
        }
        self.detach(key);
        if id.0 != 0
            && let Some(lease) = self.leases.get_mut(&id)
        {
            // The key may be a slice of a whole request: keep the key alone.
            let key = Bytes::copy_from_slice(key);
            lease.keys.insert(key.clone());
            self.holders.insert(key, id);
        }
    }

    /// Detaches a key from the lease it has, if any.
    pub(crate) fn detach(&mut self, key: &Bytes) {
        if let Some(id) = self.holders.remove(key)
            && let Some(lease) = self.leases.get_mut(&id)
        {
            lease.keys.remove(key);
        }
    }
}

fn brief(id: LeaseId, lease: &Lease) -> LeaseInfo {
    LeaseInfo {
        id,
        granted_ttl_s: lease.granted_ttl_s,
        checkpoint_ttl_s: lease.checkpoint_ttl_s,
        keys: Vec::new(),
    }
}

/// Key of a lease's row.
pub(crate) fn row_key(id: LeaseId) -> [u8; 8] {
    id.0.to_be_bytes()
}

/// A lease's record.
pub(crate) fn encode(id: LeaseId, ttl: i64, remaining_ttl: i64) -> Vec<u8> {
    record::Lease {
        id: id.0,
        ttl,
        remaining_ttl,
    }
    .encode_to_vec()
}
