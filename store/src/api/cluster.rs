//! The Cluster service: the membership, read and changed.

use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_proto::etcd::rpc::{self, cluster_server::Cluster};
use tonic::{Request, Response, Status};

use super::context::Context;
use super::status::status;
use crate::datadir::identity::added_member_id;
use crate::error::Error;
use crate::member::Change;
use crate::options::peer_urls;
use crate::state::MemberRecord;

/// Answers the Cluster service.
#[derive(Debug, Clone)]
pub(super) struct ClusterService {
    context: Context,
}

impl ClusterService {
    pub(super) fn new(context: Context) -> ClusterService {
        ClusterService { context }
    }

    /// Changes the membership; the members afterwards.
    async fn change(
        &self,
        change: Change,
    ) -> Result<(rpc::ResponseHeader, Vec<rpc::Member>), Status> {
        let member = self.context.member();
        let changed = member.reconfigure(change).await;
        changed.map_err(|error| status(&error))?;
        Ok((self.header(), self.members()))
    }

    /// etcd leaves the revision out of this service's headers.
    fn header(&self) -> rpc::ResponseHeader {
        self.context.header_at(0)
    }

    fn members(&self) -> Vec<rpc::Member> {
        let members = self.context.state().members();
        members.into_iter().map(told).collect()
    }
}

fn told(record: MemberRecord) -> rpc::Member {
    rpc::Member {
        id: record.id,
        name: record.name,
        peer_ur_ls: record.peer_urls,
        client_ur_ls: record.client_urls,
        is_learner: record.is_learner,
    }
}

fn usable(given: &[String]) -> Result<Vec<String>, Status> {
    peer_urls(given).ok_or_else(|| status(&Error::MemberUrlsInvalid))
}

/// Seconds since 1970: what makes the id of an address that comes back a new one.
#[expect(
    clippy::disallowed_methods,
    reason = "an id is made at the edge and put into the request"
)]
fn unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn member_add(
        &self,
        request: Request<rpc::MemberAddRequest>,
    ) -> Result<Response<rpc::MemberAddResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.context.admit(&metadata)?;
        let peer_urls = usable(&request.peer_ur_ls)?;
        let id = added_member_id(&peer_urls, unix_s()).0;
        let change = Change::Add {
            id,
            peer_urls: peer_urls.clone(),
            is_learner: request.is_learner,
        };
        let (header, members) = self.change(change).await?;
        Ok(Response::new(rpc::MemberAddResponse {
            header: Some(header),
            member: Some(rpc::Member {
                id,
                peer_ur_ls: peer_urls,
                is_learner: request.is_learner,
                ..rpc::Member::default()
            }),
            members,
        }))
    }

    async fn member_remove(
        &self,
        request: Request<rpc::MemberRemoveRequest>,
    ) -> Result<Response<rpc::MemberRemoveResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.context.admit(&metadata)?;
        let change = Change::Remove { id: request.id };
        let (header, members) = self.change(change).await?;
        Ok(Response::new(rpc::MemberRemoveResponse {
            header: Some(header),
            members,
        }))
    }

    async fn member_update(
        &self,
        request: Request<rpc::MemberUpdateRequest>,
    ) -> Result<Response<rpc::MemberUpdateResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.context.admit(&metadata)?;
        // etcd takes anything here, and stops working on an address it cannot read.
        usable(&request.peer_ur_ls)?;
        let change = Change::Update {
            id: request.id,
            peer_urls: request.peer_ur_ls,
        };
        let (header, members) = self.change(change).await?;
        Ok(Response::new(rpc::MemberUpdateResponse {
            header: Some(header),
            members,
        }))
    }

    async fn member_list(
        &self,
        request: Request<rpc::MemberListRequest>,
    ) -> Result<Response<rpc::MemberListResponse>, Status> {
        self.context
            .check_voter()
            .and_then(|()| self.context.check_leader(request.metadata()))
            .map_err(|error| status(&error))?;
        if request.get_ref().linearizable {
            let confirmed = self.context.member().linearizable().await;
            confirmed.map_err(|error| status(&error))?;
        }
        Ok(Response::new(rpc::MemberListResponse {
            header: Some(self.header()),
            members: self.members(),
        }))
    }

    async fn member_promote(
        &self,
        request: Request<rpc::MemberPromoteRequest>,
    ) -> Result<Response<rpc::MemberPromoteResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.context.admit(&metadata)?;
        let change = Change::Promote { id: request.id };
        let (header, members) = self.change(change).await?;
        Ok(Response::new(rpc::MemberPromoteResponse {
            header: Some(header),
            members,
        }))
    }
}
