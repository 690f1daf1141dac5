//! Each exit code, from a command that really ends with it.

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
        ["write", "create only", "read", "list", "clock", "remove"]
    );
    place.run(&["drill", "list"]).await.expect(0);
}
