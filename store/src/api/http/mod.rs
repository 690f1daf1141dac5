//! HTTP on the client port and on `--listen-metrics-urls`: health, version, metrics.

mod health;
mod metrics;
mod peer;
mod peer_metrics;

use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, any, get};

use super::context::Context;
use super::maintenance::storage_version;

pub(super) use peer::{add_peer_paths, members_page};

/// The most of a call to an unknown service that is read before it is answered, and how long that
/// is waited for.
const UNKNOWN_CALL_BYTES_MAX: usize = 1 << 20;
const UNKNOWN_CALL_PATIENCE: Duration = Duration::from_millis(200);

/// Adds the HTTP paths of the client port.
pub(super) fn add_client_paths(router: Router, context: &Context) -> Router {
    let paths = health_paths()
        .route("/version", only_get(version))
        .with_state(context.clone());
    router.merge(paths).fallback(not_found)
}

/// What `--listen-metrics-urls` serves.
pub(super) fn metrics_paths(context: &Context) -> Router {
    health_paths().with_state(context.clone())
}

fn health_paths() -> Router<Context> {
    Router::new()
        .route("/metrics", any(metrics::page).options(nothing))
        .route("/health", only_get(health::health))
        .route("/livez", only_get(health::livez))
        .route("/livez/{check}", only_get(health::livez_check))
        .route("/readyz", only_get(health::readyz))
        .route("/readyz/{check}", only_get(health::readyz_check))
        .method_not_allowed_fallback(method_not_allowed)
}

/// GET, and nothing that stands for it, as in etcd: HEAD is refused. OPTIONS says nothing.
fn only_get<H, T>(handler: H) -> MethodRouter<Context>
where
    H: Handler<T, Context>,
    T: 'static,
{
    get(handler).head(method_not_allowed).options(nothing)
}

async fn nothing() {}

async fn version(State(context): State<Context>) -> Response {
    let claimed = &context.options().claimed_version;
    let cluster = context.state().cluster_version();
    let body = serde_json::json!({
        "etcdserver": claimed,
        "etcdcluster": cluster.as_deref().unwrap_or("not_decided"),
        "storage": storage_version(claimed),
    });
    ([(header::CONTENT_TYPE, "application/json")], ordered(&body)).into_response()
}

/// The object with its members in the order etcd writes them.
fn ordered(body: &serde_json::Value) -> String {
    let member = |name: &str| {
        format!(
            "\"{name}\":{}",
            body.get(name).unwrap_or(&serde_json::Value::Null)
        )
    };
    format!(
        "{{{},{},{}}}",
        member("etcdserver"),
        member("etcdcluster"),
        member("storage")
    )
}

async fn method_not_allowed() -> Response {
    plain_error(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
}

/// A path nobody serves; to a gRPC client, a call that is not implemented.
async fn not_found(request: Request) -> Response {
    if *request.method() == Method::OPTIONS {
        return StatusCode::OK.into_response();
    }
    let kind = request.headers().get(header::CONTENT_TYPE);
    let is_grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if !is_grpc {
        return plain_error(StatusCode::NOT_FOUND, "404 page not found");
    }
    let path = request.uri().path().trim_start_matches('/');
    let service = path.split('/').next().unwrap_or_default().to_owned();
    // An answer to a call that is not read to its end may be lost with the stream's reset.
    let body = axum::body::to_bytes(request.into_body(), UNKNOWN_CALL_BYTES_MAX);
    if tokio::time::timeout(UNKNOWN_CALL_PATIENCE, body)
        .await
        .is_err()
    {
        tracing::debug!(
            service,
            "an unknown call goes on; it is answered before its end"
        );
    }
    tonic::Status::unimplemented(format!("unknown service {service}")).into_http()
}

/// An error as Go's HTTP library writes it.
fn plain_error(code: StatusCode, text: &str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let mut response = (code, headers, format!("{text}\n")).into_response();
    if code == StatusCode::METHOD_NOT_ALLOWED {
        response
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static("GET"));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::{Body, Bytes};
    use futures::StreamExt as _;
    use futures::stream;

    use super::*;

    const PIECE_BYTES: usize = 64 << 10;

    /// A call of `pieces`, and then of silence when it `goes_on`; how many were read.
    async fn call(pieces: usize, goes_on: bool) -> usize {
        let read = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&read);
        let sent = stream::iter(0..pieces).map(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from(vec![0; PIECE_BYTES]))
        });
        let body = if goes_on {
            Body::from_stream(sent.chain(stream::pending()))
        } else {
            Body::from_stream(sent)
        };
        let request = Request::builder()
            .method(Method::POST)
            .uri("/no.such.Service/Call")
            .header(header::CONTENT_TYPE, "application/grpc")
            .body(body)
            .unwrap();
        let response = not_found(request).await;
        let status = tonic::Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), tonic::Code::Unimplemented);
        assert_eq!(status.message(), "unknown service no.such.Service");
        read.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn an_unknown_call_is_read_to_its_end_before_it_is_answered() {
        assert_eq!(call(10, false).await, 10);
    }

    #[tokio::test]
    async fn of_an_unknown_call_without_end_a_part_is_read_and_it_is_answered_all_the_same() {
        let limit = UNKNOWN_CALL_BYTES_MAX / PIECE_BYTES;
        assert_eq!(call(100 * limit, false).await, limit + 1);
        assert_eq!(call(3, true).await, 3);
    }
}
