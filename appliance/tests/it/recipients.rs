//! Backups for several kinds of recipients: each of them opens what was sealed, and those that
//! cannot be used stop everything before anything is written.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::{Client, Ended, Place, free_port};

/// A plugin of age that seals nothing: what it is given comes back.
const PLUGIN: &str = r#"#!/bin/sh
# A body ends with a line that is not full; what it is goes to $body when it is one line.
body() {
    while read -r body; do [ "${#body}" -lt 64 ] && break; done
}
key=
while read -r arrow command first rest; do
    body
    case "$command" in
        wrap-file-key) key=$body ;;
        recipient-stanza) [ "${rest%% *}" = holdtest ] && key=$body ;;
        done) break ;;
    esac
done
case "$1" in
    *recipient-v1) printf -- '-> recipient-stanza 0 holdtest\n%s\n' "$key"; read -r ok; body ;;
    *identity-v1) [ -n "$key" ] && { printf -- '-> file-key 0\n%s\n' "$key"; read -r ok; body; } ;;
esac
printf -- '-> done\n\n'
"#;

/// A recipient and an identity of that plugin, and a recipient of one that nobody has.
const OF_PLUGIN: &str = "age1holdtest1wfjkx6tsd9jkuaqtex2jw";
const PLUGIN_IDENTITY: &str = "AGE-PLUGIN-HOLDTEST-1D9JX2MN5D968JVNHLSC\n";
const OF_NO_PLUGIN: &str = "age1nowhere1wfjkx6tsd9jkuaqn2d8gg";
const NO_PLUGIN_IDENTITY: &str = "AGE-PLUGIN-NOWHERE-1D9JX2MN5D968JCCEC90\n";

fn ssh(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../restore/tests/it");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Settings with `recipients` beside the one that `init` made.
async fn sealed_also_for(recipients: &[&str]) -> (Place, u16) {
    let place = Place::new();
    let port = free_port();
    place.init(port, "null", "null").await;
    let file = place.path().join("holdfast.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let list = "recipients:";
    let entries: Vec<String> = recipients
        .iter()
        .map(|one| format!("\n      - \"{}\"", one.trim()))
        .collect();
    let more = entries.concat();
    let edited = text.replacen(list, &format!("{list}{more}"), 1);
    assert_ne!(text, edited);
    std::fs::write(&file, edited).unwrap();
    let program = place.write("age-plugin-holdtest", PLUGIN);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (place, port)
}

/// Runs a command whose PATH has the plugin.
async fn run(place: &Place, words: &[&str]) -> Ended {
    let output = with_plugin(place, words).output().await.unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        said: String::from_utf8(output.stdout).unwrap(),
        complained: String::from_utf8(output.stderr).unwrap(),
    }
}

fn with_plugin(place: &Place, words: &[&str]) -> tokio::process::Command {
    let mut command = place.command(words);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", place.path().display()));
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_recipient_opens_a_backup_that_was_sealed_for_all_of_them() {
    let ed25519 = ssh("ssh_key.pub");
    let (place, port) = sealed_also_for(&[&ed25519, OF_PLUGIN]).await;
    let log = std::fs::File::create(place.path().join("daemon.log")).unwrap();
    let mut daemon = with_plugin(&place, &["run"]).stderr(log).spawn().unwrap();
    Client::connect(port).await.put("k", "v").await;
    run(&place, &["backup", "now"]).await.expect(0);
    daemon.kill().await.unwrap();

    let shown = run(&place, &["key", "show", "-w", "json"]).await.expect(0);
    assert_eq!(shown.json()["sealed_for"].as_array().unwrap().len(), 3);
    assert_eq!(shown.json()["proven"].as_array().unwrap().len(), 1);
    let checked = run(&place, &["policy", "check"]).await.expect(0).said;
    for kind in ["x25519:", "ssh:", "plugin-holdtest:"] {
        assert!(checked.contains(kind), "{checked}");
    }
    let listed = run(&place, &["backup", "show", "-w", "json"])
        .await
        .expect(0);
    let recipients = listed.json()["manifest"]["encryption"]["recipients"].clone();
    assert_eq!(recipients.as_array().map(Vec::len), Some(3), "{recipients}");

    place.write("ssh", &ssh("ssh_key"));
    place.write("plugin", PLUGIN_IDENTITY);
    for identity in ["ssh", "plugin", "holdfast-data/keys/identity.age"] {
        let words = ["backup", "verify", "--identity", identity, "-w", "json"];
        let verified = run(&place, &words).await.expect(0).json();
        assert_eq!(
            verified["backups"][0]["level"], "L2",
            "{identity}: {verified}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn en2_a_plugin_that_is_not_there_stops_the_start_and_is_named() {
    let (place, _) = sealed_also_for(&[OF_NO_PLUGIN]).await;
    for words in [
        &["run"][..],
        &["config", "check"],
        &["policy", "check"],
        &["key", "show"],
    ] {
        let ended = run(&place, words).await;
        assert_ne!(ended.code, 0, "{words:?}: {ended:?}");
        let told = &ended.complained;
        assert!(told.contains("age-plugin-nowhere"), "{words:?}: {told}");
    }
    assert!(!place.path().join("holdfast-data/vault").exists());
    place.write("nobody", NO_PLUGIN_IDENTITY);
    let words = ["restore", "--identity", "nobody", "--data-dir", "new"];
    let ended = run(&place, &words).await;
    assert_ne!(ended.code, 0);
    assert!(ended.complained.contains("age-plugin-nowhere"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn en11_recipients_that_cannot_be_used_are_refused_before_anything_is_written() {
    // A path instead of a plugin's name, half a key, and one that stands there twice.
    let bad = [
        &["age1../x1wfjkx6tsd9jkuaqk0c6mp"][..],
        &["age1qqqq"],
        &[OF_PLUGIN, OF_PLUGIN],
    ];
    for recipients in bad {
        let (place, _) = sealed_also_for(recipients).await;
        let ended = run(&place, &["run"]).await;
        assert_ne!(ended.code, 0, "{recipients:?}: {ended:?}");
        assert!(
            !place.path().join("holdfast-data/vault").exists(),
            "{recipients:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn en2_an_identity_that_was_lost_is_an_alarm_before_the_disaster() {
    let (place, port) = sealed_also_for(&[&ssh("ssh_key.pub")]).await;
    let log = std::fs::File::create(place.path().join("daemon.log")).unwrap();
    let mut daemon = place.command(&["run"]).stderr(log).spawn().unwrap();
    Client::connect(port).await.put("k", "v").await;
    place.run(&["backup", "now"]).await.expect(0);
    daemon.kill().await.unwrap();
    let before = place.run(&["status"]).await;
    assert!(!before.said.contains("unopenable-backup"), "{before:?}");
    // Another identity in its place, and the recipients with it: new backups would be fine.
    let identity = place.path().join("holdfast-data/keys/identity.age");
    std::fs::remove_file(&identity).unwrap();
    place
        .run(&["key", "generate", "--dir", "new"])
        .await
        .expect(0);
    std::fs::copy(place.path().join("new/identity.age"), &identity).unwrap();
    let no_objectives = [
        "status",
        "--set",
        "policies.objective.drill_age=null",
        "--set",
        "policies.objective.rto=null",
    ];
    let told = place.run(&no_objectives).await;
    assert!(told.said.contains("unopenable-backup"), "{told:?}");
    assert!(told.said.contains("ssh:"), "{told:?}");
    assert_eq!(told.code, 12, "{told:?}");
    // The ssh key is one of the recipients: with it there is no alarm.
    std::fs::write(&identity, ssh("ssh_key")).unwrap();
    let told = place.run(&["status"]).await;
    assert!(!told.said.contains("unopenable-backup"), "{told:?}");
}
