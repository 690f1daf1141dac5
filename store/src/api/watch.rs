//! The Watch service: carries requests into a session and its responses out.

use std::pin::Pin;
use std::time::Duration;

use futures::Stream;
use holdfast_proto::etcd::rpc::{self, watch_request::RequestUnion, watch_server::Watch};
use rand::RngExt as _;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tonic::{Request, Response, Status, Streaming};

use super::context::{Context, wants_leader};
use super::status::status;
use crate::error::Error;
use crate::failpoint::{self, Point};
use crate::watch::{SessionOptions, WatchSession};

/// Election timeouts without a leader after which a stream that wants one is ended.
const LEADERLESS_MAX: u32 = 3;

/// Answers the Watch service.
#[derive(Debug, Clone)]
pub(super) struct WatchService {
    context: Context,
}

impl WatchService {
    pub(super) fn new(context: Context) -> WatchService {
        WatchService { context }
    }
}

#[tonic::async_trait]
impl Watch for WatchService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<rpc::WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<rpc::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.context.admit(request.metadata())?;
        let options = SessionOptions {
            fragment_bytes: self.context.message_bytes_max(),
        };
        let session = self
            .context
            .hub()
            .session(options)
            .map_err(|error| status(&error))?;
        let stream = WatchStream {
            wants_leader: wants_leader(request.metadata()),
            inbound: Some(request.into_inner()),
            session,
            progress: progress_interval(self.context.options().watch_progress_interval),
            leader: leader_interval(self.context.options().raft.election_timeout),
            leaderless: 0,
            context: self.context.clone(),
        };
        Ok(Response::new(Box::pin(futures::stream::try_unfold(
            stream,
            |mut stream| async move {
                let response = stream.next().await?;
                Ok(Some((response, stream)))
            },
        ))))
    }
}

/// One stream of a client. Driven by the client's reading: nothing happens while it does not read.
struct WatchStream {
    context: Context,
    /// Gone once the client has sent all its requests; the watches go on.
    inbound: Option<Streaming<rpc::WatchRequest>>,
    session: WatchSession,
    progress: Interval,
    leader: Interval,
    wants_leader: bool,
    leaderless: u32,
}

/// What happens next on a stream.
enum Step {
    Request(Option<rpc::WatchRequest>),
    Response(rpc::WatchResponse),
    Progress,
    LeaderCheck,
    Stop,
}

impl WatchStream {
    async fn next(&mut self) -> Result<rpc::WatchResponse, Status> {
        loop {
            match self.step().await? {
                Step::Request(Some(request)) => self.take(request),
                Step::Request(None) => self.inbound = None,
                Step::Response(mut response) => {
                    failpoint::pause(Point::BeforeSendWatchResponse).await;
                    let revision = response.header.map_or(0, |header| header.revision);
                    response.header = Some(self.context.header_at(revision));
                    return Ok(response);
                }
                Step::Progress => self.session.tick_progress(),
                Step::LeaderCheck => self.check_leader()?,
                Step::Stop => return Err(status(&Error::Stopped)),
            }
        }
    }

    async fn step(&mut self) -> Result<Step, Status> {
        let inbound = &mut self.inbound;
        let request = async {
            match inbound {
                Some(inbound) => inbound.message().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.context.stop().cancelled() => Ok(Step::Stop),
            request = request => request.map(Step::Request),
            response = self.session.next() => Ok(Step::Response(response)),
            _ = self.progress.tick() => Ok(Step::Progress),
            _ = self.leader.tick(), if self.wants_leader => Ok(Step::LeaderCheck),
        }
    }

    fn take(&mut self, request: rpc::WatchRequest) {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => match self.context.check_auth() {
                Ok(()) => self.session.create(create),
                Err(error) => self.session.refuse(status(&error).message().to_owned()),
            },
            Some(RequestUnion::CancelRequest(cancel)) => self.session.cancel(cancel.watch_id),
            Some(RequestUnion::ProgressRequest(_)) => self.session.request_progress(),
            None => tracing::info!("invalid watch request received in gRPC stream"),
        }
    }

    fn check_leader(&mut self) -> Result<(), Status> {
        if self.context.member().leader().is_some() {
            self.leaderless = 0;
            return Ok(());
        }
        self.leaderless += 1;
        if self.leaderless >= LEADERLESS_MAX {
            return Err(status(&Error::NoLeader));
        }
        Ok(())
    }
}

/// Ticks of progress notifications, spread so that streams opened together do not tick together.
fn progress_interval(interval: Duration) -> Interval {
    let jitter = interval.mul_f64(rand::rng().random_range(0.0..0.1));
    every(interval + jitter)
}

fn leader_interval(election_timeout: Duration) -> Interval {
    every(election_timeout)
}

fn every(period: Duration) -> Interval {
    let period = period.max(Duration::from_millis(1));
    let mut interval = tokio::time::interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
