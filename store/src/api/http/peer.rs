//! HTTP of the peer port beside the calls between members: the version and the members, as etcd's.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde::Serialize;

use super::super::context::Context;
use super::{method_not_allowed, not_found, version};
use crate::consensus::peer::{PEER_PROTOCOL, PEER_PROTOCOL_HEADER};
use crate::member::Member as RunningMember;

/// A member, with the names and in the order of etcd's JSON.
#[derive(Debug, Serialize)]
struct Member {
    id: u64,
    #[serde(rename = "peerURLs")]
    peer_urls: Vec<String>,
    #[serde(rename = "isLearner", skip_serializing_if = "std::ops::Not::not")]
    is_learner: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(rename = "clientURLs", skip_serializing_if = "Vec::is_empty")]
    client_urls: Vec<String>,
}

/// Adds the HTTP paths of the peer port to the calls between members.
pub(in crate::api) fn add_peer_paths(router: Router, context: &Context) -> Router {
    let paths = Router::new()
        .route("/version", get(version))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(context.clone());
    router.merge(paths).fallback(not_found)
}

/// What a member that wants to join asks first.
pub(in crate::api) fn members_page(member: &RunningMember) -> Router {
    Router::new()
        .route("/members", get(members))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(member.clone())
}

async fn members(State(member): State<RunningMember>) -> Response {
    let members: Vec<Member> = member
        .state()
        .members()
        .into_iter()
        .map(|member| Member {
            id: member.id,
            peer_urls: member.peer_urls,
            is_learner: member.is_learner,
            name: member.name,
            client_urls: member.client_urls,
        })
        .collect();
    // Plain data; there is nothing in it that JSON could not hold.
    let body = serde_json::to_string(&members).unwrap_or_default() + "\n";
    let cluster_id = member.cluster_id().to_string();
    let headers = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (HeaderName::from_static("x-etcd-cluster-id"), cluster_id),
        // One that wants to join sees that this is no etcd.
        (
            HeaderName::from_static(PEER_PROTOCOL_HEADER),
            PEER_PROTOCOL.to_string(),
        ),
    ];
    (headers, body).into_response()
}
