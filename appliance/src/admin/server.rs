//! The HTTP server of the admin port. It reads and never changes anything.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{metrics, page};
use crate::failure::{Failure, OrFail as _};
use crate::health::SourceStatus;
use crate::jobs::board::Board;
use crate::jobs::capture::Tallies;
use crate::jobs::turn::Turn;
use crate::stores::RunningMember;

/// What the pages are made from.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    /// What the jobs of this process did.
    pub(crate) board: Board,
    /// What was captured by this process.
    pub(crate) tallies: Tallies,
    /// What the vault says, refreshed after each job and every minute.
    pub(crate) evidence: watch::Receiver<Vec<SourceStatus>>,
    /// Whose turn it is to run the jobs.
    pub(crate) turn: watch::Receiver<Turn>,
    /// The bundled store, where there is one.
    pub(crate) member: Option<RunningMember>,
}

impl Shared {
    /// Whose turn it is, in a cluster.
    fn turn(&self) -> Option<Turn> {
        let turn = self.turn.borrow().clone();
        turn.term.is_some().then_some(turn)
    }

    fn evidence(&self) -> Vec<SourceStatus> {
        let mut all = self.evidence.borrow().clone();
        for status in &mut all {
            status.turn = self.turn();
        }
        all
    }
}

/// The bound port.
#[derive(Debug)]
pub(crate) struct Admin {
    listener: TcpListener,
    shared: Arc<Shared>,
}

#[derive(Serialize)]
struct Health {
    is_healthy: bool,
    reasons: Vec<String>,
    /// In a cluster: whose turn it is. One that stands by is healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<Turn>,
}

impl Admin {
    /// Binds `address` (`host:port`).
    pub(crate) async fn bind(address: &str, shared: Shared) -> Result<Self, Failure> {
        let listener = TcpListener::bind(address).await.or_fail(format!(
            "the admin port {address} (`appliance.admin.listen`) cannot be opened"
        ))?;
        Ok(Self {
            listener,
            shared: Arc::new(shared),
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Result<SocketAddr, Failure> {
        self.listener
            .local_addr()
            .or_fail("the admin port has no address")
    }

    /// Serves until `stop`.
    pub(crate) async fn serve(self, stop: CancellationToken) -> Result<(), Failure> {
        let routes = Router::new()
            .route("/", get(status_page))
            .route("/healthz", get(healthz))
            .route("/metrics", get(metrics_page))
            .route("/api/status", get(api_status))
            .with_state(self.shared);
        axum::serve(self.listener, routes)
            .with_graceful_shutdown(async move { stop.cancelled().await })
            .await
            .or_fail("the admin port ended")
    }
}

async fn status_page(State(shared): State<Arc<Shared>>) -> Html<String> {
    let turn = shared.turn();
    Html(page::render(
        &shared.evidence(),
        &shared.board.snapshot(),
        &shared.tallies.snapshot(),
        turn.as_ref(),
    ))
}

/// Healthy: the store has a leader and no fault. Objectives are `/api/status`'s and `/metrics`'
/// matter: a missed one must not make a supervisor restart the daemon.
async fn healthz(State(shared): State<Arc<Shared>>) -> Response {
    let mut reasons = Vec::new();
    if let Some(member) = &shared.member {
        reasons.extend(member.faults());
    }
    let code = if reasons.is_empty() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    json(
        code,
        &Health {
            is_healthy: reasons.is_empty(),
            reasons,
            turn: shared.turn(),
        },
    )
}

async fn api_status(State(shared): State<Arc<Shared>>) -> Response {
    json(StatusCode::OK, &shared.evidence())
}

fn json<T: Serialize + ?Sized>(code: StatusCode, value: &T) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => (code, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn metrics_page(State(shared): State<Arc<Shared>>) -> Response {
    let turn = shared.turn.borrow().clone();
    let jobs = shared.board.snapshot();
    let tallies = shared.tallies.snapshot();
    match metrics::render(&shared.evidence(), &jobs, &tallies, &turn) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "the metrics could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
