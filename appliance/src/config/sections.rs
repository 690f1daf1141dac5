//! The sections of `holdfast.yaml` and what each key means when it is left out.

use std::fmt;
use std::path::PathBuf;

use holdfast_policies::{
    BackupPolicy, ByteSize, ClusterName, DrillPolicy, EncryptionRule, Objective, RetentionPolicy,
};
use holdfast_restore::plan::MEMBERS_MAX;
use holdfast_restore::source::SourceSpec;
use holdfast_restore::vault::VaultSpec;
use serde::{Deserialize, Serialize};

use super::copies::CopyVault;
use crate::telemetry::LogFormat;

section! {
    /// Everything in `holdfast.yaml`. Every key may be left out, `policies.encryption` excepted.
    Config {
        /// The daemon itself.
        appliance: Appliance = Appliance::default(),
        /// The bundled etcd-compatible store.
        store: Store = Store::default(),
        /// What is backed up, and where to.
        restore: Restore = Restore::default(),
        /// When to back up, for whom to seal, what to keep, what is promised.
        policies: Policies = Policies::default(),
        /// How a restore is rehearsed.
        drills: Drills = Drills::default(),
    }
}

section! {
    /// The daemon itself.
    Appliance {
        /// Where this host keeps its store, keys, local ledger and scratch space; a relative path
        /// starts at the folder of the configuration file.
        data_dir: PathBuf = PathBuf::from("holdfast-data"),
        /// The port for people and monitors.
        admin: Admin = Admin::default(),
        /// The log lines.
        log: Log = Log::default(),
    }
}

section! {
    /// The port for people and monitors: status page, `/healthz`, `/metrics`.
    Admin {
        /// Whether to serve it.
        enabled: bool = true,
        /// The address to listen on. It has no login: keep it on loopback or behind a proxy.
        listen: String = "127.0.0.1:2384".to_owned(),
    }
}

section! {
    /// The log lines, on standard error.
    Log {
        /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as
        /// `info,holdfast_store=debug`.
        level: String = "info".to_owned(),
        /// `auto` (text on a terminal, JSON otherwise), `json` or `text`.
        format: LogFormat = LogFormat::Auto,
    }
}

section! {
    /// The bundled store that `holdfast run` starts: one member, alone or of a cluster. In a
    /// cluster the daemon beside the leader runs the jobs and the others stand by; all need one
    /// vault, the same keys and the same policies.
    Store {
        /// Whether to start it. Switch it off where only real etcd clusters are backed up.
        enabled: bool = true,
        /// The member's name.
        name: String = "default".to_owned(),
        /// Where clients connect, as `http://host:port`; port 0 takes any free port.
        listen_client_urls: Vec<String> = vec!["http://127.0.0.1:2379".to_owned()],
        /// What clients are told to connect to; empty means `listen_client_urls`.
        advertise_client_urls: Vec<String> = Vec::new(),
        /// Where the other members reach this one, as its cluster's member list has it (etcd's
        /// `--initial-advertise-peer-urls`).
        peer_urls: Vec<String> = vec!["http://localhost:2380".to_owned()],
        /// Where to listen for the other members; empty means `peer_urls`. Nothing is listened on
        /// where this and `initial_cluster` are both empty: such a member is alone.
        listen_peer_urls: Vec<String> = Vec::new(),
        /// The founding members of a cluster, this one among them, as `NAME=PEER-URL`; empty means
        /// this one alone.
        initial_cluster: Vec<String> = Vec::new(),
        /// `new` to found the cluster, `existing` to join one that runs (`etcdctl member add` comes
        /// first). A data directory that is there already counts more.
        initial_cluster_state: String = "new".to_owned(),
        /// Tells clusters with the same addresses apart; the same for all members.
        initial_cluster_token: String = "etcd-cluster".to_owned(),
        /// TLS with the other members, for peer URLs of `https`.
        peer_tls: PeerTls = PeerTls::default(),
        /// Where founders meet that do not know each other, instead of `initial_cluster`.
        discovery: Discovery = Discovery::default(),
        /// How fast a snapshot is sent to a member that fell behind, in bytes a second; 0 is as
        /// fast as it goes.
        snapshot_send_rate: ByteSize = ByteSize::new(0),
        /// How large the state may grow before writes are refused; 0 is etcd's 2 GiB.
        quota: ByteSize = ByteSize::new(0),
        /// Forgetting superseded revisions.
        auto_compaction: AutoCompaction = AutoCompaction::default(),
    }
}

impl Store {
    /// Whether the member has others beside it, or is to have.
    pub(crate) fn is_clustered(&self) -> bool {
        !self.initial_cluster.is_empty()
            || !self.listen_peer_urls.is_empty()
            || self.discovery.is_used()
    }
}

section! {
    /// TLS between the bundled store's members. The files are read anew for each connection.
    PeerTls {
        /// This member's certificate, PEM, valid for servers and for clients. Needed to listen on
        /// `https`, unless `auto` is on.
        cert_file: PathBuf = PathBuf::new(),
        /// Its key.
        key_file: PathBuf = PathBuf::new(),
        /// Another certificate to show when this member calls.
        client_cert_file: PathBuf = PathBuf::new(),
        /// Its key.
        client_key_file: PathBuf = PathBuf::new(),
        /// Authorities whose certificates are believed, PEM; empty means the system's. With it a
        /// caller must show a certificate.
        trusted_ca_file: PathBuf = PathBuf::new(),
        /// Whether a caller must show a certificate also without `trusted_ca_file`.
        client_cert_auth: bool = false,
        /// Revoked certificates, PEM or DER.
        crl_file: PathBuf = PathBuf::new(),
        /// Only members with one of these common names are let in; empty means all.
        allowed_cn: Vec<String> = Vec::new(),
        /// Only members whose certificate is for one of these hosts are let in; empty means all.
        allowed_hostname: Vec<String> = Vec::new(),
        /// Whether a caller may come from an address that its certificate does not name.
        skip_client_san_verification: bool = false,
        /// Whether to make a certificate at each start that nobody can check. What is sent is
        /// enciphered; who is on the other side stays unknown.
        auto: bool = false,
        /// For how many years such a certificate is valid.
        self_signed_validity: u32 = 1,
        /// The oldest version spoken: `TLS1.2` or `TLS1.3`.
        min_version: String = "TLS1.2".to_owned(),
        /// The newest version spoken; empty means the newest there is.
        max_version: String = String::new(),
        /// Ciphers offered with TLS 1.2, by the names that Go has for them; empty means all that
        /// are strong.
        cipher_suites: Vec<String> = Vec::new(),
    }
}

section! {
    /// Where founders of a cluster meet: in a registry of etcd's discovery v3, or in DNS.
    Discovery {
        /// Names the cluster in the registry, and is its token.
        token: String = String::new(),
        /// Client URLs of the etcd that keeps the registry.
        endpoints: Vec<String> = Vec::new(),
        /// Authorities whose certificates are believed, PEM; empty means the system's.
        cacert: PathBuf = PathBuf::new(),
        /// Our client certificate there, PEM.
        cert: PathBuf = PathBuf::new(),
        /// Its key.
        key: PathBuf = PathBuf::new(),
        /// Whether any certificate is taken there. Only for tests.
        insecure_skip_tls_verify: bool = false,
        /// The user there; empty means none.
        user: String = String::new(),
        /// The file with the user's password.
        password_file: PathBuf = PathBuf::new(),
        /// The domain whose SRV records name the founders: `_etcd-server-ssl._tcp` for `https`,
        /// `_etcd-server._tcp` for `http`.
        srv: String = String::new(),
        /// What follows the services' names after a dash.
        srv_name: String = String::new(),
    }
}

impl Discovery {
    /// Whether the founders are found by it.
    pub(crate) fn is_used(&self) -> bool {
        !self.endpoints.is_empty() || !self.token.is_empty() || !self.srv.is_empty()
    }
}

section! {
    /// Forgetting superseded revisions of the bundled store.
    AutoCompaction {
        /// `periodic` or `revision`.
        mode: String = "periodic".to_owned(),
        /// How much history stays: a duration for `periodic`, a number for `revision`; 0 keeps all.
        retention: String = "0".to_owned(),
    }
}

section! {
    /// What is backed up, and where to.
    Restore {
        /// Where backups live: `{local: {path: DIR}}` or `{s3: {bucket: NAME, ...}}`; left out,
        /// it is the folder `vault` in the data directory.
        vault: Option<VaultSpec> = None,
        /// Further vaults, one entry each: `{name: NAME, vault: {s3: {...}}}` or
        /// `{name: NAME, vault: {local: {path: DIR}}}`. Each gets what `vault` has, soon after that
        /// has it, and none waits for another. `holdfast restore --vault NAME` reads from it.
        copies: Vec<CopyVault> = Vec::new(),
        /// What is backed up, one entry for each cluster: `{name: NAME, kind: bundled}` or
        /// `{name: NAME, kind: {etcd: {endpoints: [...]}}}`. The name is its folder in the vault.
        sources: Vec<Source> = bundled_only(),
        /// How much of the bundled store's snapshot may wait, sealed, on this host's disk for a
        /// slow vault. Beyond it the store's read view is held until the vault has caught up,
        /// which makes its file grow under writes; 0 lets nothing wait on disk.
        spool_limit: ByteSize = ByteSize::new(8 << 30),
        /// How many bytes of backups may wait on this host, sealed, while the vault cannot be
        /// reached: they are taken all the same, and handed over in order when it is back. When it
        /// is used up the oldest that waits makes room, those that are not proven first; 0 lets
        /// nothing wait.
        waiting_limit: ByteSize = ByteSize::new(16 << 30),
        /// The age identity that opens backups, needed for restores, drills and any proof above L0;
        /// empty means `keys/identity.age` in the data directory. Leave the file out where this
        /// host must not be able to read backups.
        identity_file: PathBuf = PathBuf::new(),
        /// The Ed25519 key that signs manifests; empty means `keys/signing.key` in the data
        /// directory.
        signing_key_file: PathBuf = PathBuf::new(),
        /// Public signing keys (hex) of other appliances whose backups are trusted here, besides
        /// our own.
        trusted_signers: Vec<String> = Vec::new(),
    }
}

section! {
    /// When to back up, for whom to seal, what to keep, what is promised.
    Policies {
        /// For whom backups are sealed: `{recipients: [age1...], recipients_file: FILE}`, or `none`
        /// for backups in clear. A file that does not say is refused.
        encryption: Option<EncryptionRule> = None,
        /// When backups are taken and how far each is proven.
        backup: BackupPolicy = BackupPolicy::default(),
        /// When restores are rehearsed.
        drill: DrillPolicy = DrillPolicy::default(),
        /// Which backups stay. Applied only after a newly verified backup.
        retention: RetentionPolicy = RetentionPolicy::default(),
        /// What must hold at all times; `status` compares it with the evidence.
        objective: Objective = Objective::default(),
    }
}

section! {
    /// How a restore is rehearsed.
    Drills {
        /// What a drill boots: `holdfast` (the bundled store) or `etcd` (needs `etcd_binary`).
        target: DrillTarget = DrillTarget::Holdfast,
        /// The `etcd` program for drills with `target: etcd`.
        etcd_binary: PathBuf = PathBuf::new(),
        /// How many members a drill boots as one cluster: `source` (as many as the source had), or
        /// 1 to 7. Each takes its own disk space.
        members: DrillMembers = DrillMembers::Source,
        /// Where scratch members live; empty means `scratch` in the data directory.
        scratch_dir: PathBuf = PathBuf::new(),
        /// The most a drill may write to `scratch_dir`.
        budget: ByteSize = ByteSize::new(16 << 30),
    }
}

/// One thing that is backed up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// The name in commands, in the vault and in metrics.
    pub(crate) name: ClusterName,
    /// What it is: `bundled`, or `{etcd: {endpoints: [...]}}`.
    pub(crate) kind: SourceSpec,
}

/// What is backed up where nothing is configured: the store of this daemon.
fn bundled_only() -> Vec<Source> {
    // The name is a literal that fits.
    let name = "bundled".parse::<ClusterName>();
    name.into_iter()
        .map(|name| Source {
            name,
            kind: SourceSpec::Bundled,
        })
        .collect()
}

/// How many members a drill boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrillMembers {
    /// As many as the source had.
    Source,
    /// So many.
    Exactly(usize),
}

impl Serialize for DrillMembers {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Source => to.serialize_str("source"),
            Self::Exactly(count) => count.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for DrillMembers {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Words;
        impl serde::de::Visitor<'_> for Words {
            type Value = DrillMembers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "`source` or a number from 1 to {MEMBERS_MAX}")
            }

            fn visit_u64<E: serde::de::Error>(self, count: u64) -> Result<DrillMembers, E> {
                let fits = usize::try_from(count).ok();
                let fits = fits.filter(|count| (1..=MEMBERS_MAX).contains(count));
                fits.map(DrillMembers::Exactly)
                    .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Unsigned(count), &self))
            }

            fn visit_i64<E: serde::de::Error>(self, count: i64) -> Result<DrillMembers, E> {
                self.visit_u64(u64::try_from(count).unwrap_or(0))
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<DrillMembers, E> {
                match (word, word.parse()) {
                    ("source", _) => Ok(DrillMembers::Source),
                    (_, Ok(count)) => self.visit_u64(count),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
                }
            }
        }
        from.deserialize_any(Words)
    }
}

/// What a drill boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DrillTarget {
    /// The bundled store.
    Holdfast,
    /// A real etcd.
    Etcd,
}
