//! Counts gRPC calls, and gives a message that is too large Go's code instead of tonic's.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::{Frame, SizeHint};
use tower::Service;
use tower::layer::layer_fn;

use crate::metrics::{Counter, Exposition, Kind, Metrics};

/// Names of gRPC's codes, by number, as Go's metrics spell them.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// The number of gRPC's code for a call whose client went away.
const CANCELED: usize = 1;

/// Service, method and kind of every call that is answered.
const METHODS: [(&str, &str, &str); 24] = [
    ("etcdserverpb.KV", "Range", "unary"),
    ("etcdserverpb.KV", "RangeStream", "server_stream"),
    ("etcdserverpb.KV", "Put", "unary"),
    ("etcdserverpb.KV", "DeleteRange", "unary"),
    ("etcdserverpb.KV", "Txn", "unary"),
    ("etcdserverpb.KV", "Compact", "unary"),
    ("etcdserverpb.Watch", "Watch", "bidi_stream"),
    ("etcdserverpb.Lease", "LeaseGrant", "unary"),
    ("etcdserverpb.Lease", "LeaseRevoke", "unary"),
    ("etcdserverpb.Lease", "LeaseKeepAlive", "bidi_stream"),
    ("etcdserverpb.Lease", "LeaseTimeToLive", "unary"),
    ("etcdserverpb.Lease", "LeaseLeases", "unary"),
    ("etcdserverpb.Cluster", "MemberAdd", "unary"),
    ("etcdserverpb.Cluster", "MemberRemove", "unary"),
    ("etcdserverpb.Cluster", "MemberUpdate", "unary"),
    ("etcdserverpb.Cluster", "MemberList", "unary"),
    ("etcdserverpb.Cluster", "MemberPromote", "unary"),
    ("etcdserverpb.Maintenance", "Alarm", "unary"),
    ("etcdserverpb.Maintenance", "Status", "unary"),
    ("etcdserverpb.Maintenance", "Defragment", "unary"),
    ("etcdserverpb.Maintenance", "Hash", "unary"),
    ("etcdserverpb.Maintenance", "HashKV", "unary"),
    ("etcdserverpb.Maintenance", "Snapshot", "server_stream"),
    ("etcdserverpb.Maintenance", "MoveLeader", "unary"),
];

static PATHS: LazyLock<HashMap<String, usize>> = LazyLock::new(|| {
    let path = |(at, (service, method, _)): (usize, &(&str, &str, &str))| {
        (format!("/{service}/{method}"), at)
    };
    METHODS.iter().enumerate().map(path).collect()
});

/// Calls by method and outcome.
#[derive(Debug, Default)]
pub(crate) struct CallCounters {
    methods: [MethodCounters; METHODS.len()],
}

#[derive(Debug, Default)]
struct MethodCounters {
    started: Counter,
    handled: [Counter; CODES.len()],
}

impl CallCounters {
    fn started(&self, method: usize) {
        if let Some(method) = self.methods.get(method) {
            method.started.add(1);
        }
    }

    fn handled(&self, method: usize, code: usize) {
        let method = self.methods.get(method);
        if let Some(counter) = method.and_then(|method| method.handled.get(code)) {
            counter.add(1);
        }
    }

    /// Writes the counters; outcomes that never happened are left out.
    pub(crate) fn write(&self, out: &mut Exposition) {
        const STARTED: &str = "grpc_server_started_total";
        const HANDLED: &str = "grpc_server_handled_total";
        let labels = |at: usize| METHODS.get(at).copied().unwrap_or_default();
        out.family(
            STARTED,
            "Total number of RPCs started on the server.",
            Kind::Counter,
        );
        for (at, method) in self.methods.iter().enumerate() {
            let (service, name, kind) = labels(at);
            let labels = [
                ("grpc_method", name),
                ("grpc_service", service),
                ("grpc_type", kind),
            ];
            out.sample(STARTED, &labels, method.started.get());
        }
        let help =
            "Total number of RPCs completed on the server, regardless of success or failure.";
        out.family(HANDLED, help, Kind::Counter);
        for (at, method) in self.methods.iter().enumerate() {
            let (service, name, kind) = labels(at);
            for (code, counter) in CODES.iter().zip(&method.handled) {
                if counter.get() > 0 {
                    let labels = [
                        ("grpc_code", *code),
                        ("grpc_method", name),
                        ("grpc_service", service),
                        ("grpc_type", kind),
                    ];
                    out.sample(HANDLED, &labels, counter.get());
                }
            }
        }
    }
}

/// Wraps every gRPC route.
pub(super) fn layer(router: Router, metrics: &Arc<Metrics>) -> Router {
    let metrics = Arc::clone(metrics);
    router.layer(layer_fn(move |inner| Observe {
        inner,
        metrics: Arc::clone(&metrics),
    }))
}

/// A service that counts.
#[derive(Clone)]
struct Observe<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S> Service<Request<Body>> for Observe<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = PATHS.get(request.uri().path()).map(|method| {
            self.metrics.calls.started(*method);
            Call {
                metrics: Arc::clone(&self.metrics),
                method: *method,
                is_done: false,
            }
        });
        let response = self.inner.call(request);
        let Some(mut call) = call else {
            return Box::pin(response);
        };
        Box::pin(async move {
            let mut response = response.await?;
            rewrite_too_large(response.headers_mut());
            if let Some(code) = code(response.headers()) {
                call.finish(code);
                return Ok(response);
            }
            Ok(response.map(|inner| Body::new(Observed { inner, call })))
        })
    }
}

/// One call; counts as cancelled when it is dropped before its outcome.
struct Call {
    metrics: Arc<Metrics>,
    method: usize,
    is_done: bool,
}

impl Call {
    fn finish(&mut self, code: usize) {
        if !self.is_done {
            self.is_done = true;
            self.metrics.calls.handled(self.method, code);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.finish(CANCELED);
    }
}

/// A body whose trailers tell the outcome.
struct Observed {
    inner: Body,
    call: Call,
}

impl HttpBody for Observed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(code) = frame.trailers_ref().and_then(code)
        {
            self.call.finish(code);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The outcome that headers or trailers tell.
fn code(headers: &HeaderMap) -> Option<usize> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// tonic refuses a message over the limit as out of range; Go, and so etcd, as resource exhausted.
fn rewrite_too_large(headers: &mut HeaderMap) {
    let is_too_large = headers.get("grpc-status").is_some_and(|code| code == "11")
        && headers
            .get("grpc-message")
            .and_then(|text| text.to_str().ok())
            .is_some_and(|text| text.contains("decoded") && text.contains("too%20large"));
    if !is_too_large {
        return;
    }
    let sizes: Vec<String> = headers
        .get("grpc-message")
        .and_then(|text| text.to_str().ok())
        .map(|text| {
            let text = text.replace("%20", " ");
            text.split(' ')
                .filter(|word| word.parse::<u64>().is_ok())
                .map(str::to_owned)
                .collect()
        })
        .unwrap_or_default();
    let text = match sizes.as_slice() {
        [size, limit] => {
            format!("grpc:%20received%20message%20larger%20than%20max%20({size}%20vs.%20{limit})")
        }
        _ => "grpc:%20received%20message%20larger%20than%20max".to_owned(),
    };
    headers.insert("grpc-status", HeaderValue::from_static("8"));
    if let Ok(text) = HeaderValue::from_str(&text) {
        headers.insert("grpc-message", text);
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue};

    #[test]
    fn a_message_that_is_too_large_gets_gos_code_and_text() {
        let error = tonic::Status::out_of_range(
            "Error, decoded message length too large: found 9 bytes, the limit is: 4 bytes",
        );
        let mut headers = HeaderMap::new();
        error.add_header(&mut headers).unwrap();
        super::rewrite_too_large(&mut headers);
        let status = tonic::Status::from_header_map(&headers).unwrap();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        assert_eq!(
            status.message(),
            "grpc: received message larger than max (9 vs. 4)"
        );
        let mut other = HeaderMap::new();
        other.insert("grpc-status", HeaderValue::from_static("11"));
        super::rewrite_too_large(&mut other);
        assert_eq!(other["grpc-status"], "11");
    }
}
