//! Retention as an operator meets it: two steps, a way back, pools, and what is said of each.

use crate::kill::store_with_data;
use crate::support::Place;

/// Rules under which only the newest backup stays, whoever asked for it.
fn keep_one(words: &[&'static str]) -> Vec<&'static str> {
    let rules = [
        "policies.retention.keep_last=1",
        "policies.retention.keep_hourly=0",
        "policies.retention.keep_daily=0",
        "policies.retention.keep_weekly=0",
        "policies.retention.keep_monthly=0",
        "policies.retention.manual.keep_last=1",
        "policies.retention.manual.keep_within=null",
    ];
    let sets = rules.iter().flat_map(|rule| ["--set", rule]);
    words.iter().copied().chain(sets).collect()
}

async fn two_backups(place: &Place) -> String {
    let first = place.run(&["backup", "now", "-w", "json"]).await.expect(0);
    place.run(&["backup", "now"]).await.expect(0);
    first.json()[0]["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_let_go_is_in_the_trash_can_be_restored_by_its_id_and_comes_back_pinned() {
    let place = Place::new();
    let _store = store_with_data(&place).await;
    let first = two_backups(&place).await;

    let dry = place
        .run(&keep_one(&["backup", "prune", "--dry-run"]))
        .await;
    let said = dry.expect(0).said;
    assert!(said.contains("puts 1 into the trash"), "{said}");
    assert!(said.contains("removes 0"), "{said}");
    let listed = place.run(&["backup", "list", "-w", "json"]).await.expect(0);
    assert_eq!(listed.json()["trash"].as_array().unwrap().len(), 0);

    let words = keep_one(&["backup", "prune", "--confirm", "-w", "json"]);
    let pruned = place.run(&words).await.expect(0).json();
    assert_eq!(pruned["outcome"]["trashed"][0], first.as_str(), "{pruned}");
    assert_eq!(pruned["outcome"]["removed"].as_array().unwrap().len(), 0);
    let listed = place.run(&["backup", "list"]).await.expect(0).said;
    assert!(listed.contains("trash until 20"), "{listed}");
    let status = place.run(&["status"]).await.said;
    assert!(
        status.contains("1 in the vault, 1 in the trash"),
        "{status}"
    );
    let shown = place.run(&["backup", "show", &first]).await.expect(0).said;
    assert!(shown.contains("no rule keeps it"), "{shown}");

    let restored = place
        .run(&["restore", &first, "--data-dir", "new"])
        .await
        .expect(0);
    let said = format!("{}{}", restored.said, restored.complained);
    assert!(said.contains("in the trash since"), "{said}");
    assert!(place.path().join("new").is_dir());

    let back = place.run(&["backup", "undelete", &first]).await.expect(0);
    assert!(back.said.contains("pinned"), "{back:?}");
    place.run(&["backup", "undelete", &first]).await.expect(10);
    let pruned = place.run(&words).await.expect(0).json();
    assert_eq!(pruned["outcome"]["trashed"].as_array().unwrap().len(), 0);
    let listed = place.run(&["backup", "list", "-w", "json"]).await.expect(0);
    assert_eq!(listed.json()["backups"].as_array().unwrap().len(), 2);
    // Handed back to the rules it goes again, through the trash.
    place
        .run(&["backup", "pin", &first, "--remove"])
        .await
        .expect(0);
    let pruned = place.run(&words).await.expect(0).json();
    assert_eq!(pruned["outcome"]["trashed"][0], first.as_str(), "{pruned}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_asked_for_is_counted_by_rules_of_its_own_and_explained() {
    let place = Place::new();
    let _store = store_with_data(&place).await;
    let first = two_backups(&place).await;
    let listed = place.run(&["backup", "list", "-w", "json"]).await.expect(0);
    assert_eq!(listed.json()["backups"][0]["pool"], "manual");
    // The rules of the schedule, however strict, say nothing of these.
    let explained = place
        .run(&[
            "policy",
            "explain",
            "--set",
            "policies.retention.keep_last=1",
            "--set",
            "policies.retention.keep_hourly=0",
        ])
        .await
        .expect(0)
        .said;
    let of_first = explained.lines().find(|line| line.starts_with(&first));
    let of_first = of_first.unwrap();
    assert!(
        of_first.contains("manual, keep: keep_last 2"),
        "{explained}"
    );
    let window = [
        "policy",
        "explain",
        "--set",
        "policies.retention.recovery_window=7d",
    ];
    let explained = place.run(&window).await.expect(0).said;
    assert!(explained.contains("recovery_window"), "{explained}");
    let simulated = place
        .run(&["policy", "simulate", "--for", "30d", "--manual", "@weekly"])
        .await
        .expect(0)
        .said;
    assert!(simulated.contains("manual  trash"), "{simulated}");
    let checked = place
        .run(&[
            "policy",
            "check",
            "--set",
            "policies.retention.trash_grace=0s",
        ])
        .await
        .expect(0)
        .said;
    assert!(checked.contains("cannot be brought back"), "{checked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn times_that_were_looked_at_are_remembered_in_the_vault() {
    let place = Place::new();
    let _store = store_with_data(&place).await;
    two_backups(&place).await;
    let words = ["backup", "prune", "--confirm", "--confirm-times", "2"];
    place.run(&words).await.expect(0);
    let vault = place.path().join("holdfast-data/vault/clusters/bundled");
    let word = vault.join("confirmations/000000000002.json");
    assert!(word.is_file());
    assert!(!vault.join("clock").exists() || vault.join("clock").read_dir().unwrap().count() == 0);
    let status = place.run(&["status", "-w", "json"]).await;
    assert_eq!(status.json()[0]["alarms"].as_array().unwrap().len(), 0);
}
