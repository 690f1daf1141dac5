//! The Cluster service: reading the membership. Changing it is not part of this version.

use holdfast_proto::etcd::rpc::{self, cluster_server::Cluster};
use tonic::{Request, Response, Status};

use super::context::Context;
use super::status::status;
use crate::error::Error;

/// Answers the Cluster service.
#[derive(Debug, Clone)]
pub(super) struct ClusterService {
    context: Context,
}

impl ClusterService {
    pub(super) fn new(context: Context) -> ClusterService {
        ClusterService { context }
    }
}

fn unimplemented<T>(what: &'static str) -> Result<Response<T>, Status> {
    Err(status(&Error::Unimplemented { what }))
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn member_add(
        &self,
        _request: Request<rpc::MemberAddRequest>,
    ) -> Result<Response<rpc::MemberAddResponse>, Status> {
        unimplemented("MemberAdd")
    }

    async fn member_remove(
        &self,
        _request: Request<rpc::MemberRemoveRequest>,
    ) -> Result<Response<rpc::MemberRemoveResponse>, Status> {
        unimplemented("MemberRemove")
    }

    async fn member_update(
        &self,
        _request: Request<rpc::MemberUpdateRequest>,
    ) -> Result<Response<rpc::MemberUpdateResponse>, Status> {
        unimplemented("MemberUpdate")
    }

    async fn member_list(
        &self,
        request: Request<rpc::MemberListRequest>,
    ) -> Result<Response<rpc::MemberListResponse>, Status> {
        self.context
            .check_leader(request.metadata())
            .map_err(|error| status(&error))?;
        let member = self.context.member();
        if request.get_ref().linearizable {
            member
                .linearizable()
                .await
                .map_err(|error| status(&error))?;
        }
        let members = member
            .state()
            .members()
            .into_iter()
            .map(|record| rpc::Member {
                id: record.id,
                name: record.name,
                peer_ur_ls: record.peer_urls,
                client_ur_ls: record.client_urls,
                is_learner: record.is_learner,
            });
        // etcd leaves the revision out of this header.
        let header = Some(self.context.header_at(0));
        Ok(Response::new(rpc::MemberListResponse {
            header,
            members: members.collect(),
        }))
    }

    async fn member_promote(
        &self,
        _request: Request<rpc::MemberPromoteRequest>,
    ) -> Result<Response<rpc::MemberPromoteResponse>, Status> {
        unimplemented("MemberPromote")
    }
}
