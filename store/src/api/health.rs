//! gRPC's health service, as etcd answers it: one service, the server as a whole, which serves
//! from the moment the port does.

use std::collections::HashMap;
use std::pin::Pin;

use futures::Stream;
use holdfast_proto::grpc::health::health_check_response::ServingStatus;
use holdfast_proto::grpc::health::health_server::Health;
use holdfast_proto::grpc::health::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use super::context::Context;
use super::status::status as status_of;

/// The name of the server as a whole.
const WHOLE_SERVER: &str = "";

/// Whether the server as a whole takes calls; told to everybody who watches.
#[derive(Debug)]
pub(super) struct Serving(watch::Sender<bool>);

impl Serving {
    pub(super) fn new() -> Serving {
        say("SERVING", None);
        Serving(watch::Sender::new(true))
    }

    /// Says no until [`Serving::resume`].
    pub(super) fn pause(&self, reason: &'static str) {
        say("NOT_SERVING", Some(reason));
        self.0.send_replace(false);
    }

    /// Says yes again.
    pub(super) fn resume(&self) {
        say("SERVING", None);
        self.0.send_replace(true);
    }

    fn status(&self) -> ServingStatus {
        status(*self.0.borrow())
    }
}

fn say(status: &str, reason: Option<&str>) {
    let service = WHOLE_SERVER;
    match reason {
        None => tracing::info!(service, status, "grpc service status changed"),
        Some(reason) => {
            tracing::warn!(service, status, reason, "grpc service status changed");
        }
    }
}

fn status(is_serving: bool) -> ServingStatus {
    if is_serving {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}

/// Answers the Health service.
#[derive(Debug, Clone)]
pub(super) struct HealthService {
    context: Context,
}

impl HealthService {
    pub(super) fn new(context: Context) -> HealthService {
        HealthService { context }
    }

    /// As etcd, a learner does not answer here either.
    fn check_voter(&self) -> Result<(), Status> {
        self.context
            .check_voter()
            .map_err(|error| status_of(&error))
    }
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.check_voter()?;
        if request.get_ref().service != WHOLE_SERVER {
            return Err(Status::not_found("unknown service"));
        }
        Ok(Response::new(answer(self.context.serving().status())))
    }

    async fn list(
        &self,
        _request: Request<HealthListRequest>,
    ) -> Result<Response<HealthListResponse>, Status> {
        self.check_voter()?;
        let whole = answer(self.context.serving().status());
        let statuses = HashMap::from([(WHOLE_SERVER.to_owned(), whole)]);
        Ok(Response::new(HealthListResponse { statuses }))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.check_voter()?;
        let watcher = Watcher {
            changes: (request.get_ref().service == WHOLE_SERVER)
                .then(|| self.context.serving().0.subscribe()),
            last: None,
            context: self.context.clone(),
        };
        Ok(Response::new(Box::pin(futures::stream::try_unfold(
            watcher,
            |mut watcher| async move {
                let status = watcher.next().await?;
                Ok(Some((answer(status), watcher)))
            },
        ))))
    }
}

/// One client that waits for changes.
struct Watcher {
    /// `None`: for a service nobody knows, which never changes.
    changes: Option<watch::Receiver<bool>>,
    last: Option<ServingStatus>,
    context: Context,
}

impl Watcher {
    /// The next status that differs from the last one told.
    async fn next(&mut self) -> Result<ServingStatus, Status> {
        let stop = self.context.stop().clone();
        loop {
            let now = match &mut self.changes {
                None => ServingStatus::ServiceUnknown,
                Some(changes) => status(*changes.borrow_and_update()),
            };
            if self.last != Some(now) {
                self.last = Some(now);
                return Ok(now);
            }
            let ended = || Status::cancelled("Stream has ended.");
            let Some(changes) = &mut self.changes else {
                stop.cancelled().await;
                return Err(ended());
            };
            tokio::select! {
                () = stop.cancelled() => return Err(ended()),
                changed = changes.changed() => changed.map_err(|_closed| ended())?,
            }
        }
    }
}
