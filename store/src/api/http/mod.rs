//! HTTP on the client port and on `--listen-metrics-urls`: health, version, metrics.

mod health;
mod metrics;
mod peer;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use super::context::Context;
use super::maintenance::storage_version;

pub(super) use peer::add_peer_paths;

/// Adds the HTTP paths of the client port.
pub(super) fn add_client_paths(router: Router, context: &Context) -> Router {
    let paths = health_paths()
        .route("/version", get(version))
        .with_state(context.clone());
    router.merge(paths).fallback(not_found)
}

/// What `--listen-metrics-urls` serves.
pub(super) fn metrics_paths(context: &Context) -> Router {
    health_paths().with_state(context.clone())
}

fn health_paths() -> Router<Context> {
    Router::new()
        .route("/metrics", get(metrics::page))
        .route("/health", get(health::health))
        .route("/livez", get(health::livez))
        .route("/livez/{check}", get(health::livez_check))
        .route("/readyz", get(health::readyz))
        .route("/readyz/{check}", get(health::readyz_check))
        .method_not_allowed_fallback(method_not_allowed)
}

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
async fn not_found(headers: HeaderMap, uri: Uri) -> Response {
    let is_grpc = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if is_grpc {
        let service = uri
            .path()
            .trim_start_matches('/')
            .split('/')
            .next()
            .unwrap_or_default();
        return tonic::Status::unimplemented(format!("unknown service {service}")).into_http();
    }
    plain_error(StatusCode::NOT_FOUND, "404 page not found")
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
