//! From raw values to [`StoreOptions`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::flags::{self, Shape, Use, Values};
use super::{
    AutoCompaction, ClusterState, Invocation, ListenUrl, LogLevel, MetricsDetail, StoreOptions,
    UsageError, discovery, features, file, tls, value,
};
use crate::consensus::peer::BoundDialer;

/// Most members an initial cluster may name.
const MEMBERS_MAX: usize = 64;

/// Reads everything the process was given.
pub(super) fn invocation(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &BTreeMap<String, String>,
) -> Result<Invocation, UsageError> {
    let mut values = flags::from_arguments(arguments)?;
    let mut warnings = Vec::new();
    if is_on(&values, "help")? || is_on(&values, "h")? {
        return Ok(Invocation::Help(help()));
    }
    let given: Vec<&'static str> = values.keys().copied().collect();
    flags::add_environment(&mut values, environment);
    let claimed = claimed_version(&values, environment)?;
    if is_on(&values, "version")? {
        return Ok(Invocation::Version(version_text(&claimed)));
    }
    if let Some(path) = values.get("config-file").filter(|path| !path.is_empty()) {
        values = file::read(&PathBuf::from(path), &mut warnings)?;
    } else {
        flags::refuse_conflicts(&given, environment)?;
        warnings.extend(
            flags::unknown_environment(environment)
                .into_iter()
                .map(|name| format!("unrecognized environment variable: {name}")),
        );
    }
    check_uses(&values, &mut warnings)?;
    let mut options = options(&values)?;
    if let Some(text) = values.get("feature-gates") {
        options.features = features::read(text, &mut warnings)?;
    }
    if options.features.binds_peer_address
        && let Some(local) = own_address(&options.cluster.advertise_peer_urls)
    {
        options.peer_dialer = Arc::new(BoundDialer { local });
    }
    options.peer_tls = tls::read(&values, &options.listen.peer_urls, &mut warnings)?;
    options.claimed_version = claimed;
    Ok(Invocation::Run {
        options: Box::new(options),
        warnings,
    })
}

/// The first address among this member's peer URLs.
fn own_address(peer_urls: &[String]) -> Option<IpAddr> {
    peer_urls.iter().find_map(|url| {
        let uri: http::Uri = url.parse().ok()?;
        uri.host()?.trim_matches(['[', ']']).parse().ok()
    })
}

/// Warns about what has no effect and refuses what would be a false promise.
fn check_uses(values: &Values, warnings: &mut Vec<String>) -> Result<(), UsageError> {
    for (name, text) in values {
        let Some(flag) = flags::find(name) else {
            continue;
        };
        if flag.shape == Shape::Bool && !text.is_empty() {
            value::boolean(name, text)?;
        }
        match flag.used {
            Use::Obeyed => {}
            Use::Ignored => warnings.push(format!("--{name} is accepted and has no effect")),
            Use::Refused => {
                let off = match flag.shape {
                    Shape::Bool => text.is_empty() || !value::boolean(name, text)?,
                    Shape::Text => text.is_empty(),
                };
                if !off {
                    return Err(UsageError::new(format!(
                        "--{name} is not supported by this version"
                    )));
                }
            }
        }
    }
    Ok(())
}

fn options(values: &Values) -> Result<StoreOptions, UsageError> {
    let mut options = StoreOptions::defaults();
    let get = |name: &str| {
        values
            .get(name)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    };
    if let Some(name) = get("name") {
        name.clone_into(&mut options.name);
    }
    options.data_dir = match get("data-dir") {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(format!("{}.etcd", options.name)),
    };
    listeners(&mut options, values)?;
    cluster(&mut options, values)?;
    limits(&mut options, values)?;
    options.auto_compaction = auto_compaction(values)?;
    if let Some(text) = get("log-level") {
        options.log_level = log_level(text)?;
    }
    options.metrics_detail = match get("metrics") {
        None | Some("basic") => MetricsDetail::Basic,
        Some("extensive") => MetricsDetail::Extensive,
        Some(text) => return Err(value::invalid("metrics", text)),
    };
    if let Some(text) = get("corrupt-check-time") {
        // etcd's default of 0 is ours as well: the check runs at its own, slow pace.
        let interval = value::duration("corrupt-check-time", text)?;
        if !interval.is_zero() {
            options.scrub.interval = interval.max(Duration::from_secs(1));
            options.corrupt_check = Some(interval);
        }
    }
    if let Some(text) = get("compact-hash-check-time") {
        let interval = value::duration("compact-hash-check-time", text)?;
        if interval.is_zero() {
            return Err(UsageError::new(
                "--compact-hash-check-time must be >0 (set to 0s)",
            ));
        }
        options.compact_hash_check = interval;
    }
    if let Some(text) = get("watch-progress-notify-interval") {
        let interval = value::duration("watch-progress-notify-interval", text)?;
        options.watch_progress_interval = interval.max(Duration::from_millis(100));
    }
    Ok(options)
}

fn listeners(options: &mut StoreOptions, values: &Values) -> Result<(), UsageError> {
    let get = |name: &str| {
        values
            .get(name)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    };
    let listen = &mut options.listen;
    let mut is_client_set = false;
    if let Some(text) = get("listen-client-urls") {
        listen.client_urls = in_clear(ListenUrl::parse_list(text)?)?;
        is_client_set = true;
    }
    if let Some(text) = get("listen-peer-urls") {
        listen.peer_urls = ListenUrl::parse_list(text)?;
    }
    if let Some(text) = get("listen-metrics-urls") {
        listen.metrics_urls = in_clear(ListenUrl::parse_list(text)?)?;
    }
    if let Some(text) = get("grpc-keepalive-interval") {
        listen.keepalive_interval = value::duration("grpc-keepalive-interval", text)?;
    }
    if let Some(text) = get("grpc-keepalive-timeout") {
        listen.keepalive_timeout = value::duration("grpc-keepalive-timeout", text)?;
    }
    if let Some(text) = get("max-concurrent-streams") {
        let limit: u32 = value::number("max-concurrent-streams", text)?;
        listen.concurrent_streams_max = (limit != u32::MAX).then_some(limit);
    }
    match get("advertise-client-urls") {
        Some(text) => options.advertise_client_urls = urls("advertise-client-urls", text)?,
        None if is_client_set => {
            return Err(UsageError::new(
                "--advertise-client-urls is required when --listen-client-urls is set explicitly",
            ));
        }
        None => {}
    }
    Ok(())
}

/// Clients and monitoring are served in clear only.
fn in_clear(urls: Vec<ListenUrl>) -> Result<Vec<ListenUrl>, UsageError> {
    match urls.iter().find(|url| url.is_secure()) {
        None => Ok(urls),
        Some(url) => Err(UsageError::new(format!(
            "this version does not serve TLS to clients: {url}"
        ))),
    }
}

fn cluster(options: &mut StoreOptions, values: &Values) -> Result<(), UsageError> {
    let get = |name: &str| {
        values
            .get(name)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    };
    if let Some(text) = get("initial-advertise-peer-urls") {
        options.cluster.advertise_peer_urls = urls("initial-advertise-peer-urls", text)?;
    }
    options.cluster.initial_cluster = match get("initial-cluster") {
        Some(text) => initial_cluster(text)?,
        None => vec![(
            options.name.clone(),
            options.cluster.advertise_peer_urls.clone(),
        )],
    };
    if let Some(text) = get("initial-cluster-token") {
        text.clone_into(&mut options.cluster.token);
    }
    options.cluster.state = match get("initial-cluster-state") {
        None | Some("new") => ClusterState::New,
        Some("existing") => ClusterState::Existing,
        Some(text) => return Err(value::invalid("initial-cluster-state", text)),
    };
    options.cluster.discovery = discovery::read(values)?;
    options.cluster.srv = discovery::read_srv(values)?;
    if options.cluster.discovery.is_some() && options.cluster.state == ClusterState::Existing {
        return Err(UsageError::new(
            "discovery URL should not be set when joining existing initial cluster",
        ));
    }
    if let Some(text) = get("force-new-cluster") {
        options.cluster.is_forced_alone = value::boolean("force-new-cluster", text)?;
    }
    if let Some(text) = get("max-learners") {
        options.cluster.learners_max = value::number("max-learners", text)?;
    }
    if let Some(text) = get("strict-reconfig-check") {
        options.cluster.is_reconfig_strict = value::boolean("strict-reconfig-check", text)?;
    }
    Ok(())
}

fn limits(options: &mut StoreOptions, values: &Values) -> Result<(), UsageError> {
    let get = |name: &str| {
        values
            .get(name)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    };
    let limits = &mut options.limits;
    if let Some(text) = get("quota-backend-bytes") {
        limits.quota_backend_bytes = value::number("quota-backend-bytes", text)?;
    }
    if let Some(text) = get("max-request-bytes") {
        limits.request_bytes_max = value::number("max-request-bytes", text)?;
    }
    if let Some(text) = get("max-txn-ops") {
        limits.txn_ops_max = value::number("max-txn-ops", text)?;
    }
    if let Some(text) = get("warning-unary-request-duration") {
        limits.slow_request = value::duration("warning-unary-request-duration", text)?;
    }
    let raft = &mut options.raft;
    if let Some(text) = get("snapshot-count") {
        raft.snapshot_count = value::number("snapshot-count", text)?;
    }
    if let Some(text) = get("snapshot-catchup-entries") {
        raft.catch_up_entries = value::number("snapshot-catchup-entries", text)?;
    }
    if let Some(text) = get(flags::SNAPSHOT_RATE) {
        let rate: u64 = value::number(flags::SNAPSHOT_RATE, text)?;
        raft.snapshot_bytes_per_s = (rate > 0).then_some(rate);
    }
    if let Some(text) = get("pre-vote") {
        raft.pre_vote = value::boolean("pre-vote", text)?;
    }
    if let Some(text) = get("heartbeat-interval") {
        raft.heartbeat = Duration::from_millis(value::number("heartbeat-interval", text)?);
    }
    if let Some(text) = get("election-timeout") {
        raft.election_timeout = Duration::from_millis(value::number("election-timeout", text)?);
    }
    if raft.heartbeat.is_zero() {
        return Err(UsageError::new("--heartbeat-interval must be over 0"));
    }
    if raft.heartbeat.saturating_mul(5) > raft.election_timeout {
        return Err(UsageError::new(format!(
            "--election-timeout[{}ms] should be at least as 5 times as --heartbeat-interval[{}ms]",
            raft.election_timeout.as_millis(),
            raft.heartbeat.as_millis(),
        )));
    }
    if raft.election_timeout > Duration::from_secs(50) {
        return Err(UsageError::new(format!(
            "--election-timeout[{}ms] is too long, and should be set less than 50000ms",
            raft.election_timeout.as_millis(),
        )));
    }
    Ok(())
}

fn auto_compaction(values: &Values) -> Result<AutoCompaction, UsageError> {
    const RETENTION: &str = "auto-compaction-retention";
    let get = |name: &str| {
        values
            .get(name)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    };
    let retention = get(RETENTION).unwrap_or("0");
    match get("auto-compaction-mode").unwrap_or("periodic") {
        "periodic" => {
            // A bare number is hours.
            let period = match retention.parse::<u32>() {
                Ok(hours) => Duration::from_hours(u64::from(hours)),
                Err(_) => value::duration(RETENTION, retention)?,
            };
            Ok(if period.is_zero() {
                AutoCompaction::Off
            } else {
                AutoCompaction::Periodic(period)
            })
        }
        "revision" => match value::number::<i64>(RETENTION, retention)? {
            0 => Ok(AutoCompaction::Off),
            revisions if revisions > 0 => Ok(AutoCompaction::Revision(revisions)),
            _ => Err(value::invalid(RETENTION, retention)),
        },
        mode => Err(value::invalid("auto-compaction-mode", mode)),
    }
}

fn log_level(text: &str) -> Result<LogLevel, UsageError> {
    match text {
        "debug" => Ok(LogLevel::Debug),
        "info" => Ok(LogLevel::Info),
        "warn" => Ok(LogLevel::Warn),
        "error" | "dpanic" | "panic" | "fatal" => Ok(LogLevel::Error),
        _ => Err(value::invalid("log-level", text)),
    }
}

/// A comma-separated list of URLs that others will dial.
fn urls(flag: &str, text: &str) -> Result<Vec<String>, UsageError> {
    let urls: Vec<String> = text
        .split(',')
        .map(|url| url.trim().trim_end_matches('/').to_owned())
        .filter(|url| !url.is_empty())
        .collect();
    let is_known = |url: &String| {
        ["http://", "https://", "unix://", "unixs://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
    };
    if urls.is_empty() || !urls.iter().all(is_known) {
        return Err(value::invalid(flag, text));
    }
    Ok(urls)
}

/// `name=url,name=url`; a repeated name adds a URL to its member.
fn initial_cluster(text: &str) -> Result<Vec<(String, Vec<String>)>, UsageError> {
    let mut members: Vec<(String, Vec<String>)> = Vec::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let Some((name, url)) = part.split_once('=') else {
            return Err(value::invalid("initial-cluster", text));
        };
        let url = urls("initial-cluster", url)?.remove(0);
        match members.iter_mut().find(|(known, _)| known == name) {
            Some((_, urls)) => urls.push(url),
            None => members.push((name.to_owned(), vec![url])),
        }
        if members.len() > MEMBERS_MAX {
            return Err(UsageError::new(format!("more than {MEMBERS_MAX} members")));
        }
    }
    Ok(members)
}

fn is_on(values: &Values, name: &str) -> Result<bool, UsageError> {
    values
        .get(name)
        .map_or(Ok(false), |text| value::boolean(name, text))
}

fn claimed_version(
    values: &Values,
    environment: &BTreeMap<String, String>,
) -> Result<String, UsageError> {
    let text = values
        .get(flags::CLAIMED_VERSION)
        .or_else(|| environment.get("HOLDFAST_CLAIMED_VERSION"))
        .map_or(super::CLAIMED_VERSION, String::as_str);
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() != 3 || parts.iter().any(|part| part.parse::<u32>().is_err()) {
        return Err(value::invalid(flags::CLAIMED_VERSION, text));
    }
    Ok(text.to_owned())
}

fn version_text(claimed: &str) -> String {
    format!(
        "etcd Version: {claimed}\nHoldfast Version: {}\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn help() -> String {
    let mut text = String::from(
        "Usage: holdfast store [flags]\n\nRuns one member of the bundled store. Flags, ETCD_* \
         variables and --config-file are etcd's.\n\nFlags:\n",
    );
    for flag in flags::FLAGS.iter().filter(|flag| flag.used == Use::Obeyed) {
        if flag.name != flags::CLAIMED_VERSION && flag.name != "h" {
            text.push_str("  --");
            text.push_str(flag.name);
            text.push('\n');
        }
    }
    text.push_str("\nAccepted without effect:\n");
    for flag in flags::FLAGS.iter().filter(|flag| flag.used == Use::Ignored) {
        text.push_str("  --");
        text.push_str(flag.name);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
