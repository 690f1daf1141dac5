//! A member of an etcd cluster that says and does what a test wants.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use holdfast_proto::etcd::rpc;
use holdfast_proto::etcd::rpc::auth_server::{Auth, AuthServer};
use holdfast_proto::etcd::rpc::maintenance_server::{Maintenance, MaintenanceServer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::task::TaskTracker;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};
use tonic::{Request, Response, Status};

use super::bench::Golden;

type Reply<T> = Result<Response<T>, Status>;

/// How a member's snapshot stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// To its end.
    Whole,
    /// Cut after so many messages, as by a member that stops.
    CutAfter(usize),
    /// Silent after so many messages.
    SilentAfter(usize),
    /// One byte of so many messages further on is another.
    Flipped(usize),
}

#[derive(Debug, Clone)]
pub(crate) struct Fake {
    pub(crate) cluster_id: u64,
    pub(crate) member_id: u64,
    pub(crate) leader: u64,
    pub(crate) is_learner: bool,
    pub(crate) revision: i64,
    pub(crate) hash: u32,
    pub(crate) compact_revision: i64,
    pub(crate) golden: Golden,
    pub(crate) flow: Flow,
    pub(crate) password: Option<&'static str>,
    pub(crate) snapshots: Arc<AtomicUsize>,
    servers: TaskTracker,
}

/// Where the certificates for tests are.
pub(crate) fn tls_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/tls")
        .join(name)
}

fn pem(name: &str) -> Vec<u8> {
    std::fs::read(tls_file(name)).unwrap()
}

const TOKEN: &str = "token.17";
const MESSAGE_BYTES: usize = 32 * 1024;

impl Fake {
    pub(crate) fn of(golden: Golden, member_id: u64) -> Self {
        Self {
            cluster_id: 0xcafe,
            member_id,
            leader: 1,
            is_learner: false,
            revision: golden.2,
            hash: golden.1,
            compact_revision: golden.3,
            golden,
            flow: Flow::Whole,
            password: None,
            snapshots: Arc::default(),
            servers: TaskTracker::new(),
        }
    }

    /// Serves on a free port until the test ends.
    pub(crate) async fn serve(&self) -> SocketAddr {
        self.serve_on(tonic::transport::Server::builder()).await
    }

    /// As [`Fake::serve`], with TLS; clients need a certificate of the same authority.
    pub(crate) async fn serve_tls(&self) -> SocketAddr {
        let identity = Identity::from_pem(pem("server.pem"), pem("server.key"));
        let tls = ServerTlsConfig::new()
            .identity(identity)
            .client_ca_root(Certificate::from_pem(pem("ca.pem")));
        self.serve_on(tonic::transport::Server::builder().tls_config(tls).unwrap())
            .await
    }

    async fn serve_on(&self, mut server: tonic::transport::Server) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = server
            .add_service(MaintenanceServer::new(self.clone()))
            .add_service(AuthServer::new(self.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        self.servers.spawn(server);
        address
    }

    fn admit<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let token = request
            .metadata()
            .get("token")
            .and_then(|token| token.to_str().ok());
        if self.password.is_some() && token != Some(TOKEN) {
            return Err(Status::invalid_argument("etcdserver: user name is empty"));
        }
        Ok(())
    }

    fn header(&self) -> rpc::ResponseHeader {
        rpc::ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: self.member_id,
            revision: self.revision,
            raft_term: 2,
        }
    }

    fn messages(&self) -> Vec<rpc::SnapshotResponse> {
        let bytes = self.golden.bytes();
        let (database, digest) = bytes.split_at(bytes.len() - 32);
        let mut remaining = database.len();
        let mut messages = Vec::new();
        for piece in database.chunks(MESSAGE_BYTES).chain([digest]) {
            remaining = remaining.saturating_sub(piece.len());
            messages.push(rpc::SnapshotResponse {
                header: None,
                remaining_bytes: u64::try_from(remaining).unwrap(),
                blob: Bytes::copy_from_slice(piece),
                version: "3.7.0".to_owned(),
            });
        }
        messages
    }
}

fn absent<T>() -> Reply<T> {
    Err(Status::unimplemented("not part of this test"))
}

#[tonic::async_trait]
impl Maintenance for Fake {
    type SnapshotStream = BoxStream<'static, Result<rpc::SnapshotResponse, Status>>;

    async fn status(&self, request: Request<rpc::StatusRequest>) -> Reply<rpc::StatusResponse> {
        self.admit(&request)?;
        Ok(Response::new(rpc::StatusResponse {
            header: Some(self.header()),
            version: "3.7.3".to_owned(),
            db_size: 100_000,
            leader: self.leader,
            is_learner: self.is_learner,
            ..Default::default()
        }))
    }

    async fn hash_kv(&self, request: Request<rpc::HashKvRequest>) -> Reply<rpc::HashKvResponse> {
        self.admit(&request)?;
        Ok(Response::new(rpc::HashKvResponse {
            header: Some(self.header()),
            hash: self.hash,
            compact_revision: self.compact_revision,
            hash_revision: request.get_ref().revision,
        }))
    }

    async fn snapshot(
        &self,
        request: Request<rpc::SnapshotRequest>,
    ) -> Reply<Self::SnapshotStream> {
        self.admit(&request)?;
        self.snapshots.fetch_add(1, Ordering::SeqCst);
        let mut messages = self.messages();
        let mut end = futures::stream::empty().boxed();
        match self.flow {
            Flow::Whole => {}
            Flow::CutAfter(count) => {
                messages.truncate(count);
                let cut = Status::unavailable("the member stops");
                end = futures::stream::iter([Err(cut)]).boxed();
            }
            Flow::SilentAfter(count) => {
                messages.truncate(count);
                end = futures::stream::pending().boxed();
            }
            Flow::Flipped(index) => {
                let mut blob = messages[index].blob.to_vec();
                blob[7] ^= 1;
                messages[index].blob = blob.into();
            }
        }
        Ok(Response::new(
            futures::stream::iter(messages).map(Ok).chain(end).boxed(),
        ))
    }

    async fn alarm(&self, _: Request<rpc::AlarmRequest>) -> Reply<rpc::AlarmResponse> {
        absent()
    }
    async fn defragment(
        &self,
        _: Request<rpc::DefragmentRequest>,
    ) -> Reply<rpc::DefragmentResponse> {
        absent()
    }
    async fn hash(&self, _: Request<rpc::HashRequest>) -> Reply<rpc::HashResponse> {
        absent()
    }
    async fn move_leader(
        &self,
        _: Request<rpc::MoveLeaderRequest>,
    ) -> Reply<rpc::MoveLeaderResponse> {
        absent()
    }
    async fn downgrade(&self, _: Request<rpc::DowngradeRequest>) -> Reply<rpc::DowngradeResponse> {
        absent()
    }
}

#[tonic::async_trait]
impl Auth for Fake {
    async fn authenticate(
        &self,
        request: Request<rpc::AuthenticateRequest>,
    ) -> Reply<rpc::AuthenticateResponse> {
        let request = request.into_inner();
        if request.name == "root" && self.password == Some(request.password.as_str()) {
            let token = TOKEN.to_owned();
            return Ok(Response::new(rpc::AuthenticateResponse {
                header: Some(self.header()),
                token,
            }));
        }
        Err(Status::invalid_argument(
            "etcdserver: authentication failed, invalid user ID or password",
        ))
    }

    async fn auth_enable(
        &self,
        _: Request<rpc::AuthEnableRequest>,
    ) -> Reply<rpc::AuthEnableResponse> {
        absent()
    }
    async fn auth_disable(
        &self,
        _: Request<rpc::AuthDisableRequest>,
    ) -> Reply<rpc::AuthDisableResponse> {
        absent()
    }
    async fn auth_status(
        &self,
        _: Request<rpc::AuthStatusRequest>,
    ) -> Reply<rpc::AuthStatusResponse> {
        absent()
    }
    async fn user_add(
        &self,
        _: Request<rpc::AuthUserAddRequest>,
    ) -> Reply<rpc::AuthUserAddResponse> {
        absent()
    }
    async fn user_get(
        &self,
        _: Request<rpc::AuthUserGetRequest>,
    ) -> Reply<rpc::AuthUserGetResponse> {
        absent()
    }
    async fn user_list(
        &self,
        _: Request<rpc::AuthUserListRequest>,
    ) -> Reply<rpc::AuthUserListResponse> {
        absent()
    }
    async fn user_delete(
        &self,
        _: Request<rpc::AuthUserDeleteRequest>,
    ) -> Reply<rpc::AuthUserDeleteResponse> {
        absent()
    }
    async fn user_change_password(
        &self,
        _: Request<rpc::AuthUserChangePasswordRequest>,
    ) -> Reply<rpc::AuthUserChangePasswordResponse> {
        absent()
    }
    async fn user_grant_role(
        &self,
        _: Request<rpc::AuthUserGrantRoleRequest>,
    ) -> Reply<rpc::AuthUserGrantRoleResponse> {
        absent()
    }
    async fn user_revoke_role(
        &self,
        _: Request<rpc::AuthUserRevokeRoleRequest>,
    ) -> Reply<rpc::AuthUserRevokeRoleResponse> {
        absent()
    }
    async fn role_add(
        &self,
        _: Request<rpc::AuthRoleAddRequest>,
    ) -> Reply<rpc::AuthRoleAddResponse> {
        absent()
    }
    async fn role_get(
        &self,
        _: Request<rpc::AuthRoleGetRequest>,
    ) -> Reply<rpc::AuthRoleGetResponse> {
        absent()
    }
    async fn role_list(
        &self,
        _: Request<rpc::AuthRoleListRequest>,
    ) -> Reply<rpc::AuthRoleListResponse> {
        absent()
    }
    async fn role_delete(
        &self,
        _: Request<rpc::AuthRoleDeleteRequest>,
    ) -> Reply<rpc::AuthRoleDeleteResponse> {
        absent()
    }
    async fn role_grant_permission(
        &self,
        _: Request<rpc::AuthRoleGrantPermissionRequest>,
    ) -> Reply<rpc::AuthRoleGrantPermissionResponse> {
        absent()
    }
    async fn role_revoke_permission(
        &self,
        _: Request<rpc::AuthRoleRevokePermissionRequest>,
    ) -> Reply<rpc::AuthRoleRevokePermissionResponse> {
        absent()
    }
}
