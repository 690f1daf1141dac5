//! How many connections may be open at once, so that a flood of them leaves descriptors for the
//! store's own files. Connections over the limit wait in the system's queue until others close.

use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Descriptors kept for files and the other kinds of connections, as etcd keeps them.
const RESERVED: usize = 150;
/// What peers and monitoring may have each, out of the reserve.
const SIDE_MAX: usize = 32;
/// Taken as the limit of descriptors when there is none.
const DESCRIPTORS_MAX: usize = 1 << 20;

/// The connections of one kind of address.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    endpoint: &'static str,
    limit: usize,
    permits: Arc<Semaphore>,
}

impl Connections {
    pub(super) fn new(endpoint: &'static str, limit: usize) -> Connections {
        Connections {
            endpoint,
            limit,
            permits: Arc::new(Semaphore::new(limit)),
        }
    }

    /// `client`, `peer` or `metrics`.
    pub(super) fn endpoint(&self) -> &'static str {
        self.endpoint
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn open(&self) -> usize {
        self.limit.saturating_sub(self.permits.available_permits())
    }

    /// The right to take one more connection; waits while too many are open.
    pub(super) async fn admit(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Some(permit);
        }
        tracing::warn!(
            error = "too many open connections; further ones wait until others close",
            limit = self.limit,
            "rejected connection on {} endpoint",
            self.endpoint
        );
        // Never closed while anybody accepts.
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }
}

/// Connections that clients, and that peers and monitoring each, may have.
pub(super) fn limits() -> (usize, usize) {
    let descriptors = getrlimit(Resource::Nofile).current;
    let descriptors = descriptors.map_or(DESCRIPTORS_MAX, |limit| {
        usize::try_from(limit).unwrap_or(DESCRIPTORS_MAX)
    });
    split(descriptors.min(DESCRIPTORS_MAX))
}

fn split(descriptors: usize) -> (usize, usize) {
    if descriptors >= 2 * RESERVED {
        (descriptors - RESERVED, SIDE_MAX)
    } else {
        ((descriptors / 2).max(4), (descriptors / 16).max(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_for_files_whatever_the_limit() {
        assert_eq!(split(1024), (874, 32));
        assert_eq!(split(300), (150, 32));
        assert_eq!(split(64), (32, 4));
        assert_eq!(split(1), (4, 2));
        for descriptors in 64..2000 {
            let (clients, side) = split(descriptors);
            let files = (descriptors / 4).min(RESERVED - 2 * SIDE_MAX);
            assert!(clients + 2 * side + files <= descriptors, "{descriptors}");
        }
    }

    #[tokio::test]
    async fn one_over_the_limit_waits_until_another_leaves() {
        let connections = Connections::new("client", 2);
        let first = connections.admit().await;
        let second = connections.admit().await;
        assert_eq!((connections.open(), connections.limit()), (2, 2));
        let mut third = tokio::task::JoinSet::new();
        third.spawn({
            let connections = connections.clone();
            async move { connections.admit().await.is_some() }
        });
        drop(first);
        assert!(third.join_next().await.unwrap().unwrap());
        drop(second);
    }
}
