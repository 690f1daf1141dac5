//! What a member is started with.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::discover::Discovery;
use super::integrity::IntegrityOptions;
use super::scrubber::ScrubOptions;
use super::srv::SrvDiscovery;
use crate::apply::OpenStorage;
use crate::consensus::Workers;
use crate::consensus::log::{DiskIo, LogIo, LogObserver, SEGMENT_BYTES_DEFAULT};
use crate::consensus::peer::{Dialers, PeerDialer, TcpDialer};
use crate::lease::LeaseClockOptions;
use crate::tls::Tls;

/// etcd's `--initial-cluster-state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClusterState {
    /// The member founds the cluster, or has been in it before.
    #[default]
    New,
    /// The member joins a running cluster.
    Existing,
}

/// etcd's `--auto-compaction-mode` and `--auto-compaction-retention`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AutoCompaction {
    /// History is compacted on request only.
    #[default]
    Off,
    /// Revisions older than this are compacted.
    Periodic(Duration),
    /// The newest so many revisions are kept.
    Revision(i64),
}

/// How the state file is reached.
#[derive(Clone)]
pub struct StateStorage(pub Arc<OpenStorage>);

impl fmt::Debug for StateStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateStorage")
    }
}

/// What a member is started with. [`MemberOptions::new`] gives etcd's defaults.
#[derive(Debug, Clone)]
pub struct MemberOptions {
    /// The member's name, unique in the cluster.
    pub name: String,
    /// Where its data lies; created when absent.
    pub data_dir: PathBuf,
    /// Where other members will reach it. The member's id follows from these.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; published once it is up.
    pub client_urls: Vec<String>,
    /// The founding members, by name, with their peer URLs; empty means this one alone.
    pub initial_cluster: Vec<(String, Vec<String>)>,
    /// Tells clusters with the same URLs apart. Default `etcd-cluster`.
    pub cluster_token: String,
    /// Where founders meet that do not know each other; `initial_cluster` is this member alone.
    pub discovery: Option<Discovery>,
    /// Where DNS names the founders; `initial_cluster` is this member alone.
    pub srv: Option<SrvDiscovery>,
    /// Whether the cluster is new.
    pub cluster_state: ClusterState,
    /// Bytes the state may take before writes are refused; 0 is 2 GiB, less than 0 no limit.
    pub quota_bytes: i64,
    /// Log entries kept before older ones are purged. Default 10,000.
    pub snapshot_count: u64,
    /// Entries kept behind that for slow members. Default 5,000.
    pub catch_up_entries: u64,
    /// Bytes of entries in the log after which it is purged whatever their number. Default 512 MiB.
    pub log_bytes_max: u64,
    /// Whether the member asks if it could win before it stands for election. Default yes.
    pub pre_vote: bool,
    /// How often the leader is heard. Default 100 ms.
    pub heartbeat: Duration,
    /// How long a follower waits for the leader. Default 1 s.
    pub election_timeout: Duration,
    /// Whether every other member is dropped at the start: the last way out when a quorum is lost.
    /// Default false.
    pub is_forced_alone: bool,
    /// Most learners at a time. Default 1.
    pub learners_max: usize,
    /// Whether changes of the membership that would leave too few working members are refused.
    /// Default true.
    pub is_reconfig_strict: bool,
    /// When history is compacted without being asked.
    pub auto_compaction: AutoCompaction,
    /// The version published as the cluster's, as `major.minor.0`.
    pub cluster_version: String,
    /// Memory for cached pages of the state, in bytes; the system caches the file besides. Default
    /// 64 MiB.
    pub cache_bytes: usize,
    /// Bytes of a raft log segment. Default 64 MiB.
    pub log_segment_bytes: u64,
    /// Free bytes below which writes are refused, and the size of the reserve file. Default 16 MiB.
    pub reserve_bytes: u64,
    /// How the background check of all records is paced.
    pub scrub: ScrubOptions,
    /// When the members' data are compared.
    pub integrity: IntegrityOptions,
    /// How leases are timed.
    pub leases: LeaseClockOptions,
    /// How the state file is reached; `None`: as a file. For tests of failing disks.
    pub state_storage: Option<StateStorage>,
    /// Bytes a second at which a raft snapshot is sent to another member at most; `None`: no limit.
    pub snapshot_bytes_per_s: Option<u64>,
    /// How the raft log becomes durable. For tests of failing disks.
    pub log_io: Arc<dyn LogIo>,
    /// Who writes the log and applies it. Default threads; tasks are for simulations.
    pub workers: Workers,
    /// How connections to other members are made.
    pub peer_dialer: Arc<dyn PeerDialer>,
    /// TLS to those that are reached by https.
    pub peer_tls: Option<Arc<Tls>>,
    /// Told of every sync of the raft log and every checkpoint of the state.
    pub log_observer: Option<Arc<dyn LogObserver>>,
}

impl MemberOptions {
    /// One member named `name` in `data_dir`, with etcd's defaults.
    pub fn new(name: impl Into<String>, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            data_dir: data_dir.into(),
            peer_urls: vec!["http://localhost:2380".to_owned()],
            client_urls: vec!["http://localhost:2379".to_owned()],
            initial_cluster: Vec::new(),
            cluster_token: "etcd-cluster".to_owned(),
            discovery: None,
            srv: None,
            cluster_state: ClusterState::New,
            quota_bytes: 0,
            snapshot_count: 10_000,
            catch_up_entries: 5_000,
            log_bytes_max: 512 << 20,
            pre_vote: true,
            heartbeat: Duration::from_millis(100),
            election_timeout: Duration::from_secs(1),
            is_forced_alone: false,
            learners_max: 1,
            is_reconfig_strict: true,
            auto_compaction: AutoCompaction::Off,
            cluster_version: "3.7.0".to_owned(),
            cache_bytes: 64 << 20,
            log_segment_bytes: SEGMENT_BYTES_DEFAULT,
            reserve_bytes: 16 << 20,
            scrub: ScrubOptions::default(),
            integrity: IntegrityOptions::default(),
            leases: LeaseClockOptions::default(),
            state_storage: None,
            snapshot_bytes_per_s: None,
            log_io: Arc::new(DiskIo),
            workers: Workers::default(),
            peer_dialer: Arc::new(TcpDialer),
            peer_tls: None,
            log_observer: None,
        }
    }

    /// How other members are called.
    pub(crate) fn dialers(&self) -> Dialers {
        Dialers {
            plain: Arc::clone(&self.peer_dialer),
            tls: self.peer_tls.clone(),
        }
    }
}
