//! The vault is away for a while: backups are taken all the same and are in it later, in their
//! places.

use holdfast_store::datadir::durable;
use serde_json::Value;

use crate::support::{Client, Place, eventually, free_port};

async fn status(place: &Place) -> Value {
    let told = place.run(&["status", "-w", "json"]).await;
    told.json()[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_of_an_outage_survive_a_restart_and_arrive_in_order() {
    let place = Place::new();
    let port = free_port();
    place.init(port, "null", "null").await;
    let mut daemon = place.spawn(&["run"], "log");
    let mut client = Client::connect(port).await;
    client.put("key", "0").await;
    place.run(&["backup", "now"]).await.expect(0);
    let (vault, away) = (
        place.path().join("holdfast-data/vault"),
        place.path().join("away"),
    );
    durable::rename(&vault, &away).unwrap();
    client.put("key", "1").await;
    let waits = place.run(&["backup", "now", "-w", "json"]).await.expect(14);
    let report = waits.json()[0].clone();
    assert_eq!(report["is_waiting"], true, "{report}");
    assert_eq!(report["sequence"], 2, "{report}");
    assert_eq!(
        report["level"], "L2",
        "it is proven where it waits: {report}"
    );
    let told = status(&place).await;
    assert_eq!(told["waiting"]["backups"], 1, "{told}");
    daemon.kill().await.unwrap();

    // A new process has claimed nothing yet, and can claim nothing now.
    let _daemon = place.spawn(&["run"], "log2");
    let mut client = Client::connect(port).await;
    client.put("key", "2").await;
    place.run(&["backup", "now"]).await.expect(14);
    assert_eq!(status(&place).await["waiting"]["backups"], 2);
    assert!(!vault.exists(), "nothing is made in its place");

    durable::rename(&away, &vault).unwrap();
    eventually("everything to be in the vault", || async {
        let told = status(&place).await;
        (told["backups"] == 3 && told["waiting"].is_null()).then_some(())
    })
    .await;
    place.run(&["backup", "now"]).await.expect(0);
    let list = place.run(&["backup", "list", "-w", "json"]).await.expect(0);
    let list = list.json();
    assert_eq!(list["problems"], serde_json::json!([]), "{list}");
    let backups = list["backups"].as_array().unwrap();
    let places: Vec<&Value> = backups.iter().map(|one| &one["sequence"]).collect();
    assert_eq!(places, [4, 3, 2, 1]);
    let proven = backups.iter().all(|one| one["level"] == "L2");
    assert!(proven, "{list}");
    place.run(&["backup", "verify", "--all"]).await.expect(0);
}
