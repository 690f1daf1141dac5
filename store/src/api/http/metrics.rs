//! `/metrics`: what the parts of the store say of themselves, under etcd's names.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};

use super::super::context::Context;
use super::super::maintenance::storage_version;
use crate::member::MemberStatus;
use crate::metrics::{CONTENT_TYPE, Exposition};

pub(super) async fn page(State(context): State<Context>) -> Response {
    let mut out = Exposition::default();
    member(&context, &mut out);
    mvcc(&context, &mut out);
    watches(&context, &mut out);
    checks(&context, &mut out);
    context.metrics().write(&mut out);
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], out.into_text()).into_response()
}

fn member(context: &Context, out: &mut Exposition) {
    let status = context.member().status();
    let claimed = &context.options().claimed_version;
    out.gauge(
        "etcd_server_has_leader",
        "Whether or not a leader exists. 1 is existence, 0 is not.",
        u8::from(status.leader.is_some()),
    );
    out.gauge(
        "etcd_server_is_leader",
        "Whether or not this member is a leader. 1 if is, 0 otherwise.",
        u8::from(status.leader == Some(status.member_id)),
    );
    out.gauge(
        "etcd_server_is_learner",
        "Whether or not this member is a learner. 1 if is, 0 otherwise.",
        u8::from(status.is_learner),
    );
    out.counter(
        "etcd_server_proposals_failed_total",
        "The total number of failed proposals seen.",
        status.failed_proposals,
    );
    out.counter(
        "etcd_server_leader_changes_seen_total",
        "The number of leader changes seen.",
        status.leader_changes,
    );
    out.gauge(
        "etcd_server_proposals_committed_total",
        "The total number of consensus proposals committed.",
        status.committed_index,
    );
    out.gauge(
        "etcd_server_proposals_applied_total",
        "The total number of consensus proposals applied.",
        status.applied_index,
    );
    out.gauge(
        "etcd_server_proposals_pending",
        "The current number of pending proposals to commit.",
        status.pending_proposals,
    );
    database(context, &status, out);
    let id = format!("{:x}", status.member_id.0);
    out.info(
        "etcd_server_id",
        "Server or member ID in hexadecimal format.",
        "server_id",
        &id,
    );
    out.info(
        "etcd_server_version",
        "Which version is running.",
        "server_version",
        claimed,
    );
    if let Some(version) = context.state().cluster_version() {
        let version = minor_of(&version);
        out.info(
            "etcd_cluster_version",
            "Which version is running.",
            "cluster_version",
            &version,
        );
    }
}

fn database(context: &Context, status: &MemberStatus, out: &mut Exposition) {
    out.gauge(
        "etcd_server_quota_backend_bytes",
        "Current backend storage quota size in bytes.",
        context.options().quota_bytes().unwrap_or(0),
    );
    out.gauge(
        "etcd_mvcc_db_total_size_in_bytes",
        "Total size of the underlying database physically allocated in bytes.",
        status.sizes.total,
    );
    out.gauge(
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        "Total size of the underlying database logically in use in bytes.",
        status.sizes.in_use,
    );
}

/// `3.7.0` as `3.7`, the form of the cluster version metric.
fn minor_of(version: &str) -> String {
    let full = storage_version(version);
    full.strip_suffix(".0").unwrap_or(&full).to_owned()
}

fn mvcc(context: &Context, out: &mut Exposition) {
    let state = context.state();
    let counters = state.metrics();
    for (name, help, value) in [
        (
            "etcd_mvcc_put_total",
            "Total number of puts seen by this member.",
            counters.puts,
        ),
        (
            "etcd_mvcc_delete_total",
            "Total number of deletes seen by this member.",
            counters.deletes,
        ),
        (
            "etcd_mvcc_range_total",
            "Total number of ranges seen by this member.",
            counters.ranges,
        ),
        (
            "etcd_mvcc_txn_total",
            "Total number of txns seen by this member.",
            counters.txns,
        ),
        (
            "etcd_debugging_mvcc_events_total",
            "Total number of events sent by this member.",
            counters.events,
        ),
        (
            "etcd_debugging_mvcc_db_compaction_keys_total",
            "Total number of db keys compacted.",
            counters.compacted_rows,
        ),
        (
            "etcd_debugging_lease_granted_total",
            "The total number of granted leases.",
            counters.leases_granted,
        ),
        (
            "etcd_debugging_lease_revoked_total",
            "The total number of revoked leases.",
            counters.leases_revoked,
        ),
    ] {
        out.counter(name, help, value);
    }
    out.gauge(
        "etcd_debugging_mvcc_keys_total",
        "Total number of keys.",
        counters.keys,
    );
    out.gauge(
        "etcd_debugging_mvcc_total_put_size_in_bytes",
        "The total size of put kv pairs seen by this member.",
        counters.put_bytes,
    );
    out.gauge(
        "etcd_debugging_mvcc_current_revision",
        "The current revision of store.",
        state.revision(),
    );
    out.gauge(
        "etcd_debugging_mvcc_compact_revision",
        "The revision of the last compaction in store.",
        state.compact_revision(),
    );
}

fn watches(context: &Context, out: &mut Exposition) {
    let counts = context.hub().counts();
    out.gauge(
        "etcd_debugging_mvcc_watcher_total",
        "Total number of watchers.",
        counts.watchers,
    );
    out.gauge(
        "etcd_debugging_mvcc_slow_watcher_total",
        "Total number of unsynced slow watchers.",
        counts.lagging,
    );
    out.gauge(
        "etcd_debugging_mvcc_watch_stream_total",
        "Total number of watch streams.",
        counts.streams,
    );
}

fn checks(context: &Context, out: &mut Exposition) {
    let scrubbed = context.member().scrubbed();
    out.gauge(
        "holdfast_store_damaged",
        "1 once a damaged record was met since the start, 0 before.",
        u8::from(context.state().damage().is_some()),
    );
    out.counter(
        "holdfast_store_scrubbed_rows_total",
        "Records verified by the background check.",
        scrubbed.rows,
    );
    out.counter(
        "holdfast_store_scrubbed_bytes_total",
        "Bytes verified by the background check.",
        scrubbed.bytes,
    );
    out.counter(
        "holdfast_store_scrub_walks_total",
        "Walks of the background check over all records that found no damage.",
        scrubbed.walks,
    );
}
