//! The cluster starts at the planned revision, beyond any that a client may have seen.

use bytes::Bytes;
use holdfast_proto::etcd::rpc;

use super::{Doubt, Finding, Subject, failed};
use crate::client::answer;

/// Leases granted for less may expire while the drill looks, which costs a revision each.
const SHORT_LEASE_S: i64 = 600;

pub(super) async fn check(subject: &Subject) -> Finding {
    let facts = &subject.facts;
    let request = rpc::RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        count_only: true,
        ..rpc::RangeRequest::default()
    };
    let header = answer(subject.client.kv().range(request)).await?.header;
    let Some(revision) = header.map(|header| header.revision) else {
        return failed("an answer without a revision");
    };
    let may_move = subject
        .expected
        .leases
        .iter()
        .any(|one| one.granted_ttl <= SHORT_LEASE_S);
    let is_planned =
        revision == facts.revision_after || (may_move && revision > facts.revision_after);
    if !is_planned {
        return failed(format!(
            "the revision is {revision}, planned was {}",
            facts.revision_after
        ));
    }
    let seen = facts.highest_seen.max(facts.revision);
    if facts.revision_after <= facts.revision {
        return Err(Doubt::Failed("the revision was not bumped".to_owned()));
    }
    if facts.revision_after <= seen {
        return failed(format!(
            "the revision is {revision}, and clients may have seen {seen}"
        ));
    }
    Ok(format!(
        "starts at {revision}, clients may have seen {seen}"
    ))
}
