//! `/metrics`: what the parts of the store say of themselves, under etcd's names.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};

use super::super::context::Context;
use super::super::maintenance::storage_version;
use super::peer_metrics;
use crate::member::MemberStatus;
use crate::metrics::{CONTENT_TYPE, Exposition};

pub(super) async fn page(State(context): State<Context>) -> Response {
    let mut out = Exposition::default();
    member(&context, &mut out);
    mvcc(&context, &mut out);
    watches(&context, &mut out);
    checks(&context, &mut out);
    connections(&context, &mut out);
    context.metrics().write(&mut out);
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], out.into_text()).into_response()
}

fn member(context: &Context, out: &mut Exposition) {
    let status = context.member().status();
    let claimed = &context.options().claimed_version;
    out.gauge("etcd_server_has_leader", u8::from(status.leader.is_some()));
    out.gauge(
        "etcd_server_is_leader",
        u8::from(status.leader == Some(status.member_id)),
    );
    out.gauge("etcd_server_is_learner", u8::from(status.is_learner));
    out.counter(
        "etcd_server_proposals_failed_total",
        status.failed_proposals,
    );
    out.counter(
        "etcd_server_leader_changes_seen_total",
        status.leader_changes,
    );
    out.gauge(
        "etcd_server_proposals_committed_total",
        status.committed_index,
    );
    out.gauge("etcd_server_proposals_applied_total", status.applied_index);
    out.gauge("etcd_server_proposals_pending", status.pending_proposals);
    let reads = context.member().reads();
    out.counter("etcd_server_read_indexes_failed_total", reads.failed);
    out.counter("etcd_server_slow_read_indexes_total", reads.slow);
    out.counter(
        "etcd_debugging_server_lease_expired_total",
        context.member().leases_expired(),
    );
    known_members(context, &status, out);
    peer_metrics::write(context, out);
    features(context, out);
    database(context, &status, out);
    let id = format!("{:x}", status.member_id.0);
    out.info("etcd_server_id", "server_id", &id);
    out.info("etcd_server_version", "server_version", claimed);
    if let Some(version) = context.state().cluster_version() {
        let version = minor_of(&version);
        out.info("etcd_cluster_version", "cluster_version", &version);
    }
}

fn known_members(context: &Context, status: &MemberStatus, out: &mut Exposition) {
    const NAME: &str = "etcd_network_known_peers";
    out.family(NAME);
    let own = status.member_id.to_string();
    for member in context.state().members() {
        let remote = format!("{:x}", member.id);
        out.sample(NAME, &[("Local", own.as_str()), ("Remote", &remote)], 1);
    }
}

fn database(context: &Context, status: &MemberStatus, out: &mut Exposition) {
    out.gauge(
        "etcd_server_quota_backend_bytes",
        context.options().quota_bytes().unwrap_or(0),
    );
    out.gauge(
        "etcd_disk_defrag_inflight",
        u8::from(context.member().is_defragmenting()),
    );
    out.gauge("etcd_mvcc_db_total_size_in_bytes", status.sizes.total);
    out.gauge(
        "etcd_mvcc_db_total_size_in_use_in_bytes",
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
    for (name, value) in [
        ("etcd_mvcc_put_total", counters.puts),
        ("etcd_mvcc_delete_total", counters.deletes),
        ("etcd_mvcc_range_total", counters.ranges),
        ("etcd_mvcc_txn_total", counters.txns),
        ("etcd_debugging_mvcc_events_total", counters.events),
        (
            "etcd_debugging_mvcc_db_compaction_keys_total",
            counters.compacted_rows,
        ),
        (
            "etcd_debugging_lease_granted_total",
            counters.leases_granted,
        ),
        (
            "etcd_debugging_lease_revoked_total",
            counters.leases_revoked,
        ),
    ] {
        out.counter(name, value);
    }
    out.gauge("etcd_debugging_mvcc_keys_total", counters.keys);
    out.gauge(
        "etcd_debugging_mvcc_total_put_size_in_bytes",
        counters.put_bytes,
    );
    out.gauge("etcd_debugging_mvcc_current_revision", state.revision());
    out.gauge(
        "etcd_debugging_mvcc_compact_revision",
        state.compact_revision(),
    );
}

fn watches(context: &Context, out: &mut Exposition) {
    let counts = context.hub().counts();
    out.gauge("etcd_debugging_mvcc_watcher_total", counts.watchers);
    out.gauge("etcd_debugging_mvcc_slow_watcher_total", counts.lagging);
    out.gauge("etcd_debugging_mvcc_watch_stream_total", counts.streams);
}

/// The feature gates of etcd that mean something here, with their stage.
fn features(context: &Context, out: &mut Exposition) {
    const NAME: &str = "etcd_server_feature_enabled";
    out.family(NAME);
    let features = context.options().features;
    // What is recorded of a lease survives whenever it is.
    for (name, is_on) in [
        ("CompactHashCheck", features.compares_compactions),
        ("InitialCorruptCheck", features.compares_at_start),
        ("LeaseCheckpoint", features.makes_lease_checkpoints),
        ("LeaseCheckpointPersist", features.makes_lease_checkpoints),
        ("SetMemberLocalAddr", features.binds_peer_address),
        ("StopGRPCServiceOnDefrag", features.stops_serving_on_defrag),
    ] {
        let labels = [("name", name), ("stage", "ALPHA")];
        out.sample(NAME, &labels, u8::from(is_on));
    }
}

fn connections(context: &Context, out: &mut Exposition) {
    for (name, is_limit) in [
        ("holdfast_store_connections", false),
        ("holdfast_store_connections_max", true),
    ] {
        out.family(name);
        for connections in context.connections() {
            let value = if is_limit {
                connections.limit()
            } else {
                connections.open()
            };
            out.sample(name, &[("endpoint", connections.endpoint())], value);
        }
    }
}

fn checks(context: &Context, out: &mut Exposition) {
    let scrubbed = context.member().scrubbed();
    out.gauge(
        "holdfast_store_damaged",
        u8::from(context.state().damage().is_some()),
    );
    out.counter("holdfast_store_scrubbed_rows_total", scrubbed.rows);
    out.counter("holdfast_store_scrubbed_bytes_total", scrubbed.bytes);
    out.counter("holdfast_store_scrub_walks_total", scrubbed.walks);
}
