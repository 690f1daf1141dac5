//! The Maintenance service.

use holdfast_proto::etcd::rpc::{
    self, AlarmType, alarm_request::AlarmAction, maintenance_server::Maintenance,
};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::context::{Context, blocking};
use super::snapshot;
use super::status::status;
use crate::apply;
use crate::command::Request as Command;
use crate::datadir::identity::MemberId;
use crate::error::Error;

/// Answers the Maintenance service.
#[derive(Debug, Clone)]
pub(super) struct MaintenanceService {
    context: Context,
}

impl MaintenanceService {
    pub(super) fn new(context: Context) -> MaintenanceService {
        MaintenanceService { context }
    }
}

/// The storage version that goes with a claimed version: `3.7.3` stores as `3.7.0`.
pub(super) fn storage_version(claimed: &str) -> String {
    let mut parts = claimed.split('.');
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => format!("{major}.{minor}.0"),
        _ => claimed.to_owned(),
    }
}

#[tonic::async_trait]
impl Maintenance for MaintenanceService {
    async fn alarm(
        &self,
        request: Request<rpc::AlarmRequest>,
    ) -> Result<Response<rpc::AlarmResponse>, Status> {
        self.context.admit(request.metadata())?;
        let request = request.into_inner();
        let member = self.context.member();
        if request.action() == AlarmAction::Get {
            let confirmed = member.linearizable().await;
            confirmed.map_err(|error| match error {
                // etcd puts this question through the log.
                Error::Timeout => status(&Error::DeadlineExceeded),
                error => status(&error),
            })?;
            let wanted = request.alarm();
            let mut alarms = member.state().alarms();
            alarms.retain(|alarm| wanted == AlarmType::None || alarm.alarm() == wanted);
            let header = Some(self.context.header());
            return Ok(Response::new(rpc::AlarmResponse { header, alarms }));
        }
        let applied = member.propose(Command::Alarm(request)).await;
        match applied.map_err(|error| status(&error))?.response {
            apply::Response::Alarm(mut response) => {
                response.header = Some(self.context.complete(response.header));
                Ok(Response::new(response))
            }
            _ => Err(Status::internal(
                "etcdserver: wrong answer to an alarm request",
            )),
        }
    }

    async fn status(
        &self,
        request: Request<rpc::StatusRequest>,
    ) -> Result<Response<rpc::StatusResponse>, Status> {
        self.context
            .check_leader(request.metadata())
            .map_err(|error| status(&error))?;
        let status = self.context.member().status();
        let claimed = &self.context.options().claimed_version;
        let quota = self.context.options().quota_bytes().unwrap_or(u64::MAX);
        let bytes = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
        Ok(Response::new(rpc::StatusResponse {
            header: Some(self.context.header()),
            version: claimed.clone(),
            db_size: bytes(status.sizes.total),
            leader: status.leader.map_or(0, |leader| leader.0),
            raft_index: status.committed_index,
            raft_term: status.term,
            raft_applied_index: status.applied_index,
            errors: status.errors,
            db_size_in_use: bytes(status.sizes.in_use),
            is_learner: status.is_learner,
            storage_version: storage_version(claimed),
            db_size_quota: bytes(quota),
            downgrade_info: Some(rpc::DowngradeInfo::default()),
        }))
    }

    async fn defragment(
        &self,
        request: Request<rpc::DefragmentRequest>,
    ) -> Result<Response<rpc::DefragmentResponse>, Status> {
        self.context.admit(request.metadata())?;
        tracing::info!("starting defragment");
        let start = Instant::now();
        if self.context.options().features.stops_serving_on_defrag {
            self.context.serving().pause("defrag is active");
        }
        let result = self.context.member().defragment().await;
        self.context.serving().resume();
        if let Err(error) = &result {
            tracing::warn!(error = %error, "failed to defragment");
        } else {
            self.context
                .metrics()
                .defrag_seconds
                .observe(start.elapsed());
            tracing::info!("finished defragment");
        }
        result.map_err(|error| status(&error))?;
        // etcd leaves this header out.
        Ok(Response::new(rpc::DefragmentResponse { header: None }))
    }

    async fn hash(
        &self,
        request: Request<rpc::HashRequest>,
    ) -> Result<Response<rpc::HashResponse>, Status> {
        self.context.admit(request.metadata())?;
        let state = self.context.state().clone();
        let start = Instant::now();
        let (revision, hash) = blocking(move || Ok((state.revision(), state.hash()?))).await?;
        self.context.metrics().hash_seconds.observe(start.elapsed());
        let header = Some(self.context.header_at(revision));
        Ok(Response::new(rpc::HashResponse { header, hash }))
    }

    async fn hash_kv(
        &self,
        request: Request<rpc::HashKvRequest>,
    ) -> Result<Response<rpc::HashKvResponse>, Status> {
        self.context.admit(request.metadata())?;
        let revision = request.get_ref().revision;
        let state = self.context.state().clone();
        let start = Instant::now();
        let hash = blocking(move || state.hash_kv(revision)).await?;
        self.context
            .metrics()
            .hash_rev_seconds
            .observe(start.elapsed());
        Ok(Response::new(rpc::HashKvResponse {
            header: Some(self.context.header_at(hash.current_revision)),
            hash: hash.hash,
            compact_revision: hash.compact_revision,
            hash_revision: hash.hash_revision,
        }))
    }

    type SnapshotStream = ReceiverStream<Result<rpc::SnapshotResponse, Status>>;

    async fn snapshot(
        &self,
        request: Request<rpc::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        self.context.admit_on_learner(request.metadata())?;
        let (sender, receiver) = mpsc::channel(snapshot::CHUNKS_WAITING_MAX);
        let context = self.context.clone();
        let runtime = tokio::runtime::Handle::current();
        // Ends by itself when the client goes away or stalls; it is awaited by nobody because
        // what it has to say goes into the stream.
        drop(tokio::task::spawn_blocking(move || {
            snapshot::send(&context, &sender, &runtime);
        }));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn move_leader(
        &self,
        request: Request<rpc::MoveLeaderRequest>,
    ) -> Result<Response<rpc::MoveLeaderResponse>, Status> {
        self.context.admit(request.metadata())?;
        let target = MemberId(request.get_ref().target_id);
        let moved = self.context.member().move_leader(target).await;
        moved.map_err(|error| status(&error))?;
        // etcd leaves this header out.
        Ok(Response::new(rpc::MoveLeaderResponse { header: None }))
    }

    async fn downgrade(
        &self,
        _request: Request<rpc::DowngradeRequest>,
    ) -> Result<Response<rpc::DowngradeResponse>, Status> {
        Err(status(&Error::Unimplemented { what: "Downgrade" }))
    }
}
