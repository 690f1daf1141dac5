//! Counts and times gRPC calls and their messages, logs slow ones, and gives a message that is too
//! large Go's code instead of tonic's.

use std::collections::HashMap;
use std::str::Utf8Error;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Frame;
use tokio::time::Instant;

use super::front::{Answer, Inner};
use super::messages::Messages;
use super::stats::{self, Remote, Stats};
use crate::metrics::{Counter, Exposition, Histogram, Metrics, Outcomes};
use crate::options::MetricsDetail;

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
const METHODS: [(&str, &str, &str); 27] = [
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
    ("grpc.health.v1.Health", "Check", "unary"),
    ("grpc.health.v1.Health", "List", "unary"),
    ("grpc.health.v1.Health", "Watch", "server_stream"),
];

static PATHS: LazyLock<HashMap<String, usize>> = LazyLock::new(|| {
    let path = |(at, (service, method, _)): (usize, &(&str, &str, &str))| {
        (format!("/{service}/{method}"), at)
    };
    METHODS.iter().enumerate().map(path).collect()
});

/// The service whose calls log themselves when they are slow, with what they asked for.
const KV: &str = "etcdserverpb.KV";

/// One of a method's counters.
type Pick = fn(&MethodCounters) -> &Counter;

/// Calls by method and outcome.
#[derive(Debug)]
pub(crate) struct CallCounters {
    methods: [MethodCounters; METHODS.len()],
    /// Of each method, until the answer is complete; kept with extensive metrics only.
    handling: Option<[Histogram; METHODS.len()]>,
}

#[derive(Debug)]
struct MethodCounters {
    started: Counter,
    handled: [Counter; CODES.len()],
    received: Counter,
    sent: Counter,
    /// Of unary calls, until the answer is there.
    seconds: Outcomes,
}

impl Default for MethodCounters {
    fn default() -> Self {
        Self {
            started: Counter::default(),
            handled: Default::default(),
            received: Counter::default(),
            sent: Counter::default(),
            seconds: Outcomes::of_requests(),
        }
    }
}

impl CallCounters {
    pub(crate) fn new(detail: MetricsDetail) -> CallCounters {
        let is_extensive = detail == MetricsDetail::Extensive;
        CallCounters {
            methods: std::array::from_fn(|_| MethodCounters::default()),
            handling: is_extensive.then(|| std::array::from_fn(|_| Histogram::of_handling())),
        }
    }

    fn of(&self, method: Method, count: impl FnOnce(&MethodCounters)) {
        if let Some(counters) = self.methods.get(method.0) {
            count(counters);
        }
    }

    /// Counts a call whose answer is complete.
    fn handled(&self, method: Method, code: usize, start: Instant) {
        self.of(method, |counters| {
            if let Some(counter) = counters.handled.get(code) {
                counter.add(1);
            }
        });
        let handling = self.handling.as_ref();
        if let Some(histogram) = handling.and_then(|methods| methods.get(method.0)) {
            histogram.observe(start.elapsed());
        }
    }

    /// Counts messages that came in.
    pub(super) fn received(&self, method: Method, messages: u64) {
        self.of(method, |counters| counters.received.add(messages));
    }

    /// Writes the counters; outcomes that never happened are left out.
    pub(crate) fn write(&self, out: &mut Exposition) {
        const HANDLED: &str = "grpc_server_handled_total";
        const HANDLING: &str = "grpc_server_handling_seconds";
        const SECONDS: &str = "etcd_server_request_duration_seconds";
        let labelled = || METHODS.iter().map(labels).zip(&self.methods);
        let families: [(_, Pick); 3] = [
            ("grpc_server_started_total", |method| &method.started),
            ("grpc_server_msg_received_total", |method| &method.received),
            ("grpc_server_msg_sent_total", |method| &method.sent),
        ];
        for (name, counter) in families {
            out.family(name);
            for (labels, method) in labelled() {
                out.sample(name, &labels, counter(method).get());
            }
        }
        out.family(HANDLED);
        for (labels, method) in labelled() {
            for (code, counter) in CODES.iter().zip(&method.handled) {
                if counter.get() > 0 {
                    let labels = [&[("grpc_code", *code)], labels.as_slice()].concat();
                    out.sample(HANDLED, &labels, counter.get());
                }
            }
        }
        if let Some(handling) = &self.handling {
            out.family(HANDLING);
            for (method, histogram) in METHODS.iter().zip(handling) {
                out.observations(HANDLING, &labels(method), histogram);
            }
        }
        out.family(SECONDS);
        for ((_, name, _), method) in METHODS.iter().zip(&self.methods) {
            // etcd names this one after the request.
            let kind = if *name == "Compact" {
                "Compaction"
            } else {
                name
            };
            method.seconds.write(out, SECONDS, &[("type", kind)]);
        }
    }
}

fn labels(
    (service, name, kind): &(&'static str, &'static str, &'static str),
) -> [(&'static str, &'static str); 3] {
    [
        ("grpc_method", name),
        ("grpc_service", service),
        ("grpc_type", kind),
    ]
}

/// A method whose calls are counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Method(usize);

impl Method {
    /// The method of a path, if it is one.
    pub(super) fn of(path: &str) -> Option<Method> {
        PATHS.get(path).copied().map(Method)
    }

    fn is(self, test: impl FnOnce(&(&str, &str, &str)) -> bool) -> bool {
        METHODS.get(self.0).is_some_and(test)
    }

    pub(super) fn is_unary(self) -> bool {
        self.is(|(_, _, kind)| *kind == "unary")
    }

    pub(super) fn is_kv(self) -> bool {
        self.is(|(service, ..)| *service == KV)
    }
}

/// What the client says its version is, if anything; an error when that is not text.
pub(super) fn client_version(headers: &HeaderMap) -> Result<Option<&str>, Utf8Error> {
    let version = headers.get("client-api-version");
    version
        .map(|value| std::str::from_utf8(value.as_bytes()))
        .transpose()
}

/// One call; counts as cancelled when it is dropped before its outcome.
pub(super) struct Call {
    metrics: Arc<Metrics>,
    method: Method,
    start: Instant,
    remote: Option<Remote>,
    messages: Messages,
    is_done: bool,
}

impl Call {
    pub(super) fn start<B>(metrics: &Arc<Metrics>, method: Method, request: &Request<B>) -> Call {
        metrics.calls.of(method, |counters| counters.started.add(1));
        Call {
            metrics: Arc::clone(metrics),
            method,
            start: Instant::now(),
            remote: request.extensions().get().copied(),
            messages: Messages::default(),
            is_done: false,
        }
    }

    /// The answer's head is there; what follows is watched.
    pub(super) fn answered(
        mut self,
        mut response: Response<Inner>,
        slow: Duration,
    ) -> Response<Answer> {
        rewrite_too_large(response.headers_mut());
        let code = code(response.headers());
        self.time(code.is_none_or(|code| code == 0), slow);
        if let Some(code) = code {
            self.finish(code);
            return response.map(|inner| Answer::new(inner, None));
        }
        response.map(|inner| Answer::new(inner, Some(self)))
    }

    /// Counts what a piece of the answer's body brings; its trailers tell the outcome.
    pub(super) fn look(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            let passed = self.messages.pass(data);
            self.metrics.sent_bytes.add(passed.bytes);
            let count = |counters: &MethodCounters| counters.sent.add(passed.messages);
            self.metrics.calls.of(self.method, count);
        } else if let Some(code) = frame.trailers_ref().and_then(code) {
            self.finish(code);
        }
    }

    fn time(&self, is_success: bool, slow: Duration) {
        if !self.method.is_unary() {
            return;
        }
        let spent = self.start.elapsed();
        self.metrics.calls.of(self.method, |counters| {
            counters.seconds.observe(is_success, spent);
        });
        let Some((service, name, _)) = METHODS.get(self.method.0) else {
            return;
        };
        if spent > slow && !(is_success && *service == KV) {
            let path = format!("/{service}/{name}");
            stats::log(&path, spent, self.remote, &Stats::UNKNOWN);
        }
    }

    fn finish(&mut self, code: usize) {
        if !self.is_done {
            self.is_done = true;
            let calls = &self.metrics.calls;
            calls.handled(self.method, code, self.start);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.finish(CANCELED);
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
