//! What `holdfast store` says and how it ends: flags, variables, file, ports, directories, signals.

use holdfast_store::bolt::FileSource;
use holdfast_store::datadir::bootstrap::{Changes, NewCluster, write_data_dir};
use holdfast_store::etcd_file::EtcdFile;
use serde_json::Value;

use crate::store_process::Running;
use crate::support::{Place, free_port};

#[tokio::test]
async fn the_version_is_told_in_etcds_form_and_can_be_claimed() {
    let place = Place::new();
    let ended = place.run(&["store", "--version"]).await.expect(0);
    assert!(ended.said.starts_with("etcd Version: 3.7.3\n"), "{ended:?}");
    let claimed = place
        .run(&["store", "--claimed-version=3.7.9", "-version"])
        .await
        .expect(0);
    assert!(
        claimed.said.starts_with("etcd Version: 3.7.9\n"),
        "{claimed:?}"
    );
}

#[tokio::test]
async fn a_flag_that_cannot_be_used_is_a_usage_error_by_its_name() {
    let place = Place::new();
    for (words, part) in [
        (vec!["--nope"], "flag provided but not defined: -nope"),
        (vec!["--snapshot-count", "abc"], "-snapshot-count"),
        (
            vec!["--listen-client-urls=ftp://127.0.0.1:1"],
            "URL scheme must be",
        ),
        (
            vec!["--listen-client-urls=http://127.0.0.1:0"],
            "--advertise-client-urls is required",
        ),
        (
            vec!["--initial-cluster-state=maybe"],
            "-initial-cluster-state",
        ),
        (
            vec!["--auto-compaction-mode=sometimes"],
            "-auto-compaction-mode",
        ),
        (
            vec!["--feature-gates=NoSuch=true"],
            "unrecognized feature gate: NoSuch",
        ),
        (vec!["--name=x", "extra"], "\"extra\" is not a valid flag"),
        (vec!["--config-file=nothing.yaml"], "nothing.yaml"),
        (vec!["--cert-file=some.pem"], "--cert-file is not supported"),
    ] {
        let words = [&["store"], words.as_slice()].concat();
        let ended = place.run(&words).await.expect(2);
        assert!(ended.complained.contains(part), "{words:?}: {ended:#?}");
    }
}

/// Runs the program with variables of the environment until it ends.
async fn run_with(place: &Place, variables: &[(&str, &str)], words: &[&str]) -> (i32, String) {
    let mut command = place.command(words);
    command.envs(variables.iter().copied());
    let output = command.output().await.unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap_or(-1), complained)
}

#[tokio::test]
async fn a_flag_beside_its_variable_is_refused_and_a_file_silences_both() {
    let place = Place::new();
    let variable = [("ETCD_NAME", "same")];
    let (code, told) = run_with(&place, &variable, &["store", "--name=same"]).await;
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("conflicting environment variable"), "{told}");
    let (code, told) = run_with(&place, &[("ETCD_SNAPSHOT_COUNT", "abc")], &["store"]).await;
    assert_eq!(code, 2, "{told}");
    // The file is what counts: its wrong value is told, the flag and the variable are not seen.
    place.write("c.yaml", "name: from-file\nsnapshot-count: abc\n");
    let words = ["store", "--config-file=c.yaml", "--name=same"];
    let (code, told) = run_with(&place, &variable, &words).await;
    assert_eq!(code, 2, "{told}");
    assert!(
        told.contains("snapshot-count") && !told.contains("conflicting"),
        "{told}"
    );
}

#[tokio::test]
async fn a_directory_in_use_and_a_taken_port_are_conflicts_by_their_names() {
    let place = Place::new();
    let running = Running::start(&place, &[]).await;
    let locked = Running::run_to_its_end(&place, &[]).await.expect(11);
    assert!(
        locked.complained.contains("in use by another process"),
        "{locked:#?}"
    );
    assert!(locked.complained.contains("m0"), "{locked:#?}");

    let elsewhere = Place::new();
    let port = running.port.to_string();
    let taken = format!("http://127.0.0.1:{port}");
    for flag in [
        "--listen-client-urls",
        "--listen-peer-urls",
        "--listen-metrics-urls",
    ] {
        let flag = format!("{flag}={taken}");
        let ended = Running::run_to_its_end(&elsewhere, &[&flag])
            .await
            .expect(11);
        assert!(ended.complained.contains(&port), "{flag}: {ended:#?}");
    }
    let (code, log) = running.stop().await;
    assert_eq!(code, 0, "{log}");
}

#[tokio::test]
async fn the_log_of_a_start_and_a_stop_is_json_with_the_words_tools_look_for() {
    let place = Place::new();
    let running = Running::start(&place, &[]).await;
    running.client().await.put("k", "v").await;
    let start = tokio::time::Instant::now();
    let (code, log) = running.stop().await;
    assert_eq!(code, 0, "{log}");
    assert!(
        start.elapsed() < std::time::Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for line in &lines {
        for field in ["level", "ts", "caller", "msg"] {
            assert!(line[field].is_string(), "{field} in {line}");
        }
        assert!(
            line["level"] != "error" && line["level"] != "fatal",
            "{line}"
        );
    }
    let said = |text: &str| {
        lines
            .iter()
            .any(|line| line["msg"].as_str().unwrap().starts_with(text))
    };
    for text in [
        "ready to serve client requests",
        "serving client traffic",
        "serving peer traffic",
        "grpc service status changed",
    ] {
        assert!(said(text), "{text} in {log}");
    }
}

#[tokio::test]
async fn a_request_over_the_limit_is_logged_in_etcds_words_without_its_value() {
    let place = Place::new();
    let running = Running::start(&place, &["--warning-unary-request-duration=1ns"]).await;
    running.client().await.put("shown", "never shown").await;
    let (_, log) = running.stop().await;
    let line = log
        .lines()
        .filter(|line| line.contains("\"request stats\""))
        .find(|line| line.contains("/etcdserverpb.KV/Put"))
        .unwrap_or_else(|| panic!("no line in {log}"));
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["level"], "warn");
    assert_eq!(line["request content"], "key:\"shown\" value_size:11");
    assert_eq!(line["request count"], 1);
    assert!(line["request size"].as_i64().unwrap() > 11, "{line}");
    assert!(line["response size"].as_i64().unwrap() > 0, "{line}");
    assert!(line["time spent"].is_string(), "{line}");
    assert!(
        line["remote"].as_str().unwrap().starts_with("127.0.0.1:"),
        "{line}"
    );
    assert!(!log.contains("never shown"));
}

#[tokio::test]
async fn data_with_authentication_enabled_is_refused_with_the_way_out() {
    let place = Place::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap();
    let snapshot = root.join("store/tests/fixtures/etcd/v3.7.3/auth.db");
    let (port, peer_port) = (free_port(), free_port());
    let cluster = NewCluster {
        name: "m0".to_owned(),
        initial_cluster: vec![(
            "m0".to_owned(),
            vec![format!("http://127.0.0.1:{peer_port}")],
        )],
        token: "etcd-cluster".to_owned(),
    };
    let target = place.path().join("m0");
    let file = EtcdFile::open(FileSource::open(&snapshot).unwrap()).unwrap();
    write_data_dir(&target, &file, &cluster, Changes::default()).unwrap();
    let running = Running::start_at(&place, (port, peer_port), &[]);
    let refusal = running.refusal().await;
    assert_eq!(
        refusal.code(),
        tonic::Code::FailedPrecondition,
        "{refusal:?}"
    );
    for part in [
        "authentication is enabled in the data",
        "holdfast restore --target etcd",
    ] {
        assert!(refusal.message().contains(part), "{refusal:?}");
    }
    let (code, log) = running.stop().await;
    assert_eq!(code, 0, "{log}");
    assert!(
        log.contains("authentication is enabled in the data"),
        "{log}"
    );
}
