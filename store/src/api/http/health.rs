//! `/health`, `/livez`, `/readyz`, with etcd's checks, names and texts.

use std::fmt::Write as _;
use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use holdfast_proto::etcd::rpc::{AlarmType, RangeRequest};

use super::super::context::{Context, blocking};
use super::super::status::status;
use super::plain_error;

/// One check of `/livez` or `/readyz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    DataCorruption,
    SerializableRead,
    LinearizableRead,
    NonLearner,
}

const LIVEZ: &[Check] = &[Check::SerializableRead];
const READYZ: &[Check] = &[
    Check::DataCorruption,
    Check::SerializableRead,
    Check::LinearizableRead,
    Check::NonLearner,
];

impl Check {
    fn name(self) -> &'static str {
        match self {
            Check::DataCorruption => "data_corruption",
            Check::SerializableRead => "serializable_read",
            Check::LinearizableRead => "linearizable_read",
            Check::NonLearner => "non_learner",
        }
    }

    async fn run(self, context: &Context) -> Result<(), String> {
        match self {
            Check::DataCorruption => {
                let alarms = context.state().alarms();
                let is_on = alarms
                    .iter()
                    .any(|alarm| alarm.alarm() == AlarmType::Corrupt);
                if is_on {
                    Err("alarm activated: CORRUPT".to_owned())
                } else {
                    Ok(())
                }
            }
            Check::SerializableRead => read(context, true).await,
            Check::LinearizableRead => read(context, false).await,
            Check::NonLearner if context.member().status().is_learner => {
                Err("not supported for learner".to_owned())
            }
            Check::NonLearner => Ok(()),
        }
    }
}

/// What a query asks for.
#[derive(Debug, Default)]
struct Query {
    excluded: Vec<String>,
    is_serializable: bool,
    is_verbose: bool,
}

impl Query {
    fn parse(query: Option<String>) -> Query {
        let mut parsed = Query::default();
        for pair in query.unwrap_or_default().split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "exclude" if !value.is_empty() => parsed.excluded.push(value.to_owned()),
                "serializable" => parsed.is_serializable = value == "true",
                "verbose" => parsed.is_verbose = true,
                _ => {}
            }
        }
        parsed
    }
}

pub(super) async fn health(State(context): State<Context>, RawQuery(query): RawQuery) -> Response {
    let query = Query::parse(query);
    let problem = problem(&context, &query).await;
    let body = serde_json::json!({
        "health": if problem.is_none() { "true" } else { "false" },
        "reason": problem.as_deref().unwrap_or_default(),
    })
    .to_string();
    if problem.is_some() {
        context.metrics().health_failures.add(1);
        tracing::warn!(output = body, "/health error");
        return plain_error(StatusCode::SERVICE_UNAVAILABLE, &body);
    }
    context.metrics().health_success.add(1);
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}

/// Why the member is not healthy.
async fn problem(context: &Context, query: &Query) -> Option<String> {
    let alarms = context.state().alarms();
    let alarm = alarms
        .iter()
        .map(|alarm| alarm.alarm().as_str_name())
        .find(|name| !query.excluded.iter().any(|excluded| excluded == name));
    if let Some(name) = alarm {
        return Some(format!("ALARM {name}"));
    }
    if !query.is_serializable && context.member().leader().is_none() {
        return Some("RAFT NO LEADER".to_owned());
    }
    let result = read(context, query.is_serializable).await;
    result.err().map(|error| format!("RANGE ERROR:{error}"))
}

pub(super) async fn livez(state: State<Context>, query: RawQuery) -> Response {
    answer(&state, LIVEZ, query).await
}

pub(super) async fn readyz(state: State<Context>, query: RawQuery) -> Response {
    answer(&state, READYZ, query).await
}

pub(super) async fn livez_check(
    state: State<Context>,
    Path(name): Path<String>,
    query: RawQuery,
) -> Response {
    single(&state, LIVEZ, &name, query).await
}

pub(super) async fn readyz_check(
    state: State<Context>,
    Path(name): Path<String>,
    query: RawQuery,
) -> Response {
    single(&state, READYZ, &name, query).await
}

async fn single(context: &Context, checks: &[Check], name: &str, query: RawQuery) -> Response {
    match checks.iter().find(|check| check.name() == name) {
        Some(check) => answer(context, &[*check], query).await,
        None => plain_error(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

async fn answer(context: &Context, checks: &[Check], RawQuery(query): RawQuery) -> Response {
    let query = Query::parse(query);
    let mut report = String::new();
    let mut is_failed = false;
    for check in checks {
        let name = check.name();
        // Excluding concerns the list, not a check asked for by name.
        if checks.len() > 1 && query.excluded.iter().any(|excluded| excluded == name) {
            continue;
        }
        // Writing to a string does not fail.
        match check.run(context).await {
            Ok(()) => writeln!(report, "[+]{name} ok").unwrap_or_default(),
            Err(error) => {
                is_failed = true;
                writeln!(report, "[-]{name} failed: {error}").unwrap_or_default();
            }
        }
    }
    if is_failed {
        tracing::warn!(reason = report, "health check error");
        return plain_error(StatusCode::SERVICE_UNAVAILABLE, &report);
    }
    let text = if query.is_verbose {
        report + "ok\n"
    } else {
        "ok\n".to_owned()
    };
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, text).into_response()
}

/// Reads one key's name, as a client would.
async fn read(context: &Context, is_serializable: bool) -> Result<(), String> {
    let raft = &context.options().raft;
    let patience = Duration::from_secs(5) + raft.election_timeout * 2;
    let reading = async {
        context.check_auth().map_err(|error| status(&error))?;
        if !is_serializable {
            context
                .member()
                .linearizable()
                .await
                .map_err(|error| status(&error))?;
        }
        let request = RangeRequest {
            key: bytes::Bytes::from_static(&[0]),
            keys_only: true,
            limit: 1,
            ..RangeRequest::default()
        };
        let state = context.state().clone();
        blocking(move || state.range(&request)).await
    };
    match tokio::time::timeout(patience, reading).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(status)) => Err(status.message().to_owned()),
        Err(_elapsed) => Err("context deadline exceeded".to_owned()),
    }
}
