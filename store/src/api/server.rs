//! A store that serves: a member, its watches, and the ports clients reach them by.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use holdfast_proto::etcd::rpc::cluster_server::ClusterServer;
use holdfast_proto::etcd::rpc::kv_server::KvServer;
use holdfast_proto::etcd::rpc::lease_server::LeaseServer;
use holdfast_proto::etcd::rpc::maintenance_server::MaintenanceServer;
use holdfast_proto::etcd::rpc::watch_server::WatchServer;
use holdfast_proto::grpc::health::health_server::HealthServer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;

use super::cluster::ClusterService;
use super::connections::{self, Connections};
use super::context::Context;
use super::front::Front;
use super::health::HealthService;
use super::http;
use super::kv::KvService;
use super::lease::LeaseService;
use super::listen::{self, DRAIN_MAX, Listener, Serving};
use super::maintenance::{MaintenanceService, storage_version};
use super::peer::{counted, peer_routes};
use super::peer_tls;
use super::watch::WatchService;
use crate::error::Error;
use crate::lease::LeaseClockOptions;
use crate::member::{IntegrityOptions, Member, MemberOptions};
use crate::metrics::Metrics;
use crate::options::{ListenUrl, StoreOptions};
use crate::tls::Tls;
use crate::watch::{History, WatchHub};

/// A running store. [`StoreServer::stop`] ends it in order; dropping it leaves its tasks to the
/// runtime.
#[derive(Debug)]
pub struct StoreServer {
    context: Context,
    stop: CancellationToken,
    tasks: TaskTracker,
    client_addresses: Vec<SocketAddr>,
    peer_addresses: Vec<SocketAddr>,
    metrics_addresses: Vec<SocketAddr>,
}

impl StoreServer {
    /// Binds the addresses, starts the member, and serves: other members at once, clients when
    /// there is a leader and this member has caught up.
    ///
    /// # Errors
    /// When an address cannot be bound or the member cannot start.
    pub async fn start(mut options: StoreOptions) -> Result<StoreServer, Error> {
        let tls = peer_tls::open(&options)?;
        let peer = bind(&options.listen.peer_urls, tls.as_ref()).await?;
        let client = bind(&options.listen.client_urls, None).await?;
        let metrics = bind(&options.listen.metrics_urls, None).await?;
        if options.advertise_client_urls.is_empty() {
            options.advertise_client_urls = client.iter().map(Listener::url).collect();
        }
        let counters = Arc::new(Metrics::new(options.metrics_detail));
        let hub = WatchHub::new();
        let member = Member::start(
            member_options(&options, &counters, tls),
            Arc::new(hub.clone()),
        )
        .await?;
        let history: Arc<dyn History> = member.state().clone();
        hub.attach(history);
        let stop = CancellationToken::new();
        let (client_max, side_max) = connections::limits();
        let connections = vec![
            Connections::new("client", client_max),
            Connections::new("peer", side_max),
            Connections::new("metrics", side_max),
        ];
        let context = Context::new(member, hub, options, counters, connections, stop.clone());
        let server = StoreServer {
            context,
            stop,
            tasks: TaskTracker::new(),
            client_addresses: client.iter().filter_map(Listener::address).collect(),
            peer_addresses: peer.iter().filter_map(Listener::address).collect(),
            metrics_addresses: metrics.iter().filter_map(Listener::address).collect(),
        };
        let peers = peer_router(&server.context);
        server.serve(1, peer, Front::http(peers));
        let monitoring = http::metrics_paths(&server.context);
        server.serve(2, metrics, Front::http(monitoring));
        if let Err(error) = server.context.member().ready().await {
            if let Err(stop) = server.stop().await {
                tracing::warn!(error = %stop, "cannot stop a member that did not get ready");
            }
            return Err(error);
        }
        let clients = client_front(&server.context);
        server.serve(0, client, clients);
        tracing::info!("ready to serve client requests");
        Ok(server)
    }

    /// Whether another member that `options` name answers as one of a running cluster; nothing is
    /// started.
    ///
    /// # Errors
    /// When the files of TLS between members cannot be used.
    pub async fn is_cluster_running(options: &StoreOptions) -> Result<bool, Error> {
        let counters = Arc::new(Metrics::new(options.metrics_detail));
        let tls = peer_tls::open(options)?;
        Ok(Member::is_cluster_running(&member_options(options, &counters, tls)).await)
    }

    /// The member behind the ports.
    pub fn member(&self) -> &Member {
        self.context.member()
    }

    /// The TCP addresses clients reach it by.
    pub fn client_addresses(&self) -> Vec<SocketAddr> {
        self.client_addresses.clone()
    }

    /// The TCP addresses of `--listen-peer-urls`.
    pub fn peer_addresses(&self) -> Vec<SocketAddr> {
        self.peer_addresses.clone()
    }

    /// The TCP addresses of `--listen-metrics-urls`.
    pub fn metrics_addresses(&self) -> Vec<SocketAddr> {
        self.metrics_addresses.clone()
    }

    /// Returns when the member cannot go on, with the reason.
    pub async fn failed(&self) -> String {
        self.context.member().failed().await
    }

    /// Hands the lead over, ends the streams, lets running requests finish for a moment, and stops
    /// the member.
    ///
    /// # Errors
    /// When the member cannot make its state durable.
    pub async fn stop(self) -> Result<(), Error> {
        // While clients are still served: their requests go to the new leader.
        self.context.member().hand_over().await;
        self.stop.cancel();
        self.tasks.close();
        let drained =
            tokio::time::timeout(DRAIN_MAX + Duration::from_millis(50), self.tasks.wait());
        if drained.await.is_err() {
            tracing::debug!("connections are left open by the stop");
        }
        self.context.member().clone().stop().await
    }

    /// Serves the listeners of one kind of address: clients, peers or monitoring, in the order of
    /// the connections.
    fn serve(&self, kind: usize, listeners: Vec<Listener>, front: Front) {
        let Some(connections) = self.context.connections().get(kind) else {
            return;
        };
        let serving = Serving {
            front: Arc::new(front),
            connections: connections.clone(),
            limits: self.context.options().listen.clone(),
            stop: self.stop.clone(),
            tasks: self.tasks.clone(),
        };
        for listener in listeners {
            let address = listener.url();
            match connections.endpoint() {
                "peer" => tracing::info!(address, "serving peer traffic"),
                endpoint => {
                    tracing::info!(address, "serving {endpoint} traffic insecurely");
                }
            }
            drop(self.tasks.spawn(listen::accept(listener, serving.clone())));
        }
    }
}

async fn bind(urls: &[ListenUrl], tls: Option<&Arc<Tls>>) -> Result<Vec<Listener>, Error> {
    let mut listeners = Vec::with_capacity(urls.len());
    for url in urls {
        listeners.push(Listener::bind(url, tls).await?);
    }
    Ok(listeners)
}

/// gRPC services and HTTP paths of the client port.
fn client_front(context: &Context) -> Front {
    let bytes_max = context.message_bytes_max();
    let kv = KvServer::new(KvService::new(context.clone())).max_decoding_message_size(bytes_max);
    let watch =
        WatchServer::new(WatchService::new(context.clone())).max_decoding_message_size(bytes_max);
    let lease =
        LeaseServer::new(LeaseService::new(context.clone())).max_decoding_message_size(bytes_max);
    let cluster = ClusterServer::new(ClusterService::new(context.clone()))
        .max_decoding_message_size(bytes_max);
    let maintenance = MaintenanceServer::new(MaintenanceService::new(context.clone()))
        .max_decoding_message_size(bytes_max);
    let grpc = Routes::new(kv.clone())
        .add_service(watch)
        .add_service(lease)
        .add_service(cluster)
        .add_service(maintenance)
        .add_service(HealthServer::new(HealthService::new(context.clone())))
        .into_axum_router();
    let router = http::add_client_paths(grpc, context);
    let slow = context.options().limits.slow_request;
    Front::grpc(kv, router, context.metrics(), slow)
}

/// The calls between members, and the HTTP paths of the peer port.
fn peer_router(context: &Context) -> Router {
    let peers = peer_routes(context.member(), context.stop().clone());
    let peers = counted(peers.into_axum_router(), context.member());
    http::add_peer_paths(peers, context)
}

fn member_options(
    options: &StoreOptions,
    metrics: &Arc<Metrics>,
    tls: Option<Arc<Tls>>,
) -> MemberOptions {
    let mut member = MemberOptions::new(options.name.clone(), options.data_dir.clone());
    member
        .peer_urls
        .clone_from(&options.cluster.advertise_peer_urls);
    member
        .client_urls
        .clone_from(&options.advertise_client_urls);
    member
        .initial_cluster
        .clone_from(&options.cluster.initial_cluster);
    member.cluster_token.clone_from(&options.cluster.token);
    member.discovery.clone_from(&options.cluster.discovery);
    member.srv.clone_from(&options.cluster.srv);
    member.cluster_state = options.cluster.state;
    member.quota_bytes = options.limits.quota_backend_bytes;
    member.is_forced_alone = options.cluster.is_forced_alone;
    member.learners_max = options.cluster.learners_max;
    member.is_reconfig_strict = options.cluster.is_reconfig_strict;
    member.snapshot_count = options.raft.snapshot_count;
    member.catch_up_entries = options.raft.catch_up_entries;
    member.snapshot_bytes_per_s = options.raft.snapshot_bytes_per_s;
    member.pre_vote = options.raft.pre_vote;
    member.heartbeat = options.raft.heartbeat;
    member.election_timeout = options.raft.election_timeout;
    member.auto_compaction = options.auto_compaction;
    member.cache_bytes = options.limits.cache_bytes;
    member.scrub = options.scrub;
    let features = &options.features;
    member.integrity = IntegrityOptions {
        at_start: features.compares_at_start,
        periodic: options.corrupt_check,
        compactions: features
            .compares_compactions
            .then_some(options.compact_hash_check),
    };
    member.cluster_version = storage_version(&options.claimed_version);
    member.leases = LeaseClockOptions {
        ttl_min_s: lease_ttl_min_s(options.raft.election_timeout),
        makes_checkpoints: features.makes_lease_checkpoints,
        checkpoint_interval: options.lease_checkpoint_interval,
        ..LeaseClockOptions::default()
    };
    member.peer_dialer = Arc::clone(&options.peer_dialer);
    member.peer_tls = tls;
    let observer: Arc<Metrics> = Arc::clone(metrics);
    member.log_observer = Some(observer);
    member
}

/// Three halves of the election timeout, in whole seconds, so that a lease outlives an election.
fn lease_ttl_min_s(election_timeout: Duration) -> i64 {
    let millis = election_timeout.as_millis().saturating_mul(3).div_ceil(2);
    i64::try_from(millis.div_ceil(1000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn the_smallest_lease_outlives_an_election() {
        assert_eq!(super::lease_ttl_min_s(Duration::from_secs(1)), 2);
        assert_eq!(super::lease_ttl_min_s(Duration::from_millis(100)), 1);
        assert_eq!(super::lease_ttl_min_s(Duration::from_secs(10)), 15);
    }
}
