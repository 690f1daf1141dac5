//! The Lease service.

use std::pin::Pin;
use std::time::Duration;

use futures::Stream;
use holdfast_proto::etcd::rpc::{self, lease_server::Lease};
use rand::RngExt as _;
use tonic::{Request, Response, Status, Streaming};

use super::context::{Context, wants_leader};
use super::quota;
use super::status::status;
use crate::apply;
use crate::command::Request as Command;
use crate::error::Error;
use crate::lease::LeaseId;

/// Answers the Lease service.
#[derive(Debug, Clone)]
pub(super) struct LeaseService {
    context: Context,
}

impl LeaseService {
    pub(super) fn new(context: Context) -> LeaseService {
        LeaseService { context }
    }
}

#[tonic::async_trait]
impl Lease for LeaseService {
    async fn lease_grant(
        &self,
        request: Request<rpc::LeaseGrantRequest>,
    ) -> Result<Response<rpc::LeaseGrantResponse>, Status> {
        self.context.admit(request.metadata())?;
        let mut request = request.into_inner();
        if request.id == 0 {
            request.id = rand::rng().random_range(1..=i64::MAX);
        }
        let member = self.context.member();
        quota::check(&self.context, quota::LEASE_BYTES)
            .await
            .map_err(|error| status(&error))?;
        request.ttl = member.leases().granted_ttl_s(request.ttl);
        let applied = member.propose(Command::LeaseGrant(request)).await;
        match applied.map_err(|error| status(&error))?.response {
            apply::Response::LeaseGrant(mut response) => {
                response.header = Some(self.context.complete(response.header));
                let ttl = Duration::from_secs(response.ttl.unsigned_abs());
                self.context.metrics().lease_ttl_seconds.observe(ttl);
                Ok(Response::new(response))
            }
            _ => Err(Status::internal(
                "etcdserver: wrong answer to a lease grant",
            )),
        }
    }

    async fn lease_revoke(
        &self,
        request: Request<rpc::LeaseRevokeRequest>,
    ) -> Result<Response<rpc::LeaseRevokeResponse>, Status> {
        self.context.admit(request.metadata())?;
        let applied = self
            .context
            .member()
            .propose(Command::LeaseRevoke(request.into_inner()))
            .await;
        match applied.map_err(|error| status(&error))?.response {
            apply::Response::LeaseRevoke(mut response) => {
                response.header = Some(self.context.complete(response.header));
                Ok(Response::new(response))
            }
            _ => Err(Status::internal(
                "etcdserver: wrong answer to a lease revocation",
            )),
        }
    }

    type LeaseKeepAliveStream =
        Pin<Box<dyn Stream<Item = Result<rpc::LeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<rpc::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        self.context.admit(request.metadata())?;
        let wants_leader = wants_leader(request.metadata());
        let stream = KeepAlive {
            context: self.context.clone(),
            inbound: request.into_inner(),
            wants_leader,
        };
        Ok(Response::new(Box::pin(futures::stream::try_unfold(
            stream,
            |mut stream| async move { Ok(stream.next().await?.map(|response| (response, stream))) },
        ))))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<rpc::LeaseTimeToLiveRequest>,
    ) -> Result<Response<rpc::LeaseTimeToLiveResponse>, Status> {
        self.context.admit(request.metadata())?;
        let request = request.into_inner();
        let member = self.context.member();
        let time = member
            .lease_time(LeaseId(request.id), request.keys)
            .await
            .map_err(|error| status(&error))?;
        let header = Some(self.context.header());
        let response = match time {
            Some(time) => rpc::LeaseTimeToLiveResponse {
                header,
                id: request.id,
                ttl: time.ttl_s,
                granted_ttl: time.granted_ttl_s,
                keys: time.keys,
            },
            None => rpc::LeaseTimeToLiveResponse {
                header,
                id: request.id,
                ttl: -1,
                ..rpc::LeaseTimeToLiveResponse::default()
            },
        };
        Ok(Response::new(response))
    }

    async fn lease_leases(
        &self,
        request: Request<rpc::LeaseLeasesRequest>,
    ) -> Result<Response<rpc::LeaseLeasesResponse>, Status> {
        self.context.admit(request.metadata())?;
        let leases = self.context.state().leases();
        let leases = leases
            .into_iter()
            .map(|id| rpc::LeaseStatus { id: id.0 })
            .collect();
        let header = Some(self.context.header());
        Ok(Response::new(rpc::LeaseLeasesResponse { header, leases }))
    }
}

/// One keep-alive stream: a response to each request, in order.
struct KeepAlive {
    context: Context,
    inbound: Streaming<rpc::LeaseKeepAliveRequest>,
    wants_leader: bool,
}

impl KeepAlive {
    async fn next(&mut self) -> Result<Option<rpc::LeaseKeepAliveResponse>, Status> {
        let stop = self.context.stop().clone();
        let request = tokio::select! {
            () = stop.cancelled() => return Err(status(&Error::Stopped)),
            request = self.inbound.message() => request?,
        };
        let Some(request) = request else {
            return Ok(None);
        };
        if self.wants_leader && self.context.member().leader().is_none() {
            return Err(status(&Error::NoLeader));
        }
        // Taken before the renewal: the answer must not claim a revision at which the lease may
        // have been revoked.
        let header = Some(self.context.header());
        let ttl = match self.renew(LeaseId(request.id)).await {
            Ok(ttl) => ttl,
            Err(Error::LeaseNotFound) => 0,
            Err(error) => return Err(status(&error)),
        };
        Ok(Some(rpc::LeaseKeepAliveResponse {
            header,
            id: request.id,
            ttl,
        }))
    }

    /// Renews a lease with the leader.
    async fn renew(&self, id: LeaseId) -> Result<i64, Error> {
        self.context.check_auth()?;
        let ttl = self.context.member().renew_lease(id).await?;
        self.context.metrics().leases_renewed.add(1);
        Ok(ttl)
    }
}
