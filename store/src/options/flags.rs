//! The table of etcd's flags and the reading of arguments, environment and file into raw values.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::UsageError;

/// What a flag means to this store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Read and obeyed.
    Obeyed,
    /// Accepted, has no effect here; a warning says so.
    Ignored,
    /// Would promise something this version does not do: refused unless left at "off".
    Refused,
}

/// The shape of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    Bool,
}

/// One flag of etcd.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) used: Use,
}

const fn text(name: &'static str, used: Use) -> Flag {
    Flag {
        name,
        shape: Shape::Text,
        used,
    }
}

const fn boolean(name: &'static str, used: Use) -> Flag {
    Flag {
        name,
        shape: Shape::Bool,
        used,
    }
}

/// The hidden flag that overrides the version this store claims.
pub(super) const CLAIMED_VERSION: &str = "claimed-version";

/// Our own flag: bytes a second at which a snapshot is sent to another member.
pub(super) const SNAPSHOT_RATE: &str = "snapshot-send-rate";

/// Every flag etcd 3.7 knows, in the order of its help, and ours.
pub(super) const FLAGS: &[Flag] = &[
    text("name", Use::Obeyed),
    text("data-dir", Use::Obeyed),
    text("wal-dir", Use::Refused),
    text("snapshot-count", Use::Obeyed),
    text("heartbeat-interval", Use::Obeyed),
    text("election-timeout", Use::Obeyed),
    boolean("initial-election-tick-advance", Use::Ignored),
    text("listen-peer-urls", Use::Obeyed),
    text("listen-client-urls", Use::Obeyed),
    text("listen-client-http-urls", Use::Refused),
    text("max-snapshots", Use::Ignored),
    text("max-wals", Use::Ignored),
    boolean("memory-mlock", Use::Ignored),
    text("quota-backend-bytes", Use::Obeyed),
    text("backend-bbolt-freelist-type", Use::Ignored),
    text("backend-batch-interval", Use::Ignored),
    text("backend-batch-limit", Use::Ignored),
    text("max-txn-ops", Use::Obeyed),
    text("max-request-bytes", Use::Obeyed),
    text("max-concurrent-streams", Use::Obeyed),
    text("grpc-keepalive-min-time", Use::Ignored),
    text("grpc-keepalive-interval", Use::Obeyed),
    text("grpc-keepalive-timeout", Use::Obeyed),
    boolean("socket-reuse-port", Use::Ignored),
    boolean("socket-reuse-address", Use::Ignored),
    boolean("enable-grpc-gateway", Use::Ignored),
    text("raft-read-timeout", Use::Ignored),
    text("raft-write-timeout", Use::Ignored),
    text("feature-gates", Use::Obeyed),
    text("initial-advertise-peer-urls", Use::Obeyed),
    text("initial-cluster", Use::Obeyed),
    text("initial-cluster-state", Use::Obeyed),
    text("initial-cluster-token", Use::Obeyed),
    text("advertise-client-urls", Use::Obeyed),
    text("discovery", Use::Refused),
    text("discovery-token", Use::Obeyed),
    text("discovery-endpoints", Use::Obeyed),
    text("discovery-dial-timeout", Use::Obeyed),
    text("discovery-request-timeout", Use::Obeyed),
    text("discovery-keepalive-time", Use::Obeyed),
    text("discovery-keepalive-timeout", Use::Obeyed),
    boolean("discovery-insecure-transport", Use::Obeyed),
    boolean("discovery-insecure-skip-tls-verify", Use::Obeyed),
    text("discovery-cert", Use::Obeyed),
    text("discovery-key", Use::Obeyed),
    text("discovery-cacert", Use::Obeyed),
    text("discovery-user", Use::Obeyed),
    text("discovery-password", Use::Obeyed),
    text("discovery-fallback", Use::Ignored),
    text("discovery-proxy", Use::Refused),
    text("discovery-srv", Use::Obeyed),
    text("discovery-srv-name", Use::Obeyed),
    boolean("strict-reconfig-check", Use::Obeyed),
    boolean("pre-vote", Use::Obeyed),
    text("auto-compaction-retention", Use::Obeyed),
    text("auto-compaction-mode", Use::Obeyed),
    text("v2-deprecation", Use::Ignored),
    text("cert-file", Use::Refused),
    text("key-file", Use::Refused),
    boolean("client-cert-auth", Use::Refused),
    text("client-cert-file", Use::Refused),
    text("client-key-file", Use::Refused),
    text("client-crl-file", Use::Refused),
    text("client-cert-allowed-hostname", Use::Refused),
    text("trusted-ca-file", Use::Refused),
    boolean("auto-tls", Use::Refused),
    text("peer-cert-file", Use::Obeyed),
    text("peer-key-file", Use::Obeyed),
    boolean("peer-client-cert-auth", Use::Obeyed),
    text("peer-client-cert-file", Use::Obeyed),
    text("peer-client-key-file", Use::Obeyed),
    text("peer-trusted-ca-file", Use::Obeyed),
    text("peer-cert-allowed-cn", Use::Obeyed),
    text("peer-cert-allowed-hostname", Use::Obeyed),
    boolean("peer-auto-tls", Use::Obeyed),
    text("self-signed-cert-validity", Use::Obeyed),
    text("peer-crl-file", Use::Obeyed),
    text("cipher-suites", Use::Obeyed),
    text("cors", Use::Ignored),
    text("host-whitelist", Use::Ignored),
    text("tls-min-version", Use::Obeyed),
    text("tls-max-version", Use::Obeyed),
    text("auth-token", Use::Ignored),
    text("bcrypt-cost", Use::Ignored),
    text("auth-token-ttl", Use::Ignored),
    boolean("enable-pprof", Use::Ignored),
    text("metrics", Use::Obeyed),
    text("listen-metrics-urls", Use::Obeyed),
    text("logger", Use::Ignored),
    text("log-outputs", Use::Ignored),
    text("log-level", Use::Obeyed),
    text("log-format", Use::Ignored),
    boolean("enable-log-rotation", Use::Ignored),
    text("log-rotation-config-json", Use::Ignored),
    text("warning-unary-request-duration", Use::Obeyed),
    boolean("enable-distributed-tracing", Use::Ignored),
    text("distributed-tracing-address", Use::Ignored),
    text("distributed-tracing-service-name", Use::Ignored),
    text("distributed-tracing-instance-id", Use::Ignored),
    text("distributed-tracing-sampling-rate", Use::Ignored),
    text("corrupt-check-time", Use::Obeyed),
    text("compact-hash-check-time", Use::Obeyed),
    text("compaction-batch-limit", Use::Ignored),
    boolean("peer-skip-client-san-verification", Use::Obeyed),
    text("watch-progress-notify-interval", Use::Obeyed),
    text("warning-apply-duration", Use::Ignored),
    text("bootstrap-defrag-threshold-megabytes", Use::Ignored),
    text("max-learners", Use::Obeyed),
    text("compaction-sleep-interval", Use::Ignored),
    text("downgrade-check-time", Use::Ignored),
    text("snapshot-catchup-entries", Use::Obeyed),
    boolean("force-new-cluster", Use::Obeyed),
    boolean("unsafe-no-fsync", Use::Ignored),
    text("config-file", Use::Obeyed),
    boolean("version", Use::Obeyed),
    boolean("help", Use::Obeyed),
    boolean("h", Use::Obeyed),
    text(SNAPSHOT_RATE, Use::Obeyed),
    text(CLAIMED_VERSION, Use::Obeyed),
];

/// The flag of a name, when etcd has it.
pub(super) fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// `ETCD_<NAME>` of a flag of etcd, `HOLDFAST_<NAME>` of ours.
pub(super) fn environment_name(flag: &str) -> String {
    let whose = if flag == SNAPSHOT_RATE {
        "HOLDFAST"
    } else {
        "ETCD"
    };
    format!("{whose}_{}", flag.replace('-', "_").to_ascii_uppercase())
}

/// Raw values by flag name.
pub(super) type Values = BTreeMap<&'static str, String>;

/// Reads `--f=v`, `--f v`, `-f=v` and bare booleans; the last of duplicates wins.
pub(super) fn from_arguments(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Values, UsageError> {
    let mut values = Values::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let argument = utf8(argument)?;
        let Some(body) = argument
            .strip_prefix("--")
            .or_else(|| argument.strip_prefix('-'))
        else {
            return Err(UsageError::new(format!(
                "\"{argument}\" is not a valid flag"
            )));
        };
        let (name, inline) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let Some(flag) = find(name) else {
            return Err(UsageError::new(format!(
                "flag provided but not defined: -{name}"
            )));
        };
        let value = match (inline, flag.shape) {
            (Some(value), _) => value,
            (None, Shape::Bool) => "true".to_owned(),
            (None, Shape::Text) => match arguments.next() {
                Some(value) => utf8(value)?,
                None => return Err(UsageError::new(format!("flag needs an argument: -{name}"))),
            },
        };
        values.insert(flag.name, value);
    }
    Ok(values)
}

/// Adds what the environment says for flags that `values` lacks.
pub(super) fn add_environment(values: &mut Values, environment: &BTreeMap<String, String>) {
    for flag in FLAGS
        .iter()
        .filter(|flag| !matches!(flag.name, "version" | "help" | "h"))
    {
        if values.contains_key(flag.name) {
            continue;
        }
        if let Some(value) = environment.get(&environment_name(flag.name))
            && !value.is_empty()
        {
            values.insert(flag.name, value.clone());
        }
    }
}

/// Refuses a variable beside the flag it stands for, as etcd does, even when both say the same.
pub(super) fn refuse_conflicts(
    given: &[&'static str],
    environment: &BTreeMap<String, String>,
) -> Result<(), UsageError> {
    for flag in given {
        let name = environment_name(flag);
        if environment
            .get(&name)
            .is_some_and(|value| !value.is_empty())
        {
            return Err(UsageError::new(format!(
                "conflicting environment variable {name} is shadowed by the flag --{flag}: unset \
                 the variable or drop the flag"
            )));
        }
    }
    Ok(())
}

/// Names in the environment that look like a flag's and are none.
pub(super) fn unknown_environment(environment: &BTreeMap<String, String>) -> Vec<String> {
    environment
        .keys()
        .filter(|key| key.starts_with("ETCD_"))
        .filter(|key| {
            !FLAGS
                .iter()
                .any(|flag| environment_name(flag.name) == **key)
        })
        .cloned()
        .collect()
}

fn utf8(argument: OsString) -> Result<String, UsageError> {
    argument
        .into_string()
        .map_err(|raw| UsageError::new(format!("argument is not UTF-8: {}", raw.display())))
}
