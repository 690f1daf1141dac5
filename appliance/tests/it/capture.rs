//! Changes between backups reach the vault by themselves, and a daemon that is killed and started
//! again misses none of them.

use chrono::{DateTime, Utc};
use holdfast_restore::delta::run::{self, Runs};
use holdfast_restore::{Catalog, ReadOnly, Signer, Trust, Vault, VaultSpec};

use crate::support::{Client, Place, eventually, free_port};

const CAPTURE: [&str; 2] = ["--set", "policies.capture.every=1s"];

/// What the vault of this place holds of the bundled store; none before there is one.
async fn captured(place: &Place) -> Option<Runs> {
    let data = place.path().join("holdfast-data");
    let spec = VaultSpec::Local {
        path: data.join("vault"),
    };
    let vault = Vault::<ReadOnly>::open(&spec).await.ok()?;
    let signer = Signer::load(&data.join("keys/signing.key")).unwrap();
    let trust = Trust::in_keys([signer.verifier()]);
    let cluster = "bundled".parse().unwrap();
    let catalog = Catalog::load(&vault, &cluster, &trust, None).await.ok()?;
    Some(run::survey(&vault, &catalog, &trust).await.unwrap())
}

/// Waits until a run of this generation holds `revision`.
async fn captured_up_to(place: &Place, generation: u64, revision: i64) -> Runs {
    eventually("the changes reach the vault", || async {
        let runs = captured(place).await?;
        let is_there = runs
            .runs
            .iter()
            .any(|run| run.generation.0 == generation && run.to() >= revision);
        is_there.then_some(runs)
    })
    .await
}

/// How the source stands under the same settings.
async fn status(place: &Place) -> serde_json::Value {
    let words = [&["status", "-w", "json"][..], &CAPTURE].concat();
    // No drill has passed: that objective is missed.
    let told = place.run(&words).await.expect(21).json();
    told[0].clone()
}

fn begins_and_ends(runs: &Runs) -> Vec<(u64, i64, i64, Option<DateTime<Utc>>)> {
    let of = |run: &run::Run| (run.generation.0, run.from(), run.to(), run.until());
    runs.runs.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_killed_goes_on_and_nothing_is_missing_between_its_runs() {
    let place = Place::new();
    let port = free_port();
    place.init(port, "null", "null").await;
    let run = [&["run"][..], &CAPTURE].concat();
    let mut daemon = place.spawn(&run, "daemon.log");
    let mut client = Client::connect(port).await;
    for number in 0..50 {
        client.put(&format!("/k/{number}"), "v").await;
    }
    client.delete("/k/1").await;
    let (_, newest) = client.get("/k/1").await;
    let runs = captured_up_to(&place, 1, newest).await;
    assert_eq!(runs.flaws, []);

    // What is written right before the end is in no delta yet.
    let mut last = newest;
    for number in 0..20 {
        last = client.put(&format!("/late/{number}"), "v").await;
    }
    daemon.kill().await.unwrap();
    let before = captured(&place).await.unwrap();

    let _daemon = place.spawn(&run, "daemon-2.log");
    let mut client = Client::connect(port).await;
    let after = client.put("/after", "v").await;
    let runs = captured_up_to(&place, 2, after).await;
    assert_eq!(
        (runs.flaws.as_slice(), runs.gaps.as_slice()),
        (&[][..], &[][..])
    );
    let told = begins_and_ends(&runs);
    let [(1, _, first_to, _), (2, second_from, ..)] = told[..] else {
        panic!("one run for each life of the daemon: {told:?}");
    };
    assert!(first_to >= last, "{told:?}, {before:?}");
    assert!(second_from <= first_to, "{told:?}");

    let told = status(&place).await;
    assert!(
        told["capture"]["revision"].as_i64() >= Some(after),
        "{told}"
    );
    assert_eq!(told["capture"]["gaps"], 0, "{told}");
    assert_eq!(told["alarms"], serde_json::json!([]), "{told}");
    assert_eq!(told["objectives"]["rpo"]["standing"], "met", "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_that_a_stopped_daemon_left_is_recorded_and_told() {
    let place = Place::new();
    let port = free_port();
    place.init(port, "null", "null").await;
    let run = [&["run"][..], &CAPTURE].concat();
    let mut daemon = place.spawn(&run, "daemon.log");
    let mut client = Client::connect(port).await;
    let first = client.put("k", "v").await;
    captured_up_to(&place, 1, first).await;
    daemon.kill().await.unwrap();

    // The store goes on alone, and compacts what nobody has captured.
    let mut store = place.spawn_store("holdfast-data/store", port, "store.log");
    let mut client = Client::connect(port).await;
    let mut last = first;
    for number in 0..10 {
        last = client.put(&format!("/k/{number}"), "v").await;
    }
    client.compact(last).await;
    store.kill().await.unwrap();

    let _daemon = place.spawn(&run, "daemon-2.log");
    let mut client = Client::connect(port).await;
    let after = client.put("k", "v").await;
    let runs = captured_up_to(&place, 2, after).await;
    assert_eq!(runs.flaws, []);
    let [gap] = &runs.gaps[..] else {
        panic!("one gap: {:?}", runs.gaps);
    };
    assert_eq!((gap.from, gap.generation.0), (first, 2));
    assert!(
        gap.to >= last && gap.reason.contains("compacted"),
        "{gap:?}"
    );
}
