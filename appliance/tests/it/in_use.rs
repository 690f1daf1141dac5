//! Two processes at once: a prune and a restore, two drills.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::time::Instant;

use crate::kill::store_with_data;
use crate::support::{PATIENCE, Place};

/// Rules under which only the newest backup stays.
const KEEP_ONE: [&str; 20] = [
    "--set",
    "policies.retention.keep_last=1",
    "--set",
    "policies.retention.keep_hourly=0",
    "--set",
    "policies.retention.keep_daily=0",
    "--set",
    "policies.retention.keep_weekly=0",
    "--set",
    "policies.retention.keep_monthly=0",
    "--set",
    "policies.retention.keep_within=null",
    "--set",
    "policies.retention.keep_yearly=0",
    "--set",
    "policies.retention.trash_grace=0s",
    "--set",
    "policies.retention.manual.keep_last=1",
    "--set",
    "policies.retention.manual.keep_within=null",
];

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn count(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Whether a mark is stored; a file still being written has another name.
fn is_marked(marks: &Path) -> bool {
    let entries = std::fs::read_dir(marks).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name())
        .any(|name| name.to_string_lossy().ends_with(".json"))
}

/// Stops the process as soon as its mark is there.
async fn stop_when_marked(child: &Child, marks: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while !is_marked(marks) {
        assert!(Instant::now() < deadline, "no mark came");
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    signal(child, Signal::STOP);
}

async fn prune(place: &Place) -> serde_json::Value {
    let mut words = vec!["backup", "prune", "--confirm", "-w", "json"];
    words.extend(KEEP_ONE);
    place.run(&words).await.expect(0).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prune_during_a_restore_leaves_its_backup_whole() {
    let place = Place::new();
    let _store = store_with_data(&place).await;
    let first = place.run(&["backup", "now", "-w", "json"]).await.expect(0);
    let first = first.json()[0]["id"].as_str().unwrap().to_owned();
    place.run(&["backup", "now"]).await.expect(0);
    let vault = place.path().join("holdfast-data/vault/clusters/bundled");
    let (marks, parts) = (
        vault.join("uses").join(&first),
        vault.join("parts").join(&first),
    );
    let whole = count(&parts);
    assert!(whole > 0);

    let mut restore = place.spawn(&["restore", &first, "--data-dir", "new"], "restore.log");
    stop_when_marked(&restore, &marks).await;
    let pruned = prune(&place).await;
    assert_eq!(
        pruned["plan"]["release"].as_array().unwrap().len(),
        0,
        "{pruned}"
    );
    assert!(pruned.to_string().contains("in_use"), "{pruned}");
    assert_eq!(count(&parts), whole);

    signal(&restore, Signal::CONT);
    assert!(restore.wait().await.unwrap().success());
    assert!(place.path().join("new").is_dir());
    assert_eq!(count(&marks), 0, "the reader takes its mark away");
    let pruned = prune(&place).await;
    assert_eq!(pruned["outcome"]["removed"][0], first.as_str(), "{pruned}");
    assert_eq!(count(&parts), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_drill_in_the_same_scratch_folder_is_refused() {
    let place = Place::new();
    let _store = store_with_data(&place).await;
    place.run(&["backup", "now"]).await.expect(0);
    let scratch = place.path().join("holdfast-data/scratch");
    std::fs::create_dir_all(&scratch).unwrap();
    let lock = std::fs::File::create(scratch.join("drills.lock")).unwrap();
    lock.try_lock().unwrap();
    let refused = place.run(&["drill", "run"]).await.expect(11);
    assert!(refused.complained.contains("another drill"), "{refused:?}");
    drop(lock);
    place.run(&["drill", "run"]).await.expect(0);
}
