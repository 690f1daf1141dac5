//! The way in of every request: gRPC calls are counted and timed, and those that come by the
//! thousand, KV's, take the shortest way. All others go by the router.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, Request, Response};
use holdfast_proto::etcd::rpc::kv_server::KvServer;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tower::Service as _;

use super::deadline;
use super::kv::KvService;
use super::messages::{Counted, Passed};
use super::observe::{Call, Method, client_version};
use super::stats::Remote;
use super::status::status;
use crate::error::Error;
use crate::metrics::Metrics;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Answers the requests of one kind of address.
pub(super) struct Front {
    calls: Option<Calls>,
    router: Router,
}

/// What gRPC calls go by.
struct Calls {
    kv: KvServer<KvService>,
    metrics: Arc<Metrics>,
    /// Unary calls that take longer are logged.
    slow: Duration,
}

impl Front {
    /// Answers HTTP requests only.
    pub(super) fn http(router: Router) -> Front {
        Front {
            calls: None,
            router,
        }
    }

    /// Answers gRPC calls as well: KV's by `kv`, which `router` has too.
    pub(super) fn grpc(
        kv: KvServer<KvService>,
        router: Router,
        metrics: &Arc<Metrics>,
        slow: Duration,
    ) -> Front {
        let calls = Calls {
            kv,
            metrics: Arc::clone(metrics),
            slow,
        };
        Front {
            calls: Some(calls),
            router,
        }
    }

    /// Answers one request of a client at `peer`.
    pub(super) async fn answer<B>(
        &self,
        peer: Option<SocketAddr>,
        mut request: Request<B>,
    ) -> Response<Answer>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError> + Send,
    {
        if let Some(peer) = peer {
            request.extensions_mut().insert(Remote(peer));
        }
        let deadline = match deadline::read(request.headers()) {
            Ok(deadline) => deadline,
            Err(refused) => return deadline::refusal(refused).map(Answer::unwatched),
        };
        let method = Method::of(request.uri().path());
        let Some((calls, method)) = self.calls.as_ref().zip(method) else {
            let routed = async { self.route(request).await.map(Inner::Http) };
            let routed = deadline::answer(deadline, routed).await;
            return routed.map(|inner| Answer::new(inner, None));
        };
        let call = Call::start(&calls.metrics, method, &request);
        let Ok(version) = client_version(request.headers()) else {
            let refused = status(&Error::InvalidClientApiVersion).into_http();
            return call.answered(refused.map(Inner::Http), calls.slow);
        };
        calls.metrics.clients.count(!method.is_unary(), version);
        let metrics = Arc::clone(&calls.metrics);
        let request = request.map(|body| {
            Counted::new(body, move |passed: Passed| {
                metrics.received_bytes.add(passed.bytes);
                metrics.calls.received(method, passed.messages);
            })
        });
        let answered = async {
            if method.is_kv() {
                match calls.kv.clone().call(request).await {
                    Ok(response) => response.map(Inner::Grpc),
                    Err(never) => match never {},
                }
            } else {
                self.route(request).await.map(Inner::Http)
            }
        };
        let response = deadline::answer(deadline, answered).await;
        let response = call.answered(response, calls.slow);
        match deadline.filter(|_| !method.is_unary()) {
            Some(deadline) => response.map(|answer| answer.until(deadline)),
            None => response,
        }
    }

    async fn route<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let routed: Result<_, Infallible> = self.router.clone().call(request).await;
        match routed {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// The body of an answer, as it came from who answered.
pub(super) enum Inner {
    Grpc(tonic::body::Body),
    Http(Body),
}

/// The body of an answer. What passes is counted for its call, if it is one.
pub(super) struct Answer {
    inner: Inner,
    call: Option<Call>,
    /// When a stream ends, whatever is still to come.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Answer {
    pub(super) fn unwatched(body: Body) -> Answer {
        Answer {
            inner: Inner::Http(body),
            call: None,
            deadline: None,
        }
    }

    pub(super) fn new(inner: Inner, call: Option<Call>) -> Answer {
        Answer {
            inner,
            call,
            deadline: None,
        }
    }

    /// Ends at `deadline`, and says why.
    fn until(self, deadline: Instant) -> Answer {
        Answer {
            deadline: (!self.is_end_stream()).then(|| Box::pin(sleep_until(deadline))),
            ..self
        }
    }

    /// The last piece of a stream whose time is over; what would have followed is dropped.
    fn cut(&mut self) -> Frame<Bytes> {
        self.deadline = None;
        self.inner = Inner::Http(Body::empty());
        let mut trailers = HeaderMap::new();
        if let Err(error) = deadline::over().add_header(&mut trailers) {
            tracing::warn!(%error, "the end of a stream cannot be told");
        }
        Frame::trailers(trailers)
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let is_over = |deadline: &mut Pin<Box<Sleep>>| deadline.as_mut().poll(cx).is_ready();
        if self.deadline.as_mut().is_some_and(is_over) {
            let last = self.cut();
            if let Some(call) = &mut self.call {
                call.look(&last);
            }
            return Poll::Ready(Some(Ok(last)));
        }
        let frame = match &mut self.inner {
            Inner::Grpc(body) => Pin::new(body).poll_frame(cx).map_err(BoxError::from),
            Inner::Http(body) => Pin::new(body).poll_frame(cx).map_err(BoxError::from),
        };
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(call) = &mut self.call
        {
            call.look(frame);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Grpc(body) => body.is_end_stream(),
            Inner::Http(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Grpc(body) => body.size_hint(),
            Inner::Http(body) => body.size_hint(),
        }
    }
}
