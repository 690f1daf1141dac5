//! Two appliances on one vault: the one that was taken over stops and says who took over.

use std::path::Path;

use crate::support::{Client, Place, free_port};

/// The same keys on another host.
pub(crate) fn copy_keys(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_appliance_that_was_taken_over_is_refused_and_told_by_whom() {
    let (first, second) = (Place::new(), Place::new());
    let vault = first.path().join("shared-vault");
    let set = format!("restore.vault={{local: {{path: {}}}}}", vault.display());
    let run = ["run", "--set", &set];

    let port = free_port();
    first.init(port, "null", "null").await;
    let _first_daemon = first.spawn(&run, "daemon.log");
    Client::connect(port).await.put("k", "v").await;
    first.run(&["backup", "now"]).await.expect(0);

    let port = free_port();
    second.init(port, "null", "null").await;
    let keys = "holdfast-data/keys";
    copy_keys(&first.path().join(keys), &second.path().join(keys));
    let recipients = std::fs::read_to_string(first.path().join("holdfast.yaml")).unwrap();
    let own = std::fs::read_to_string(second.path().join("holdfast.yaml")).unwrap();
    let line = |text: &str| {
        let found = text.lines().find(|line| line.contains("age1"));
        found.unwrap().to_owned()
    };
    let own = own.replace(&line(&own), &line(&recipients));
    std::fs::write(second.path().join("holdfast.yaml"), own).unwrap();
    // It has no store, the vault has: an empty one needs consent.
    let lost = second.run(&run).await.expect(11);
    assert!(lost.complained.contains("cluster-changed"), "{lost:?}");
    let accepting = [&run[..], &["--accept-new-cluster"]].concat();
    let _second_daemon = second.spawn(&accepting, "daemon.log");
    Client::connect(port).await.put("k", "v").await;
    let taken = second
        .run(&["backup", "now", "-w", "json"])
        .await
        .expect(0)
        .json();
    let newest = taken[0]["id"].as_str().unwrap();

    let refused = first.run(&["backup", "now", "-w", "json"]).await.expect(11);
    let failure: serde_json::Value = serde_json::from_str(&refused.complained).unwrap();
    assert_eq!(failure["error"], "in-use", "{failure}");
    let causes = failure["why"].to_string();
    for wanted in [newest, "generation 2", "signing key ed25519:"] {
        assert!(causes.contains(wanted), "{wanted} is named: {failure}");
    }
    let next = failure["next"].as_str().unwrap();
    assert!(next.contains("stop the other"), "{failure}");
}
