//! Each exit code, from a command that really ends with it.

use holdfast_store::datadir::durable;

use crate::support::Place;

#[tokio::test]
async fn an_unknown_word_or_flag_is_a_usage_error() {
    let place = Place::new();
    place.run(&["frobnicate"]).await.expect(2);
    place.run(&["status", "--frobnicate"]).await.expect(2);
    place.run(&[]).await.expect(2);
    place.run(&["--help"]).await.expect(0);
    place.run(&["--version"]).await.expect(0);
}

#[tokio::test]
async fn a_configuration_that_makes_no_sense_is_refused_with_its_place() {
    let place = Place::new();
    place.write(
        "holdfast.yaml",
        "policies:\n  encryption: none\nstore:\n  nmae: x\n",
    );
    let ended = place.run(&["config", "check"]).await.expect(2);
    assert!(ended.complained.contains("nmae"), "{ended:?}");
    assert!(ended.complained.contains("config-invalid"), "{ended:?}");
    assert!(
        ended.complained.contains('4'),
        "the line is named: {ended:?}"
    );
}

#[tokio::test]
async fn a_file_that_does_not_say_how_backups_are_encrypted_starts_nothing() {
    let place = Place::new();
    place.write("holdfast.yaml", "store:\n  name: x\n");
    for words in [&["run"][..], &["config", "check"], &["backup", "now"]] {
        let ended = place.run(words).await.expect(2);
        assert!(
            ended.complained.contains("encryption-not-configured"),
            "{ended:?}"
        );
        assert!(
            ended.complained.contains("encryption: none"),
            "the way out is named: {ended:?}"
        );
    }
    assert!(
        !place.path().join("holdfast-data/store").exists(),
        "the store was not started"
    );
}

#[tokio::test]
async fn keys_made_before_the_configuration_are_kept_and_used() {
    let place = Place::new();
    place.run(&["vault", "check"]).await.expect(0);
    let identity = place.path().join("holdfast-data/keys/identity.age");
    let before = std::fs::read(&identity).unwrap();
    let made = place.run(&["init"]).await.expect(0);
    assert!(made.said.contains("kept and used"), "{made:?}");
    assert_eq!(std::fs::read(&identity).unwrap(), before);
    let shown = place.run(&["key", "show", "-w", "json"]).await.expect(0);
    let shown = shown.json();
    assert_eq!(shown["sealed_for"], shown["can_open"], "{shown}");
}

#[tokio::test]
async fn the_first_hour_without_a_backup_says_what_to_do_next() {
    let place = Place::new();
    for words in [
        &["backup", "list"][..],
        &["backup", "show"],
        &["drill", "run"],
    ] {
        let ended = place.run(words).await.expect(10);
        assert!(ended.complained.contains("holdfast run"), "{ended:?}");
    }
    place.run(&["init"]).await.expect(0);
    place.run(&["vault", "check"]).await.expect(0);
    let drill = place.run(&["drill", "run"]).await.expect(10);
    assert!(
        drill.complained.contains("no backup of `bundled`"),
        "{drill:?}"
    );
    place.run(&["drill", "show"]).await.expect(10);
}

#[tokio::test]
async fn an_existing_file_is_never_replaced() {
    let place = Place::new();
    place.run(&["init"]).await.expect(0);
    let before = std::fs::read(place.path().join("holdfast.yaml")).unwrap();
    place.run(&["init"]).await.expect(11);
    assert_eq!(
        std::fs::read(place.path().join("holdfast.yaml")).unwrap(),
        before
    );
    place
        .run(&["key", "generate", "--dir", "holdfast-data/keys"])
        .await
        .expect(11);
}

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    let place = Place::new();
    place.run(&["init"]).await.expect(0);
    place.run(&["backup", "show"]).await.expect(10);
    place
        .run(&["backup", "list", "--source", "nobody"])
        .await
        .expect(10);
    place
        .run(&["restore", "--data-dir", "new"])
        .await
        .expect(10);
    place
        .run(&["--config", "nowhere.yaml", "config", "check"])
        .await
        .expect(10);
    place
        .run(&["snapshot", "status", "nowhere.db"])
        .await
        .expect(10);
}

#[tokio::test]
async fn a_store_that_is_not_running_is_unavailable() {
    let place = Place::new();
    place.run(&["init"]).await.expect(0);
    let ended = place.run(&["backup", "now", "-w", "json"]).await.expect(14);
    let failure: serde_json::Value = serde_json::from_str(&ended.complained).unwrap();
    assert_eq!(failure["error"], "unavailable");
    assert_eq!(failure["exit_code"], 14);
    assert!(failure["next"].as_str().unwrap().contains("holdfast run"));
}

#[tokio::test]
async fn missing_evidence_is_a_missed_objective() {
    let place = Place::new();
    place.run(&["init"]).await.expect(0);
    let ended = place.run(&["status"]).await.expect(21);
    assert!(ended.said.contains("MISSED"), "{ended:?}");
}

#[tokio::test]
async fn no_answer_and_no_log_line_shows_a_secret_key() {
    let place = Place::new();
    place.run(&["init"]).await.expect(0);
    let secret = std::fs::read_to_string(place.path().join("holdfast-data/keys/identity.age"));
    let secret = secret.unwrap().lines().last().unwrap().to_owned();
    assert!(secret.starts_with("AGE-SECRET-KEY-"));
    for words in [
        &["key", "show"][..],
        &["config", "print"],
        &["status", "--log-level", "trace"],
    ] {
        let ended = place.run(words).await;
        assert!(
            !ended.said.contains(&secret) && !ended.complained.contains(&secret),
            "{words:?}"
        );
    }
}

#[tokio::test]
async fn the_doctor_finds_a_folder_fit_for_backups_and_leaves_nothing() {
    let place = Place::new();
    place.run(&["init"]).await.expect(0);
    let checked = place
        .run(&["vault", "check", "-w", "json"])
        .await
        .expect(0)
        .json();
    let names: Vec<&str> = checked["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "write",
            "create only",
            "read",
            "list",
            "clock",
            "remove",
            "multipart",
            "multipart abort",
            "signed digest",
            "checksum"
        ]
    );
    let left = place.path().join("holdfast-data/vault/clusters");
    let mut folders = vec![left];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            assert!(entry.path().is_dir(), "{:?} is left", entry.path());
            folders.push(entry.path());
        }
    }
    place.run(&["drill", "list"]).await.expect(0);
}

/// An etcd that is not there: named, with what to look at.
#[tokio::test]
async fn a_wrong_endpoint_and_a_wrong_vault_are_named_once_with_the_next_step() {
    let place = Place::new();
    place.run(&["init"]).await.expect(0);
    let port = crate::support::free_port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let sources = format!(
        "restore.sources=[{{name: prod, kind: {{etcd: {{endpoints: [\"{endpoint}\"]}}}}}}]"
    );
    let ended = place
        .run(&["backup", "now", "--set", &sources])
        .await
        .expect(14);
    let said = &ended.complained;
    assert_eq!(said.matches(&endpoint).count(), 1, "{said}");
    assert_eq!(said.matches("Connection refused").count(), 1, "{said}");
    assert!(said.contains("restore.sources"), "{said}");

    let vault = format!(
        "restore.vault={{s3: {{bucket: b, endpoint: \"{endpoint}\", allow_http: true, \
         credentials_file: credentials}}}}"
    );
    place.write(
        "credentials",
        "aws_access_key_id = a\naws_secret_access_key = b\n",
    );
    let ended = place
        .run(&["backup", "list", "--set", &vault])
        .await
        .expect(14);
    let said = &ended.complained;
    assert!(
        said.contains("vault check") && said.contains("bucket b"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_identity_is_denied_and_no_damage() {
    let place = Place::new();
    let _store = crate::kill::store_with_data(&place).await;
    place.run(&["backup", "now"]).await.expect(0);
    place
        .run(&["key", "generate", "--dir", "other"])
        .await
        .expect(0);
    let identity = ["--identity", "other/identity.age"];
    for words in [
        &["backup", "verify"][..],
        &["restore", "--latest", "--data-dir", "new"],
    ] {
        let words: Vec<&str> = words.iter().chain(&identity).copied().collect();
        let ended = place.run(&words).await.expect(13);
        let said = format!("{}{}", ended.said, ended.complained);
        assert!(said.contains("no matching identity"), "{said}");
    }
    assert!(!place.path().join("new").exists());
    // The right one still proves it.
    place.run(&["backup", "verify"]).await.expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vault_that_is_gone_is_not_made_anew_where_backups_are_known() {
    let place = Place::new();
    let first = place.run(&["vault", "check"]).await.expect(0);
    assert!(first.said.contains("NEW"), "{first:?}");
    let again = place.run(&["vault", "check"]).await.expect(0);
    assert!(!again.said.contains("NEW"), "{again:?}");

    let _store = crate::kill::store_with_data(&place).await;
    place.run(&["backup", "now"]).await.expect(0);
    let vault = place.path().join("holdfast-data/vault");
    durable::rename(&vault, &place.path().join("unmounted")).unwrap();
    let waits = place.run(&["backup", "now"]).await.expect(14);
    assert!(waits.said.contains("no vault at"), "{waits:?}");
    assert!(!vault.exists());
    let refused = place.run(&["vault", "check"]).await.expect(10);
    assert!(refused.complained.contains("no vault at"), "{refused:?}");
    assert!(!vault.exists());
    let status = place.run(&["status"]).await.expect(21);
    assert!(status.said.contains("PROBLEM"), "{status:?}");

    place.run(&["vault", "check", "--new"]).await.expect(0);
    // The chain of before is missed, whatever was promised for the future.
    let flawed = place.run(&["status"]).await.expect(21);
    assert!(flawed.said.contains("PROBLEM"), "{flawed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_problem_in_the_vault_is_in_the_exit_code_of_status() {
    let place = Place::new();
    let _store = crate::kill::store_with_data(&place).await;
    let set = [
        "--set",
        "policies.objective.drill_age=null",
        "--set",
        "policies.objective.rto=null",
    ];
    let status = [&["status"][..], &set].concat();
    place.run(&["backup", "now"]).await.expect(0);
    place.run(&["backup", "now"]).await.expect(0);
    place.run(&status).await.expect(0);
    let manifests = place
        .path()
        .join("holdfast-data/vault/clusters/bundled/manifests");
    let mut names: Vec<_> = std::fs::read_dir(manifests)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    std::fs::remove_file(names.last().unwrap()).unwrap();
    let flawed = place.run(&status).await.expect(12);
    assert!(flawed.said.contains("PROBLEM"), "{flawed:?}");
}

#[tokio::test]
async fn config_check_finds_what_run_would_stumble_over() {
    let place = Place::new();
    place.run(&["init"]).await.expect(0);
    place.run(&["config", "check"]).await.expect(0);
    let etcd = "restore.sources=[{name: prod, kind: {etcd: {endpoints: [\"https://h:1\"], \
                tls: {cacert: none.crt}}}}]";
    for (set, wanted) in [
        ("appliance.admin.listen=foo", "appliance.admin.listen"),
        ("appliance.log.level=bogus", "bogus"),
        ("restore.trusted_signers=[abc]", "trusted_signers"),
        (
            "restore.vault={local: {path: \"\"}}",
            "restore.vault.local.path",
        ),
        (
            "restore.vault={s3: {bucket: b, credentials_file: none}}",
            "credentials_file",
        ),
        ("restore.identity_file=none", "restore.identity_file"),
        ("drills.target=etcd", "drills.etcd_binary"),
        ("store.listen_client_urls=[foo]", "store"),
        (etcd, "none.crt"),
    ] {
        let words = ["config", "check", "--set", set];
        let refused = place.run(&words).await.expect(2);
        assert!(refused.complained.contains(wanted), "{set}: {refused:?}");
    }
    std::fs::remove_file(place.path().join("holdfast-data/keys/signing.key")).unwrap();
    let refused = place.run(&["config", "check"]).await.expect(2);
    assert!(refused.complained.contains("signing"), "{refused:?}");
}

#[tokio::test]
async fn an_identity_that_opens_nothing_sealed_here_is_remarked() {
    let place = Place::new();
    place.run(&["init"]).await.expect(0);
    for words in [["key", "show"], ["config", "check"]] {
        let good = place.run(&words).await.expect(0);
        assert!(!good.said.contains("note"), "{good:?}");
    }
    place
        .run(&["key", "generate", "--dir", "other"])
        .await
        .expect(0);
    for words in [["key", "show"], ["config", "check"]] {
        let words = [
            &words[..],
            &["--set", "restore.identity_file=other/identity.age"],
        ]
        .concat();
        let noted = place.run(&words).await.expect(0);
        assert!(noted.said.contains("opens nothing"), "{noted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_that_this_host_cannot_make_is_refused_and_leaves_no_report() {
    let place = Place::new();
    let _store = crate::kill::store_with_data(&place).await;
    place.run(&["backup", "now"]).await.expect(0);
    for binary in ["", "/nope"] {
        let binary = format!("drills.etcd_binary={binary}");
        let words = [
            "drill",
            "run",
            "--set",
            "drills.target=etcd",
            "--set",
            &binary,
        ];
        let refused = place.run(&words).await.expect(2);
        assert!(refused.complained.contains("etcd_binary"), "{refused:?}");
    }
    let identity = place.path().join("holdfast-data/keys/identity.age");
    std::fs::remove_file(&identity).unwrap();
    let refused = place.run(&["drill", "run"]).await.expect(13);
    assert!(refused.complained.contains("identity_file"), "{refused:?}");
    let listed = place.run(&["drill", "list"]).await.expect(0);
    assert!(listed.said.contains("no drills yet"), "{listed:?}");
    // Nor does it prune, and it says what would change that.
    let taken = place.run(&["backup", "now"]).await.expect(0);
    assert!(taken.said.contains("count_from"), "{taken:?}");
}

#[tokio::test]
async fn the_next_step_of_a_wrong_path_is_about_the_path() {
    let place = Place::new();
    for words in [
        &["snapshot", "status", "nope.db"][..],
        &["man", "--dir", "nope"],
    ] {
        let ended = place.run(words).await.expect(10);
        assert!(ended.complained.contains("path"), "{ended:?}");
        assert!(!ended.complained.contains("backup list"), "{ended:?}");
    }
    place.write("bad.db", "not a database");
    let ended = place
        .run(&["snapshot", "status", "bad.db"])
        .await
        .expect(12);
    assert!(!ended.complained.contains("backup verify"), "{ended:?}");
    let endpoint = format!(
        "--endpoints=http://127.0.0.1:{}",
        crate::support::free_port()
    );
    let ended = place
        .run(&["snapshot", "save", "new.db", &endpoint])
        .await
        .expect(14);
    assert!(ended.complained.contains("--endpoints"), "{ended:?}");
    assert!(!ended.complained.contains("restore.sources"), "{ended:?}");
}

#[tokio::test]
async fn the_name_of_an_error_is_explained_without_the_documentation() {
    let place = Place::new();
    let ended = place.run(&["snapshot", "status", "nope.db"]).await;
    let named = "holdfast explain not-found";
    assert!(ended.complained.contains(named), "{ended:?}");
    let explained = place.run(&["explain", "not-found"]).await.expect(0);
    assert!(explained.said.contains("exit code 10"), "{explained:?}");
    let all = place.run(&["explain", "-w", "json"]).await.expect(0).json();
    assert_eq!(all.as_array().unwrap().len(), 16);
    place.run(&["explain", "nonsense"]).await.expect(10);
}

#[tokio::test]
async fn a_revision_that_a_snapshot_does_not_hold_is_no_damage() {
    let place = Place::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap();
    let snapshot = root.join("store/tests/fixtures/etcd/v3.7.3/small.db");
    let file = snapshot.to_str().unwrap();
    let hash_at = async |rev: &str| place.run(&["snapshot", "hashkv", file, "--rev", rev]).await;
    for (rev, why) in [("1", "compacted"), ("999999", "future revision")] {
        let told = hash_at(rev).await.expect(2).complained;
        assert!(
            told.contains(&format!("no hash at revision {rev}")),
            "{told}"
        );
        assert!(told.contains(why), "{told}");
        assert!(!told.contains("relied on"), "{told}");
    }
    hash_at("0").await.expect(0);
    for command in ["status", "hashkv"] {
        let ended = place.run(&["snapshot", command, "nowhere.db"]).await;
        let told = ended.expect(10).complained;
        assert!(told.contains("no file nowhere.db"), "{told}");
        assert!(!told.contains("relied on"), "{told}");
    }
}
