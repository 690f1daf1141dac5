//! The Peer service, on the peer URLs: what other members ask.

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request as HttpRequest;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response as HttpResponse;
use futures::{Stream, StreamExt as _};
use holdfast_proto::peer::v1::peer_server::{Peer, PeerServer};
use holdfast_proto::peer::v1::{self as proto};
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

use super::context::blocking;
use super::http::members_page;
use super::messages::{Counted, Passed};
use crate::apply::LogPosition;
use crate::consensus::peer::{Answer, PEER_MESSAGE_BYTES_MAX, caller, change_from_request};
use crate::error::Error;
use crate::failpoint::{self, Point};
use crate::lease::LeaseId;
use crate::member::Member;

/// What other members call, until `stop`, and where those that are to be ones find the members.
pub fn peer_routes(member: &Member, stop: CancellationToken) -> Routes {
    let peer = PeerServer::new(PeerService::new(member.clone(), stop))
        .max_decoding_message_size(PEER_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(PEER_MESSAGE_BYTES_MAX);
    let calls = Routes::new(peer).into_axum_router();
    Routes::from(calls.merge(members_page(member)))
}

/// The same, with the bytes of requests and answers counted for the members that call.
pub(super) fn counted(router: Router, member: &Member) -> Router {
    router.layer(from_fn_with_state(member.clone(), count))
}

async fn count(
    State(member): State<Member>,
    request: HttpRequest<Body>,
    next: Next,
) -> HttpResponse {
    let traffic = caller(request.headers()).and_then(|from| {
        // Known are those that were let in before: not everybody can have a counter.
        member.peer_calls().traffics().known(from)
    });
    let Some(traffic) = traffic else {
        return next.run(request).await;
    };
    let received = Arc::clone(&traffic);
    let request = request.map(|body| {
        Body::new(Counted::new(body, move |passed: Passed| {
            received.received_bytes.add(passed.bytes);
        }))
    });
    next.run(request).await.map(|body| {
        Body::new(Counted::new(body, move |passed: Passed| {
            traffic.sent_bytes.add(passed.bytes);
        }))
    })
}

/// Answers the Peer service.
#[derive(Debug, Clone)]
struct PeerService {
    member: Member,
    stop: CancellationToken,
}

impl PeerService {
    fn new(member: Member, stop: CancellationToken) -> PeerService {
        PeerService { member, stop }
    }

    /// Who calls; refused before anything of the call is looked at.
    fn admit(&self, metadata: &MetadataMap) -> Result<u64, Status> {
        let state = self.member.state();
        self.member
            .peer_calls()
            .admit(metadata, |from| state.is_removed(from))
    }
}

fn position(at: LogPosition) -> proto::LogId {
    proto::LogId {
        term: at.term,
        index: at.index,
    }
}

fn answer<A: Answer>(result: Result<A::Value, Error>) -> Response<A> {
    Response::new(A::of(result))
}

#[tonic::async_trait]
impl Peer for PeerService {
    type AppendStream = Pin<Box<dyn Stream<Item = Result<proto::AppendResponse, Status>> + Send>>;

    async fn append(
        &self,
        request: Request<Streaming<proto::AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let from = self.admit(request.metadata())?;
        let answers = self.member.peer_calls().append(from, request.into_inner());
        // The stream never ends by itself, and a stop does not wait for it.
        let answers = answers.take_until(self.stop.clone().cancelled_owned());
        Ok(Response::new(Box::pin(answers)))
    }

    async fn probe(
        &self,
        request: Request<proto::AppendRequest>,
    ) -> Result<Response<proto::AppendResponse>, Status> {
        let from = self.admit(request.metadata())?;
        let calls = self.member.peer_calls();
        calls
            .probe(from, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn vote(
        &self,
        request: Request<proto::VoteRequest>,
    ) -> Result<Response<proto::VoteResponse>, Status> {
        let from = self.admit(request.metadata())?;
        let calls = self.member.peer_calls();
        calls
            .vote(from, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn pre_vote(
        &self,
        request: Request<proto::VoteRequest>,
    ) -> Result<Response<proto::VoteResponse>, Status> {
        let from = self.admit(request.metadata())?;
        let calls = self.member.peer_calls();
        calls
            .pre_vote(from, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<proto::SnapshotRequest>>,
    ) -> Result<Response<proto::SnapshotResponse>, Status> {
        let from = self.admit(request.metadata())?;
        let calls = self.member.peer_calls();
        let answer = calls.snapshot(from, request.into_inner()).await;
        answer.map(Response::new)
    }

    async fn snapshot_offset(
        &self,
        request: Request<proto::SnapshotOffsetRequest>,
    ) -> Result<Response<proto::SnapshotOffsetResponse>, Status> {
        let from = self.admit(request.metadata())?;
        let calls = self.member.peer_calls();
        let answer = calls.snapshot_offset(from, request.get_ref()).await;
        Ok(Response::new(answer))
    }

    async fn transfer_leader(
        &self,
        request: Request<proto::TransferLeaderRequest>,
    ) -> Result<Response<proto::TransferLeaderResponse>, Status> {
        let from = self.admit(request.metadata())?;
        let calls = self.member.peer_calls();
        let answer = calls.transfer_leader(from, request.into_inner()).await;
        answer.map(Response::new)
    }

    async fn propose(
        &self,
        request: Request<proto::ProposeRequest>,
    ) -> Result<Response<proto::ProposeResponse>, Status> {
        self.admit(request.metadata())?;
        let commands = request.into_inner().commands;
        let results = self.member.propose_for_peer(commands).await.into_iter();
        let proposed = results.map(|result| proto::Proposed::of(result.map(position)));
        Ok(Response::new(proto::ProposeResponse {
            proposed: proposed.collect(),
        }))
    }

    async fn read_index(
        &self,
        request: Request<proto::ReadIndexRequest>,
    ) -> Result<Response<proto::ReadIndexResponse>, Status> {
        self.admit(request.metadata())?;
        Ok(answer(self.member.confirmed_index().await.map(position)))
    }

    async fn reconfigure(
        &self,
        request: Request<proto::ReconfigureRequest>,
    ) -> Result<Response<proto::ReconfigureResponse>, Status> {
        self.admit(request.metadata())?;
        let change = change_from_request(request.into_inner()).ok_or_else(|| {
            Status::invalid_argument("a change of the membership that is unknown")
        })?;
        Ok(answer(
            self.member
                .reconfigure_for_peer(&change)
                .await
                .map(position),
        ))
    }

    async fn lease_renew(
        &self,
        request: Request<proto::LeaseRenewRequest>,
    ) -> Result<Response<proto::LeaseRenewResponse>, Status> {
        self.admit(request.metadata())?;
        failpoint::pause(Point::BeforeServeHttpLeaseRenew).await;
        let id = LeaseId(request.get_ref().id);
        Ok(answer(self.member.renew_lease_here(id).await))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<proto::LeaseTimeToLiveRequest>,
    ) -> Result<Response<proto::LeaseTimeToLiveResponse>, Status> {
        self.admit(request.metadata())?;
        failpoint::pause(Point::BeforeLookupWhenForwardLeaseTimeToLive).await;
        let proto::LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        let found = self.member.lease_time_here(LeaseId(id), keys).await;
        Ok(answer(found.map(|found| match found {
            Some(time) => proto::LeaseTime {
                ttl: time.ttl_s,
                granted_ttl: time.granted_ttl_s,
                keys: time.keys,
            },
            None => proto::LeaseTime {
                ttl: -1,
                ..proto::LeaseTime::default()
            },
        })))
    }

    async fn introduce(
        &self,
        request: Request<proto::IntroduceRequest>,
    ) -> Result<Response<proto::IntroduceResponse>, Status> {
        let from = self.admit(request.metadata())?;
        let members = self.member.state().members();
        let mut known = members.iter().filter(|known| known.id == from);
        let has_served = known.any(|known| !known.client_urls.is_empty());
        Ok(Response::new(proto::IntroduceResponse { has_served }))
    }

    async fn hash_kv(
        &self,
        request: Request<proto::HashKvRequest>,
    ) -> Result<Response<proto::HashKvResponse>, Status> {
        self.admit(request.metadata())?;
        let revision = request.get_ref().revision;
        let state = self.member.state().clone();
        let hashed = blocking(move || Ok(state.hash_kv(revision))).await?;
        Ok(answer(hashed.map(|hash| proto::HashKv {
            hash: hash.hash,
            compact_revision: hash.compact_revision,
            hash_revision: hash.hash_revision,
            current_revision: hash.current_revision,
        })))
    }
}
