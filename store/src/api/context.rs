//! What every service needs: the member, the watches, the limits, and the checks that come first.

use std::sync::Arc;

use holdfast_proto::etcd::rpc::ResponseHeader;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::connections::Connections;
use super::health::Serving;
use super::status::status;
use crate::error::Error;
use crate::member::Member;
use crate::metrics::Metrics;
use crate::options::StoreOptions;
use crate::state::State;
use crate::watch::WatchHub;

/// Bytes a gRPC message may have beyond the request it carries (etcd's allowance).
pub(super) const MESSAGE_OVERHEAD_BYTES: usize = 512 * 1024;

/// Shared by all services; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    member: Member,
    hub: WatchHub,
    options: StoreOptions,
    metrics: Arc<Metrics>,
    serving: Serving,
    connections: Vec<Connections>,
    member_id: u64,
    cluster_id: u64,
    stop: CancellationToken,
}

impl Context {
    pub(crate) fn new(
        member: Member,
        hub: WatchHub,
        options: StoreOptions,
        metrics: Arc<Metrics>,
        connections: Vec<Connections>,
        stop: CancellationToken,
    ) -> Context {
        let member_id = member.id().0;
        let cluster_id = member.cluster_id().0;
        Context {
            inner: Arc::new(Inner {
                member,
                hub,
                options,
                metrics,
                serving: Serving::new(),
                connections,
                member_id,
                cluster_id,
                stop,
            }),
        }
    }

    pub(crate) fn member(&self) -> &Member {
        &self.inner.member
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        self.inner.member.state()
    }

    pub(crate) fn hub(&self) -> &WatchHub {
        &self.inner.hub
    }

    pub(crate) fn options(&self) -> &StoreOptions {
        &self.inner.options
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.inner.metrics
    }

    /// What the health service says.
    pub(super) fn serving(&self) -> &Serving {
        &self.inner.serving
    }

    /// The connections of each kind of address.
    pub(super) fn connections(&self) -> &[Connections] {
        &self.inner.connections
    }

    /// Cancelled when the server stops.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.inner.stop
    }

    /// Largest gRPC message taken in, in bytes.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.options()
            .limits
            .request_bytes_max
            .saturating_add(MESSAGE_OVERHEAD_BYTES)
    }

    /// Refuses a call whose client wants a leader when there is none.
    ///
    /// # Errors
    /// [`Error::NoLeader`].
    pub(super) fn check_leader(&self, metadata: &MetadataMap) -> Result<(), Error> {
        if wants_leader(metadata) && self.member().leader().is_none() {
            return Err(Error::NoLeader);
        }
        Ok(())
    }

    /// What comes before every call that touches data: that this member answers it, the wanted
    /// leader, and that the data may be served without the authentication this version lacks.
    pub(super) fn admit(&self, metadata: &MetadataMap) -> Result<(), Status> {
        self.check_voter().map_err(|error| status(&error))?;
        self.admit_on_learner(metadata)
    }

    /// The same for the few calls that a learner answers too.
    pub(super) fn admit_on_learner(&self, metadata: &MetadataMap) -> Result<(), Status> {
        self.check_leader(metadata)
            .and_then(|()| self.check_auth())
            .map_err(|error| status(&error))
    }

    /// Refuses what a learner does not answer.
    ///
    /// # Errors
    /// [`Error::NotSupportedForLearner`].
    pub(super) fn check_voter(&self) -> Result<(), Error> {
        if self.member().is_learner() {
            return Err(Error::NotSupportedForLearner);
        }
        Ok(())
    }

    /// Refuses data that has authentication enabled.
    ///
    /// # Errors
    /// [`Error::AuthUnsupported`].
    pub(crate) fn check_auth(&self) -> Result<(), Error> {
        if !self.options().serve_without_auth && self.state().is_auth_enabled() {
            return Err(Error::AuthUnsupported);
        }
        Ok(())
    }

    /// A header with the member's present revision.
    pub(super) fn header(&self) -> ResponseHeader {
        self.header_at(self.state().revision())
    }

    /// A header with a given revision.
    pub(super) fn header_at(&self, revision: i64) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.inner.cluster_id,
            member_id: self.inner.member_id,
            revision,
            raft_term: self.member().term(),
        }
    }

    /// Completes the header of a response: a revision that is there stays.
    pub(super) fn complete(&self, header: Option<ResponseHeader>) -> ResponseHeader {
        let revision = match header {
            Some(header) if header.revision != 0 => header.revision,
            _ => self.state().revision(),
        };
        self.header_at(revision)
    }
}

/// Whether a client said that it wants a leader (etcd's `WithRequireLeader`).
pub(super) fn wants_leader(metadata: &MetadataMap) -> bool {
    metadata
        .get("hasleader")
        .is_some_and(|value| value.as_bytes() == b"true")
}

/// Runs work that may wait for the disk away from the threads that serve requests.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| status(&error)),
        Err(_) => Err(Status::internal(
            "etcdserver: the request failed inside the server",
        )),
    }
}
