use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use super::super::{
    AutoCompaction, ClusterState, Invocation, LogLevel, MetricsDetail, StoreOptions,
};

fn read(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Invocation, String> {
    let environment: BTreeMap<String, String> = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    StoreOptions::from_args(arguments.iter().map(OsString::from), &environment)
        .map_err(|error| error.to_string())
}

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (StoreOptions, Vec<String>) {
    match read(arguments, environment) {
        Ok(Invocation::Run { options, warnings }) => (*options, warnings),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_form_of_a_flag_is_read_and_the_last_wins() {
    let (options, warnings) = run(
        &[
            "--name=a",
            "-name",
            "b",
            "--name",
            "c",
            "-name=d",
            "--enable-pprof",
        ],
        &[],
    );
    assert_eq!(options.name, "d");
    assert_eq!(options.data_dir.to_str(), Some("d.etcd"));
    assert_eq!(options.cluster.initial_cluster[0].0, "d");
    assert_eq!(warnings, ["--enable-pprof is accepted and has no effect"]);
}

#[test]
fn metrics_are_basic_or_extensive() {
    for (arguments, expected) in [
        (&[][..], MetricsDetail::Basic),
        (&["--metrics="], MetricsDetail::Basic),
        (&["--metrics=basic"], MetricsDetail::Basic),
        (&["--metrics", "extensive"], MetricsDetail::Extensive),
    ] {
        let (options, warnings) = run(arguments, &[]);
        assert_eq!(options.metrics_detail, expected, "{arguments:?}");
        assert!(warnings.is_empty(), "{warnings:?}");
    }
    let refused = read(&["--metrics=much"], &[]).unwrap_err();
    assert!(
        refused.contains("metrics") && refused.contains("much"),
        "{refused}"
    );
}

#[test]
fn a_variable_says_what_no_flag_says_and_never_the_same_thing_twice() {
    let environment = [("ETCD_SNAPSHOT_COUNT", "7"), ("ETCD_NO_SUCH", "1")];
    let (options, warnings) = run(&["--name=from-flag"], &environment);
    assert_eq!(options.name, "from-flag");
    let both = read(&["--name=same"], &[("ETCD_NAME", "same")]).unwrap_err();
    assert!(
        both.contains("ETCD_NAME") && both.contains("--name"),
        "{both}"
    );
    assert_eq!(options.raft.snapshot_count, 7);
    assert_eq!(
        warnings,
        ["unrecognized environment variable: ETCD_NO_SUCH"]
    );
}

#[test]
fn a_file_silences_flags_and_environment() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("etcd.yaml");
    std::fs::write(&path, "name: from-file\nmax-txn-ops: 9\n").unwrap();
    let flag = format!("--config-file={}", path.display());
    let (options, _) = run(
        &["--name=from-flag", &flag],
        &[("ETCD_MAX_REQUEST_BYTES", "5")],
    );
    assert_eq!(options.name, "from-file");
    assert_eq!(options.limits.txn_ops_max, 9);
    assert_eq!(options.limits.request_bytes_max, 1_572_864);
}

#[test]
fn unknown_flags_and_bad_values_are_usage_errors() {
    for arguments in [
        &["--no-such-flag"][..],
        &["--name"],
        &["positional"],
        &["--max-txn-ops=many"],
        &["--initial-cluster-state=old"],
        &["--log-level=loud"],
        &["--pre-vote=perhaps"],
        &["--election-timeout=100"],
        &["--election-timeout=60000"],
        &["--heartbeat-interval=0"],
        &["--auto-compaction-mode=never"],
        &["--initial-cluster=nourl"],
        &["--listen-client-urls=http://127.0.0.1:1"],
        &["--cert-file=x.pem"],
        &["--force-new-cluster=perhaps"],
        &["--config-file=/no/such/file"],
        &["--claimed-version=3.7"],
    ] {
        assert!(read(arguments, &[]).is_err(), "{arguments:?}");
    }
}

#[test]
fn the_version_is_told_in_etcds_form_and_can_be_overridden() {
    let text = |arguments: &[&str], environment: &[(&str, &str)]| match read(arguments, environment)
    {
        Ok(Invocation::Version(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(text(&["--version"], &[]).starts_with("etcd Version: 3.7.3\n"));
    assert!(
        text(&["--version", "--claimed-version=3.6.1"], &[]).starts_with("etcd Version: 3.6.1\n")
    );
    let environment = [("HOLDFAST_CLAIMED_VERSION", "3.5.9")];
    assert!(text(&["--version"], &environment).starts_with("etcd Version: 3.5.9\n"));
}

#[test]
fn cluster_and_compaction_settings_are_read() {
    let (options, _) = run(
        &[
            "--initial-cluster=a=http://h1:1,b=http://h2:2,a=http://h3:3",
            "--initial-cluster-state=existing",
            "--auto-compaction-retention=2",
            "--log-level=debug",
            "--quota-backend-bytes=-1",
        ],
        &[],
    );
    assert_eq!(options.cluster.initial_cluster.len(), 2);
    assert_eq!(
        options.cluster.initial_cluster[0].1,
        ["http://h1:1", "http://h3:3"]
    );
    assert_eq!(options.cluster.state, ClusterState::Existing);
    assert_eq!(
        options.auto_compaction,
        AutoCompaction::Periodic(Duration::from_hours(2))
    );
    assert_eq!(options.log_level, LogLevel::Debug);
    assert_eq!(options.quota_bytes(), None);
    let (options, _) = run(
        &[
            "--auto-compaction-mode=revision",
            "--auto-compaction-retention=1000",
        ],
        &[],
    );
    assert_eq!(options.auto_compaction, AutoCompaction::Revision(1000));
    assert_eq!(options.quota_bytes(), Some(2 * 1024 * 1024 * 1024));
}

#[test]
fn what_bounds_a_cluster_is_read_from_etcds_flags() {
    let (options, warnings) = run(&[], &[]);
    assert!(options.cluster.is_reconfig_strict && warnings.is_empty());
    assert!(!options.cluster.is_forced_alone);
    assert_eq!(options.cluster.learners_max, 1);
    assert_eq!(options.raft.catch_up_entries, 5000);
    let flags = [
        "--strict-reconfig-check=false",
        "--max-learners=2",
        "--force-new-cluster",
        "--snapshot-catchup-entries=7",
        "--snapshot-send-rate=1000000",
    ];
    let (options, warnings) = run(&flags, &[]);
    assert!(!options.cluster.is_reconfig_strict && warnings.is_empty());
    assert!(options.cluster.is_forced_alone);
    assert_eq!(options.cluster.learners_max, 2);
    assert_eq!(options.raft.catch_up_entries, 7);
    assert_eq!(options.raft.snapshot_bytes_per_s, Some(1_000_000));
    let (options, _) = run(&[], &[("HOLDFAST_SNAPSHOT_SEND_RATE", "7")]);
    assert_eq!(options.raft.snapshot_bytes_per_s, Some(7));
    let (options, _) = run(&["--snapshot-send-rate=0"], &[]);
    assert_eq!(options.raft.snapshot_bytes_per_s, None);
    assert!(read(&["--max-learners=-1"], &[]).is_err());
}
