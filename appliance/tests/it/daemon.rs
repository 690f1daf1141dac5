//! The main job, end to end: run, back up, prove, drill, lose everything, restore, serve.

use crate::support::{Client, Place, eventually, free_port};

#[tokio::test(flavor = "multi_thread")]
async fn what_the_daemon_backed_up_comes_back_with_one_command() {
    let place = Place::new();
    let port = free_port();
    place.init(port, "\"@every 2s\"", "null").await;

    let mut daemon = place.spawn(&["run"], "daemon.log");
    let mut client = Client::connect(port).await;
    let mut revision = 0;
    for number in 0..50 {
        revision = client
            .put(&format!("/k/{number}"), &format!("v{number}"))
            .await;
    }

    // Backups come by themselves, each proven to L2, and the last one holds what was written.
    let backups = eventually("two proven backups of all the data", || async {
        let listed = place.run(&["backup", "list", "-w", "json"]).await;
        // Before the first backup there is no vault.
        let listed = (listed.code == 0).then(|| listed.json())?;
        let backups = listed["backups"].as_array()?.clone();
        let newest = backups.first()?.clone();
        (backups.len() >= 2 && newest["revision"] == revision && newest["level"] == "L2")
            .then_some(backups)
    })
    .await;
    assert!(
        backups.iter().all(|one| one["is_damaged"] == false),
        "{backups:?}"
    );

    // A rehearsal proves the newest to L3 and measures how long it takes to be back.
    let drill = place
        .run(&["drill", "run", "-w", "json"])
        .await
        .expect(0)
        .json();
    assert_eq!(drill["outcome"], "passed", "{drill}");
    assert!(drill["rto"].is_string(), "{drill}");
    let status = place.run(&["status", "-w", "json"]).await.expect(0).json();
    assert_eq!(
        status[0]["objectives"]["rpo"]["standing"], "met",
        "{status}"
    );
    assert_eq!(status[0]["newest_proven"]["level"], "L3", "{status}");

    // A disaster.
    daemon.kill().await.unwrap();
    let store = place.path().join("holdfast-data/store");
    std::fs::remove_dir_all(&store).unwrap();
    no_empty_store_takes_its_place(&place).await;

    // The plan first, which writes nothing; then the restore; then the same again is refused.
    let words = ["restore", "--data-dir", "holdfast-data/store"];
    let mut dry = words.to_vec();
    dry.extend(["--dry-run", "-w", "json"]);
    let plan = place.run(&dry).await.expect(0).json();
    assert_eq!(plan["is_dry_run"], true);
    assert!(!store.exists(), "a dry run writes nothing");
    place.run(&words).await.expect(0);
    place.run(&words).await.expect(11);

    // It serves what was there, further on than anybody has seen, and is backed up again.
    let _daemon = place.spawn(&["run"], "daemon-2.log");
    let mut client = Client::connect(port).await;
    for number in 0..50 {
        let (value, now) = client.get(&format!("/k/{number}")).await;
        assert_eq!(value, Some(format!("v{number}")));
        assert!(
            now > revision + 1_000_000,
            "{now} is bumped beyond {revision}"
        );
    }
    // Proven before anybody has written.
    let taken = place.run(&["backup", "now", "-w", "json"]).await.json();
    assert_eq!(taken[0]["level"], "L2", "{taken}");
    let after = client.put("/k/new", "v").await;
    eventually("a backup of the restored store", || async {
        let listed = place.run(&["backup", "list", "-w", "json"]).await.json();
        (listed["backups"][0]["revision"] == after && listed["backups"][0]["level"] == "L2")
            .then_some(())
    })
    .await;
}

/// The daemon refuses, and names the way back.
async fn no_empty_store_takes_its_place(place: &Place) {
    let refused = place.run(&["run"]).await.expect(11);
    assert!(
        refused.complained.contains("holdfast restore"),
        "{refused:?}"
    );
    assert!(!place.path().join("holdfast-data/store").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_works_without_any_configuration() {
    let place = Place::new();
    let port = free_port();
    let listen = format!("store.listen_client_urls=[http://127.0.0.1:{port}]");
    let admin = free_port();
    let page = format!("appliance.admin.listen=127.0.0.1:{admin}");
    let mut daemon = place.spawn(&["run", "--set", &listen, "--set", &page], "daemon.log");
    let mut client = Client::connect(port).await;
    client.put("hello", "world").await;

    // Keys were made, for their owner alone.
    let identity = place.path().join("holdfast-data/keys/identity.age");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(identity).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);

    // A command asks the running daemon, and nothing readable reaches the vault.
    let taken = place
        .run(&["backup", "now", "-w", "json"])
        .await
        .expect(0)
        .json();
    assert_eq!(taken[0]["level"], "L2", "{taken}");
    assert_eq!(taken[0]["is_sealed"], true, "{taken}");

    // It works by its own settings, and says so where the command was told others.
    for words in [&["backup", "now"][..], &["drill", "run"]] {
        let other = [words, &["--set", "policies.backup.verify=L0"]].concat();
        let refused = place.run(&other).await.expect(2);
        assert!(
            refused.complained.contains("policies.backup.verify"),
            "{refused:?}"
        );
    }

    // People and monitors see it.
    for (path, wanted) in [
        ("/healthz", "true"),
        ("/metrics", "holdfast_appliance_rpo_seconds"),
        ("/", "Holdfast"),
        ("/api/status", "\"bundled\""),
    ] {
        eventually(path, || async {
            let text = http_get(admin, path).await?;
            text.contains(wanted).then_some(())
        })
        .await;
    }

    // A second daemon on the same folder is refused; the first one ends in order when told.
    place
        .run(&["run", "--set", &listen, "--set", &page])
        .await
        .expect(11);
    terminate(&daemon);
    let status = daemon.wait().await.unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_without_a_key_yet_is_proven_and_not_alarmed() {
    let place = Place::new();
    let port = free_port();
    place.init(port, "null", "null").await;
    let _daemon = place.spawn(&["run"], "daemon.log");
    let mut client = Client::connect(port).await;
    place.run(&["backup", "now"]).await.expect(0);
    place.run(&["drill", "run"]).await.expect(0);
    place.run(&["status"]).await.expect(0);
    // A store that has had keys and has none now is another matter.
    client.put("k", "v").await;
    place.run(&["backup", "now"]).await.expect(0);
    client.delete("k").await;
    place.run(&["backup", "now"]).await.expect(0);
    place.run(&["drill", "run"]).await.expect(20);
    place.run(&["status"]).await.expect(21);
}

fn terminate(child: &tokio::process::Child) {
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

pub(crate) async fn http_get(port: u16, path: &str) -> Option<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    text.starts_with("HTTP/1.1 200").then_some(text)
}
