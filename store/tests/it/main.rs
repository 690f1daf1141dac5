//! Integration tests of the store, in one binary.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says what it expects and stops when it is not so"
)]

mod api_cluster;
mod api_errors;
mod api_health;
mod api_http;
mod api_kv;
mod api_lease;
mod api_maintenance;
mod api_support;
mod cluster_basics;
mod cluster_catch_up;
mod cluster_deadline;
mod cluster_integrity;
mod cluster_leader;
mod cluster_lease;
mod cluster_metrics;
mod cluster_peers;
mod cluster_removed;
mod cluster_support;
mod cluster_tls;
mod crash;
mod damage;
mod eio;
mod enospc;
mod flip;
mod golden_bbolt;
mod golden_fixture;
mod golden_history;
mod golden_hostile;
mod golden_records;
mod golden_status;
mod golden_writer;
mod images;
mod install;
mod kill;
mod lease_restart;
mod long;
mod member;
mod member_restore;
mod model;
#[cfg(all(feature = "failpoints", debug_assertions))]
mod mutants;
mod small_disk;
mod stop;
mod watch_stream;
