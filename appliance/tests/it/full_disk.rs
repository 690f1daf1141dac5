//! The program on a full disk: what it says, how it ends, what it leaves behind.

use std::path::Path;

use crate::small_disk::{FileSystem, SmallDisk};
use crate::support::{Client, Ended, Place, free_port};

/// Every file and folder below, for a comparison of before and after.
fn names(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        names.push(path.display().to_string());
        if path.is_dir() {
            names.extend(self::names(&path));
        }
    }
    names.sort();
    names
}

/// The failure that everything about a full disk is told as.
fn expect_exhausted(ended: Ended) {
    let ended = ended.expect(14);
    let failure: serde_json::Value = serde_json::from_str(&ended.complained).unwrap();
    assert_eq!(failure["error"], "exhausted", "{failure}");
    assert!(!failure["next"].as_str().unwrap().is_empty(), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_and_restores_on_a_full_disk_end_with_their_code_and_leave_nothing() {
    for kind in FileSystem::ALL {
        let Some(disk) = SmallDisk::mount(kind, 32) else {
            continue;
        };
        let place = Place::new();
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        let _store = place.spawn_store("source", port, "store.log");
        let mut client = Client::connect(port).await;
        for number in 0..50 {
            client.put(&format!("/k/{number}"), &"x".repeat(1000)).await;
        }
        place.run(&["init"]).await.expect(0);
        let vault = disk.folder("vault");
        configure(&place, &url, &vault);
        place.run(&["backup", "now"]).await.expect(0);

        let targets = disk.folder("targets");
        let filler = disk.fill(&disk.folder("others"));
        // The disk of the vault is full, that of this host is not: the backup waits here.
        let waits = place.run(&["backup", "now", "-w", "json"]).await;
        let waits = waits.expect(14).json();
        assert_eq!(waits[0]["is_waiting"], true, "{waits}");
        assert!(
            waits[0]["notes"][0]
                .as_str()
                .unwrap()
                .contains("No space left"),
            "{waits}"
        );
        let listed = place.run(&["backup", "list", "-w", "json"]).await;
        let listed = listed.expect(0).json();
        assert_eq!(listed["backups"].as_array().unwrap().len(), 1, "{listed}");

        let target = targets.join("new");
        let target = target.to_str().unwrap();
        let words = ["restore", "--latest", "--data-dir", target];
        let before = names(&targets);
        let as_json = [&words[..], &["-w", "json"]].concat();
        expect_exhausted(place.run(&as_json).await);
        assert_eq!(names(&targets), before, "{kind:?}");
        let elsewhere = format!("elsewhere-{kind:?}");
        place
            .run(&["restore", "--latest", "--data-dir", &elsewhere])
            .await
            .expect(0);

        std::fs::remove_file(filler).unwrap();
        place.run(&["backup", "now"]).await.expect(0);
        place.run(&words).await.expect(0);
    }
}

/// Backs up the store at `url` as an etcd cluster, into `vault`.
fn configure(place: &Place, url: &str, vault: &Path) {
    let file = place.path().join("holdfast.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let sources = format!(
        "sources:\n    - name: bundled\n      kind: {{etcd: {{endpoints: [\"{url}\"]}}}}\n"
    );
    let edited = text.replace("  enabled: true", "  enabled: false").replace(
        "sources:\n    - name: bundled\n      kind: bundled\n",
        &sources,
    );
    let edited = edited.replace(
        "path: holdfast-data/vault",
        &format!("path: {}", vault.display()),
    );
    assert!(edited.contains(&vault.display().to_string()), "{edited}");
    std::fs::write(&file, edited).unwrap();
}
