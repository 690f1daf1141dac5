//! What a store is told at start: etcd's flags, `ETCD_*` variables and `--config-file`.
//!
//! A flag and its variable together are refused, as etcd does; a file silences both. Embedders (the
//! daemon, the demo, the drills) build a [`StoreOptions`] with [`StoreOptions::single`] and change
//! its fields.

mod convert;
mod discovery;
mod features;
mod file;
mod flags;
mod tls;
mod url;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use self::tls::PeerTls;
pub use self::url::ListenUrl;
pub(crate) use self::url::peer_urls;
use crate::consensus::peer::{PeerDialer, TcpDialer};
use crate::lease::LeaseClockOptions;
pub use crate::member::{
    AutoCompaction, ClusterState, Discovery, DiscoveryPassword, ScrubOptions, SrvDiscovery,
};

/// The etcd version this store claims to be, unless told otherwise.
pub const CLAIMED_VERSION: &str = "3.7.3";

/// Largest request by default, in bytes (1.5 MiB, as etcd).
pub const REQUEST_BYTES_MAX: usize = 1_572_864;

/// Most operations of one transaction by default, as etcd.
pub const TXN_OPS_MAX: usize = 128;

/// Space quota when none is given, in bytes (2 GiB, as etcd).
pub const QUOTA_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// A flag, variable or file entry that cannot be used; the process exits with 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UsageError {
    message: String,
}

impl UsageError {
    pub(crate) fn new(message: impl Into<String>) -> UsageError {
        UsageError {
            message: message.into(),
        }
    }
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// Run a store.
    Run {
        /// With these options.
        options: Box<StoreOptions>,
        /// After logging these warnings.
        warnings: Vec<String>,
    },
    /// Print the version (text included) and end.
    Version(String),
    /// Print the help (text included) and end.
    Help(String),
}

/// Where the store listens.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Clients: gRPC and HTTP.
    pub client_urls: Vec<ListenUrl>,
    /// Other members.
    pub peer_urls: Vec<ListenUrl>,
    /// `/metrics` and the health paths only.
    pub metrics_urls: Vec<ListenUrl>,
    /// Interval of HTTP/2 pings to idle clients.
    pub keepalive_interval: Duration,
    /// Time a ping may stay unanswered.
    pub keepalive_timeout: Duration,
    /// Most concurrent streams of one connection; `None` is no limit.
    pub concurrent_streams_max: Option<u32>,
}

/// How the cluster comes into being.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Peer URLs told to the other members.
    pub advertise_peer_urls: Vec<String>,
    /// Members by name, each with its peer URLs.
    pub initial_cluster: Vec<(String, Vec<String>)>,
    /// Makes cluster ids of equal URLs differ.
    pub token: String,
    /// Where founders meet that do not know each other.
    pub discovery: Option<Discovery>,
    /// Where DNS names the founders.
    pub srv: Option<SrvDiscovery>,
    /// New or existing.
    pub state: ClusterState,
    /// Drop every other member at the start.
    pub is_forced_alone: bool,
    /// Most learners at a time.
    pub learners_max: usize,
    /// Refuse changes of the membership that would leave too few working members.
    pub is_reconfig_strict: bool,
}

/// Bounds on requests and on the data.
#[derive(Debug, Clone)]
pub struct LimitOptions {
    /// Space quota in bytes; 0 means [`QUOTA_BYTES`], a negative value none.
    pub quota_backend_bytes: i64,
    /// Largest request in bytes.
    pub request_bytes_max: usize,
    /// Most operations in a transaction.
    pub txn_ops_max: usize,
    /// A unary request that takes longer is logged.
    pub slow_request: Duration,
    /// Memory for cached pages of the state, in bytes (no flag: 128 MiB).
    pub cache_bytes: usize,
}

/// Timing of consensus.
#[derive(Debug, Clone)]
pub struct RaftOptions {
    /// Log entries between two snapshots.
    pub snapshot_count: u64,
    /// Log entries kept behind a snapshot for members that are a little late.
    pub catch_up_entries: u64,
    /// Bytes a second at which a snapshot is sent to another member at most (our own flag
    /// `--snapshot-send-rate`); `None`: no limit.
    pub snapshot_bytes_per_s: Option<u64>,
    /// Whether a member asks if it could win before it stands for election.
    pub pre_vote: bool,
    /// Leader's heartbeat.
    pub heartbeat: Duration,
    /// Silence after which a follower stands for election.
    pub election_timeout: Duration,
}

/// etcd's feature gates that mean something here (`--feature-gates`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "a gate is on or off")]
pub struct Features {
    /// `StopGRPCServiceOnDefrag`: the health service says no while a defragmentation runs.
    pub stops_serving_on_defrag: bool,
    /// `SetMemberLocalAddr`: other members are called from the address of the first of
    /// `--initial-advertise-peer-urls` that is one; unlike in etcd also from a loopback address.
    pub binds_peer_address: bool,
    /// `InitialCorruptCheck`: a member is compared with the others before it serves clients.
    pub compares_at_start: bool,
    /// `CompactHashCheck`: the leader compares what compactions left on the members.
    pub compares_compactions: bool,
    /// `LeaseCheckpoint`: the time left of long leases is recorded, and a new leader goes on from
    /// there instead of renewing them in full.
    pub makes_lease_checkpoints: bool,
}

/// Least severe log line written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// State changes.
    Info,
    /// Unexpected, but continued.
    Warn,
    /// A human must look.
    Error,
}

/// How much the metrics tell (`--metrics`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsDetail {
    /// All but the times of calls.
    Basic,
    /// The times of gRPC calls as well.
    Extensive,
}

/// Everything a store is told at start.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Human-readable name of the member.
    pub name: String,
    /// Directory of its data.
    pub data_dir: PathBuf,
    /// Where it listens.
    pub listen: ListenOptions,
    /// Client URLs told to the cluster; filled from the bound addresses when empty.
    pub advertise_client_urls: Vec<String>,
    /// How the cluster comes into being.
    pub cluster: ClusterOptions,
    /// Bounds.
    pub limits: LimitOptions,
    /// Timing of consensus.
    pub raft: RaftOptions,
    /// Automatic compaction.
    pub auto_compaction: AutoCompaction,
    /// How the background check of all records is paced (`--corrupt-check-time`).
    pub scrub: ScrubOptions,
    /// How often the leader compares the members' data (`--corrupt-check-time`); `None`: never.
    pub corrupt_check: Option<Duration>,
    /// How often it compares what compactions left (`--compact-hash-check-time`).
    pub compact_hash_check: Duration,
    /// How often the time left of a long lease is recorded, when it is at all (no flag: 5 minutes).
    pub lease_checkpoint_interval: Duration,
    /// Interval of progress notifications to watches that asked for them.
    pub watch_progress_interval: Duration,
    /// Feature gates.
    pub features: Features,
    /// Log level.
    pub log_level: LogLevel,
    /// How much the metrics tell.
    pub metrics_detail: MetricsDetail,
    /// The etcd version this store claims to be, `major.minor.patch`.
    pub claimed_version: String,
    /// Serve a store with auth enabled as if it were not. Only for drills on scratch copies:
    /// this version does not implement Auth and otherwise answers with an error.
    pub serve_without_auth: bool,
    /// How connections to other members are made; another way than TCP is for tests.
    pub peer_dialer: Arc<dyn PeerDialer>,
    /// TLS between members.
    pub peer_tls: Option<PeerTls>,
}

impl StoreOptions {
    /// One member by itself, serving clients at `client_address`.
    pub fn single(name: &str, data_dir: &Path, client_address: SocketAddr) -> StoreOptions {
        let mut options = StoreOptions::defaults();
        name.clone_into(&mut options.name);
        data_dir.clone_into(&mut options.data_dir);
        options.listen.client_urls = vec![ListenUrl::Http {
            host: client_address.ip().to_string(),
            port: client_address.port(),
        }];
        options.listen.peer_urls = Vec::new();
        options.advertise_client_urls = Vec::new();
        options.cluster.initial_cluster =
            vec![(name.to_owned(), options.cluster.advertise_peer_urls.clone())];
        options
    }

    /// Reads `arguments` (without the program's name), then `environment`, or the file that
    /// `--config-file` names instead of both.
    ///
    /// # Errors
    /// For an unknown flag, a bad value, or a file that cannot be read.
    pub fn from_args(
        arguments: impl IntoIterator<Item = OsString>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Invocation, UsageError> {
        convert::invocation(arguments, environment)
    }

    /// The quota in bytes; `None` when there is none.
    pub fn quota_bytes(&self) -> Option<u64> {
        match self.limits.quota_backend_bytes {
            0 => Some(QUOTA_BYTES),
            quota => u64::try_from(quota).ok(),
        }
    }

    /// What etcd uses when nothing is said.
    pub(crate) fn defaults() -> StoreOptions {
        let peer_url = "http://localhost:2380".to_owned();
        let localhost = |port| ListenUrl::Http {
            host: "localhost".to_owned(),
            port,
        };
        StoreOptions {
            name: "default".to_owned(),
            data_dir: PathBuf::new(),
            listen: ListenOptions {
                client_urls: vec![localhost(2379)],
                peer_urls: vec![localhost(2380)],
                metrics_urls: Vec::new(),
                keepalive_interval: Duration::from_hours(2),
                keepalive_timeout: Duration::from_secs(20),
                concurrent_streams_max: None,
            },
            advertise_client_urls: vec!["http://localhost:2379".to_owned()],
            cluster: ClusterOptions {
                advertise_peer_urls: vec![peer_url.clone()],
                initial_cluster: vec![("default".to_owned(), vec![peer_url])],
                token: "etcd-cluster".to_owned(),
                discovery: None,
                srv: None,
                state: ClusterState::New,
                is_forced_alone: false,
                learners_max: 1,
                is_reconfig_strict: true,
            },
            limits: LimitOptions {
                quota_backend_bytes: 0,
                request_bytes_max: REQUEST_BYTES_MAX,
                txn_ops_max: TXN_OPS_MAX,
                slow_request: Duration::from_millis(300),
                cache_bytes: 128 << 20,
            },
            raft: RaftOptions {
                snapshot_count: 10_000,
                catch_up_entries: 5_000,
                snapshot_bytes_per_s: None,
                pre_vote: true,
                heartbeat: Duration::from_millis(100),
                election_timeout: Duration::from_secs(1),
            },
            auto_compaction: AutoCompaction::Off,
            scrub: ScrubOptions::default(),
            corrupt_check: None,
            compact_hash_check: Duration::from_mins(1),
            lease_checkpoint_interval: LeaseClockOptions::default().checkpoint_interval,
            watch_progress_interval: Duration::from_mins(10),
            features: Features::default(),
            log_level: LogLevel::Info,
            metrics_detail: MetricsDetail::Basic,
            claimed_version: CLAIMED_VERSION.to_owned(),
            serve_without_auth: false,
            peer_dialer: Arc::new(TcpDialer),
            peer_tls: None,
        }
    }
}
