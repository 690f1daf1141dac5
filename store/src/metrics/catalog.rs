//! Every metric of the store: the one list that `/metrics` and the reference page are made from.

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows until the process ends.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations by upper bound.
    Histogram,
}

impl Kind {
    /// The kind in the words of the text format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name: etcd's where etcd has it, else `holdfast_store_...`.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// One line for people.
    pub help: &'static str,
    /// The names of its labels, separated by commas; empty: none.
    pub labels: &'static str,
}

impl Metric {
    /// Whether a member that is alone has none of it, as in etcd: each is of another member.
    pub fn is_of_other_members(&self) -> bool {
        let is_of_one = self.labels == "To" || self.labels == "From";
        let is_link = self.labels == "Local, Remote" && self.name != "etcd_network_known_peers";
        is_of_one || is_link
    }
}

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static str,
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        help,
        labels,
    }
}

/// Every metric, by name.
pub const METRICS: &[Metric] = &[
    metric(
        "etcd_cluster_version",
        Kind::Gauge,
        "cluster_version",
        "1, with the version the whole cluster speaks.",
    ),
    metric(
        "etcd_debugging_lease_granted_total",
        Kind::Counter,
        "",
        "Leases granted since the start.",
    ),
    metric(
        "etcd_debugging_lease_renewed_total",
        Kind::Counter,
        "",
        "Leases renewed since the start; counted by the leader.",
    ),
    metric(
        "etcd_debugging_lease_revoked_total",
        Kind::Counter,
        "",
        "Leases revoked or expired since the start.",
    ),
    metric(
        "etcd_debugging_lease_ttl_total",
        Kind::Histogram,
        "",
        "Times to live of the leases granted through this member, in seconds.",
    ),
    metric(
        "etcd_debugging_mvcc_compact_revision",
        Kind::Gauge,
        "",
        "Revision of the last compaction; -1 before the first.",
    ),
    metric(
        "etcd_debugging_mvcc_current_revision",
        Kind::Gauge,
        "",
        "The store's revision.",
    ),
    metric(
        "etcd_debugging_mvcc_db_compaction_keys_total",
        Kind::Counter,
        "",
        "Rows removed by compactions.",
    ),
    metric(
        "etcd_debugging_mvcc_events_total",
        Kind::Counter,
        "",
        "Changes of keys handed to watches.",
    ),
    metric(
        "etcd_debugging_mvcc_keys_total",
        Kind::Gauge,
        "",
        "Keys that exist now.",
    ),
    metric(
        "etcd_debugging_mvcc_slow_watcher_total",
        Kind::Gauge,
        "",
        "Watches that are behind.",
    ),
    metric(
        "etcd_debugging_mvcc_total_put_size_in_bytes",
        Kind::Gauge,
        "",
        "Bytes of keys and values put since the start.",
    ),
    metric(
        "etcd_debugging_mvcc_watch_stream_total",
        Kind::Gauge,
        "",
        "Open watch streams.",
    ),
    metric(
        "etcd_debugging_mvcc_watcher_total",
        Kind::Gauge,
        "",
        "Open watches.",
    ),
    metric(
        "etcd_debugging_server_lease_expired_total",
        Kind::Counter,
        "",
        "Leases revoked because their time was over.",
    ),
    metric(
        "etcd_disk_backend_commit_duration_seconds",
        Kind::Histogram,
        "",
        "Time to make the state file durable (a checkpoint).",
    ),
    metric(
        "etcd_disk_backend_defrag_duration_seconds",
        Kind::Histogram,
        "",
        "Time of a defragmentation.",
    ),
    metric(
        "etcd_disk_backend_snapshot_duration_seconds",
        Kind::Histogram,
        "",
        "Time to make and send a snapshot.",
    ),
    metric(
        "etcd_disk_defrag_inflight",
        Kind::Gauge,
        "",
        "1 while a defragmentation runs, 0 otherwise.",
    ),
    metric(
        "etcd_disk_wal_fsync_duration_seconds",
        Kind::Histogram,
        "",
        "Time of a sync of the raft log.",
    ),
    metric(
        "etcd_disk_wal_write_bytes_total",
        Kind::Gauge,
        "",
        "Bytes written to the raft log since the start.",
    ),
    metric(
        "etcd_disk_wal_write_duration_seconds",
        Kind::Histogram,
        "",
        "Time to hand a batch of the raft log to the system, before its sync.",
    ),
    metric(
        "etcd_mvcc_db_total_size_in_bytes",
        Kind::Gauge,
        "",
        "Bytes the state file takes on the disk.",
    ),
    metric(
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        Kind::Gauge,
        "",
        "Bytes of the state file that hold data.",
    ),
    metric(
        "etcd_mvcc_delete_total",
        Kind::Counter,
        "",
        "Keys deleted since the start.",
    ),
    metric(
        "etcd_mvcc_hash_duration_seconds",
        Kind::Histogram,
        "",
        "Time to hash the whole store.",
    ),
    metric(
        "etcd_mvcc_hash_rev_duration_seconds",
        Kind::Histogram,
        "",
        "Time to hash the key-values at a revision.",
    ),
    metric(
        "etcd_mvcc_put_total",
        Kind::Counter,
        "",
        "Keys put since the start.",
    ),
    metric(
        "etcd_mvcc_range_total",
        Kind::Counter,
        "",
        "Ranges read since the start.",
    ),
    metric(
        "etcd_mvcc_txn_total",
        Kind::Counter,
        "",
        "Transactions with more than one change, and read-only ones, since the start.",
    ),
    metric(
        "etcd_network_active_peers",
        Kind::Gauge,
        "Local, Remote",
        "1 for each other member that answered last.",
    ),
    metric(
        "etcd_network_client_grpc_received_bytes_total",
        Kind::Counter,
        "",
        "Bytes of gRPC messages received from clients.",
    ),
    metric(
        "etcd_network_client_grpc_sent_bytes_total",
        Kind::Counter,
        "",
        "Bytes of gRPC messages sent to clients.",
    ),
    metric(
        "etcd_network_disconnected_peers_total",
        Kind::Counter,
        "Local, Remote",
        "How often another member stopped answering.",
    ),
    metric(
        "etcd_network_known_peers",
        Kind::Gauge,
        "Local, Remote",
        "1 for each known member, this one included.",
    ),
    metric(
        "etcd_network_peer_received_bytes_total",
        Kind::Counter,
        "From",
        "Bytes received from another member.",
    ),
    metric(
        "etcd_network_peer_round_trip_time_seconds",
        Kind::Histogram,
        "To",
        "Time until another member answers a heartbeat.",
    ),
    metric(
        "etcd_network_peer_sent_bytes_total",
        Kind::Counter,
        "To",
        "Bytes sent to another member.",
    ),
    metric(
        "etcd_network_peer_sent_failures_total",
        Kind::Counter,
        "To",
        "Calls of another member that failed.",
    ),
    metric(
        "etcd_network_snapshot_receive_failures",
        Kind::Counter,
        "From",
        "Snapshots from another member that did not arrive.",
    ),
    metric(
        "etcd_network_snapshot_receive_success",
        Kind::Counter,
        "From",
        "Snapshots from another member that were installed.",
    ),
    metric(
        "etcd_network_snapshot_receive_total_duration_seconds",
        Kind::Histogram,
        "From",
        "Time to receive and install a snapshot.",
    ),
    metric(
        "etcd_network_snapshot_send_failures",
        Kind::Counter,
        "To",
        "Snapshots to another member that did not arrive.",
    ),
    metric(
        "etcd_network_snapshot_send_success",
        Kind::Counter,
        "To",
        "Snapshots to another member that were installed.",
    ),
    metric(
        "etcd_network_snapshot_send_total_duration_seconds",
        Kind::Histogram,
        "To",
        "Time until a sent snapshot was installed.",
    ),
    metric(
        "etcd_server_apply_duration_seconds",
        Kind::Histogram,
        "op, success, version",
        "Time to apply an entry of the raft log: the share of one in its batch.",
    ),
    metric(
        "etcd_server_client_requests_total",
        Kind::Counter,
        "client_api_version, type",
        "Requests by kind and by the API version the client says it speaks; from the first request on.",
    ),
    metric(
        "etcd_server_feature_enabled",
        Kind::Gauge,
        "name, stage",
        "1 for a feature gate that is on, 0 for one that is off; gates without a meaning here are left out.",
    ),
    metric(
        "etcd_server_has_leader",
        Kind::Gauge,
        "",
        "1 while a leader is known, 0 otherwise.",
    ),
    metric(
        "etcd_server_health_failures",
        Kind::Counter,
        "",
        "Answers of /health that said no.",
    ),
    metric(
        "etcd_server_health_success",
        Kind::Counter,
        "",
        "Answers of /health that said yes.",
    ),
    metric(
        "etcd_server_id",
        Kind::Gauge,
        "server_id",
        "1, with the member id in hexadecimal.",
    ),
    metric(
        "etcd_server_is_leader",
        Kind::Gauge,
        "",
        "1 while this member leads, 0 otherwise.",
    ),
    metric(
        "etcd_server_is_learner",
        Kind::Gauge,
        "",
        "1 while this member has no vote, 0 otherwise.",
    ),
    metric(
        "etcd_server_leader_changes_seen_total",
        Kind::Counter,
        "",
        "Changes of the leader seen since the start.",
    ),
    metric(
        "etcd_server_proposals_applied_total",
        Kind::Gauge,
        "",
        "Index of the last log entry in the state.",
    ),
    metric(
        "etcd_server_proposals_committed_total",
        Kind::Gauge,
        "",
        "Index of the last log entry that is on a quorum.",
    ),
    metric(
        "etcd_server_proposals_failed_total",
        Kind::Counter,
        "",
        "Proposals that failed, whatever the reason.",
    ),
    metric(
        "etcd_server_proposals_pending",
        Kind::Gauge,
        "",
        "Proposals accepted and not answered yet.",
    ),
    metric(
        "etcd_server_quota_backend_bytes",
        Kind::Gauge,
        "",
        "The space quota in bytes.",
    ),
    metric(
        "etcd_server_range_duration_seconds",
        Kind::Histogram,
        "success",
        "Time to read a range from the state.",
    ),
    metric(
        "etcd_server_read_indexes_failed_total",
        Kind::Counter,
        "",
        "Linearizable reads that could not be confirmed.",
    ),
    metric(
        "etcd_server_request_duration_seconds",
        Kind::Histogram,
        "success, type",
        "Time to answer a unary request.",
    ),
    metric(
        "etcd_server_slow_apply_total",
        Kind::Counter,
        "",
        "Entries of the raft log that took more than 100 ms to apply.",
    ),
    metric(
        "etcd_server_slow_read_indexes_total",
        Kind::Counter,
        "",
        "Linearizable reads confirmed later than after half a second, or not in time.",
    ),
    metric(
        "etcd_server_version",
        Kind::Gauge,
        "server_version",
        "1, with the etcd version this store claims.",
    ),
    metric(
        "grpc_server_handled_total",
        Kind::Counter,
        "grpc_code, grpc_method, grpc_service, grpc_type",
        "gRPC calls answered, by code; a code appears with its first call.",
    ),
    metric(
        "grpc_server_handling_seconds",
        Kind::Histogram,
        "grpc_method, grpc_service, grpc_type",
        "Time until a gRPC call was answered in full; with `--metrics extensive` only.",
    ),
    metric(
        "grpc_server_msg_received_total",
        Kind::Counter,
        "grpc_method, grpc_service, grpc_type",
        "gRPC messages received.",
    ),
    metric(
        "grpc_server_msg_sent_total",
        Kind::Counter,
        "grpc_method, grpc_service, grpc_type",
        "gRPC messages sent.",
    ),
    metric(
        "grpc_server_started_total",
        Kind::Counter,
        "grpc_method, grpc_service, grpc_type",
        "gRPC calls begun.",
    ),
    metric(
        "holdfast_store_connections",
        Kind::Gauge,
        "endpoint",
        "Open connections, by kind of address.",
    ),
    metric(
        "holdfast_store_connections_max",
        Kind::Gauge,
        "endpoint",
        "Open connections at which further ones wait, by kind of address.",
    ),
    metric(
        "holdfast_store_damaged",
        Kind::Gauge,
        "",
        "1 once a damaged record was met since the start, 0 before.",
    ),
    metric(
        "holdfast_store_scrub_walks_total",
        Kind::Counter,
        "",
        "Walks of the background check over all records that found no damage.",
    ),
    metric(
        "holdfast_store_scrubbed_bytes_total",
        Kind::Counter,
        "",
        "Bytes verified by the background check.",
    ),
    metric(
        "holdfast_store_scrubbed_rows_total",
        Kind::Counter,
        "",
        "Records verified by the background check.",
    ),
    metric(
        "os_fd_limit",
        Kind::Gauge,
        "",
        "File descriptors the process may have open.",
    ),
    metric(
        "os_fd_used",
        Kind::Gauge,
        "",
        "File descriptors the process has open.",
    ),
    metric(
        "process_cpu_seconds_total",
        Kind::Counter,
        "",
        "Processor time used, user and system, in seconds.",
    ),
    metric(
        "process_max_fds",
        Kind::Gauge,
        "",
        "File descriptors the process may have open.",
    ),
    metric(
        "process_network_receive_bytes_total",
        Kind::Counter,
        "",
        "Bytes received by the network name space of the process.",
    ),
    metric(
        "process_network_transmit_bytes_total",
        Kind::Counter,
        "",
        "Bytes sent by the network name space of the process.",
    ),
    metric(
        "process_open_fds",
        Kind::Gauge,
        "",
        "File descriptors the process has open.",
    ),
    metric(
        "process_resident_memory_bytes",
        Kind::Gauge,
        "",
        "Memory of the process that is in RAM, in bytes.",
    ),
    metric(
        "process_start_time_seconds",
        Kind::Gauge,
        "",
        "When the process started, in seconds since 1970.",
    ),
    metric(
        "process_virtual_memory_bytes",
        Kind::Gauge,
        "",
        "Virtual memory of the process, in bytes.",
    ),
    metric(
        "process_virtual_memory_max_bytes",
        Kind::Gauge,
        "",
        "Virtual memory the process may have, in bytes; -1 without a limit.",
    ),
];

/// The metric of a name.
pub(super) fn find(name: &str) -> Option<&'static Metric> {
    let at = METRICS.binary_search_by(|metric| metric.name.cmp(name));
    at.ok().and_then(|at| METRICS.get(at))
}

#[cfg(test)]
mod tests {
    use super::METRICS;

    #[test]
    fn the_list_is_in_order_and_names_nothing_twice() {
        let is_ordered = |pair: &[super::Metric]| pair[0].name < pair[1].name;
        assert!(METRICS.windows(2).all(is_ordered));
        for metric in METRICS {
            assert_eq!(super::find(metric.name), Some(metric));
        }
    }
}
