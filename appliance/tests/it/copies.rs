//! Several vaults for one policy: each gets what the first has, none waits for another, and a
//! restore reads from any.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tokio::process::Child;

use crate::support::{Client, Place, eventually, free_port};

/// A daemon with backups on request and two copies: a folder, and a place that cannot be one.
async fn daemon(place: &Place) -> (Child, Client) {
    let port = free_port();
    place.init(port, "null", "null").await;
    let file = place.path().join("holdfast.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let copies = "restore:\n  copies:\n    \
                  - { name: offsite, vault: { local: { path: offsite } } }\n    \
                  - { name: broken, vault: { local: { path: broken/vault } } }\n";
    fs::write(&file, text.replacen("restore:\n", copies, 1)).unwrap();
    // No folder can be made below a file.
    place.write("broken", "a file");
    let daemon = place.spawn(&["run"], "log");
    (daemon, Client::connect(port).await)
}

async fn status(place: &Place) -> Value {
    let told = place.run(&["status", "-w", "json"]).await;
    told.json()[0].clone()
}

/// How a copy stands, once it stands so.
async fn stands(place: &Place, vault: &str, state: &str) -> Value {
    eventually(&format!("{vault} to be {state}"), || async {
        let status = status(place).await;
        let copies = status["copies"].as_array()?;
        let found = copies.iter().find(|one| one["vault"] == vault)?;
        (found["state"] == state).then(|| found.clone())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_copy_gets_every_backup_and_one_that_fails_delays_no_other() {
    let place = Place::new();
    let (_daemon, mut client) = daemon(&place).await;
    client.put("key", "one").await;
    place.run(&["backup", "now"]).await.expect(0);
    let offsite = stands(&place, "offsite", "ok").await;
    assert_eq!(offsite["standing"]["held"], 1, "{offsite}");
    let broken = stands(&place, "broken", "failing").await;
    assert!(broken["reason"].is_string(), "{broken}");
    let told = place.run(&["status"]).await.expect(21);
    assert!(
        told.said.contains("copy              offsite ok"),
        "{told:?}"
    );
    assert!(
        told.said
            .contains("PROBLEM           the copy broken FAILING"),
        "{told:?}"
    );

    // It comes back: what it missed is caught up with.
    fs::remove_file(place.path().join("broken")).unwrap();
    client.put("key", "two").await;
    place.run(&["backup", "now"]).await.expect(0);
    let offsite = stands(&place, "offsite", "ok").await;
    assert_eq!(offsite["standing"]["held"], 2, "{offsite}");
    let broken = stands(&place, "broken", "ok").await;
    assert_eq!(broken["standing"]["held"], 2, "{broken}");
    // The proofs come after the backups that they are of.
    eventually("the copy to be the same", || async {
        let compared = place.run(&["vault", "verify", "first", "broken"]).await;
        (compared.code == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_first_vault_gone_a_copy_restores_and_becomes_a_new_first_one() {
    let place = Place::new();
    let (mut daemon, mut client) = daemon(&place).await;
    client.put("key", "value").await;
    place.run(&["backup", "now"]).await.expect(0);
    stands(&place, "offsite", "ok").await;
    daemon.kill().await.unwrap();
    let first = place.path().join("holdfast-data/vault");
    fs::remove_dir_all(&first).unwrap();

    let lost = place
        .run(&["restore", "--data-dir", "new", "--latest"])
        .await;
    let lost = lost.expect(10);
    assert!(lost.complained.contains("--vault NAME"), "{lost:?}");
    let from = ["--vault", "offsite"];
    let words = [&["backup", "list", "-w", "json"], &from[..]].concat();
    let list = place.run(&words).await.expect(0).json();
    assert_eq!(list["backups"].as_array().unwrap().len(), 1, "{list}");
    let restore = ["restore", "--data-dir", "new", "--latest"];
    let restored = place.run(&[&restore, &from[..]].concat()).await.expect(0);
    assert!(restored.said.contains("restored: 1 key"), "{restored:?}");
    let verify = ["backup", "verify", "--level", "L2"];
    place.run(&[&verify, &from[..]].concat()).await.expect(0);

    let copy = ["vault", "copy", "offsite", "first"];
    let refused = place.run(&copy).await.expect(10);
    assert!(refused.complained.contains("--new"), "{refused:?}");
    let new = place
        .run(&[&copy[..], &["--new", "-w", "json"]].concat())
        .await;
    let new = new.expect(0).json();
    assert_eq!(
        new["clusters"][0]["copied"]["backups"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    place.run(&["backup", "verify"]).await.expect(0);
    damaged_copies_are_told(&place, &first).await;
}

async fn damaged_copies_are_told(place: &Place, first: &Path) {
    let verify = ["vault", "verify", "first", "offsite"];
    let told = place.run(&verify).await.expect(10);
    let lacking = "MISSING in offsite: clusters/bundled/proofs";
    assert!(told.said.contains(lacking), "{told:?}");
    let copy = ["vault", "copy", "first", "offsite"];
    place.run(&copy).await.expect(0);
    place.run(&verify).await.expect(0);
    let parts = place.path().join("offsite/clusters/bundled/parts");
    let backup = fs::read_dir(&parts).unwrap().next().unwrap().unwrap();
    let part = backup.path().join("000000");
    let mut bytes = fs::read(&part).unwrap();
    bytes[20] ^= 1;
    fs::write(&part, bytes).unwrap();
    let told = place.run(&verify).await.expect(12);
    assert!(told.said.contains("DAMAGED in offsite"), "{told:?}");
    fs::remove_file(&part).unwrap();
    let told = place.run(&verify).await.expect(10);
    assert!(told.said.contains("MISSING in offsite"), "{told:?}");
    place
        .run(&["vault", "copy", "first", "offsite"])
        .await
        .expect(0);
    place.run(&verify).await.expect(0);
    place
        .run(&["vault", "verify", "first", "first"])
        .await
        .expect(2);
    place
        .run(&["vault", "copy", "first", "nowhere"])
        .await
        .expect(10);
    // A lost mount is not filled up in silence.
    fs::remove_dir_all(place.path().join("offsite")).unwrap();
    let lost = place
        .run(&["vault", "copy", "first", "offsite"])
        .await
        .expect(10);
    assert!(lost.complained.contains("mount it"), "{lost:?}");
    assert!(first.join("vault.json").exists());
}
