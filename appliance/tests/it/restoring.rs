//! Restores that a person could get wrong: several members, another host, the wrong key.

use std::path::{Path, PathBuf};

use serde_json::Value;

use holdfast_proto::etcd::rpc::maintenance_client::MaintenanceClient;
use holdfast_proto::etcd::rpc::{HashKvRequest, MemberListRequest, cluster_client::ClusterClient};

use crate::support::{Client, Ended, Place, eventually, free_port};

/// An appliance whose source is called `real`, with one backup in its vault; its daemon is gone.
async fn backed_up() -> Place {
    let place = Place::new();
    let port = free_port();
    place.init(port, "null", "null").await;
    let file = place.path().join("holdfast.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("- name: bundled", "- name: real")).unwrap();
    let mut daemon = place.spawn(&["run"], "daemon.log");
    Client::connect(port).await.put("k", "v").await;
    place.run(&["backup", "now"]).await.expect(0);
    daemon.kill().await.unwrap();
    place
}

fn failure(ended: &Ended) -> Value {
    serde_json::from_str(&ended.complained).unwrap()
}

/// The commands that a text offers, each as its words.
fn commands(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().map(str::trim);
    let offered = lines.filter_map(|line| line.strip_prefix("holdfast restore "));
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    offered.map(words).collect()
}

/// Runs a command that was offered, for its plan and outcome.
async fn run(place: &Place, words: &[String]) -> Value {
    let mut all = vec!["restore", "-w", "json"];
    all.extend(words.iter().map(String::as_str));
    place.run(&all).await.expect(0).json()
}

const MEMBERS: &str = "m1=http://127.0.0.1:2380,m2=http://127.0.0.1:3380,m3=http://127.0.0.1:4380";

#[tokio::test(flavor = "multi_thread")]
async fn members_restored_one_by_one_have_one_cluster_and_one_revision() {
    let place = backed_up().await;
    let words = [
        "restore",
        "--latest",
        "--target",
        "etcd",
        "--data-dir",
        "m1.etcd",
        "--name",
        "m1",
        "--initial-cluster",
        MEMBERS,
        "--initial-cluster-token",
        "t1",
    ];
    let ledger = place
        .path()
        .join("holdfast-data/vault/clusters/real/ledger");
    let before = files(&ledger).len();
    let mut json = words.to_vec();
    json.extend(["-w", "json"]);
    let refused = place.run(&json).await.expect(2);
    assert!(!place.path().join("m1.etcd").exists());
    assert_eq!(files(&ledger).len(), before, "it cost nobody a revision");
    let next = failure(&refused)["next"].as_str().unwrap().to_owned();
    assert!(next.contains("--all-members"), "{next}");
    let offered = commands(&next);
    assert_eq!(offered.len(), 3, "{next}");

    let mut clusters = Vec::new();
    for (number, words) in offered.iter().enumerate() {
        let done = run(&place, words).await;
        let outcome = &done["outcome"];
        let dir = format!("m{}.etcd/member/snap/db", number + 1);
        assert!(place.path().join(dir).is_file(), "{done}");
        clusters.push((outcome["cluster_id"].clone(), outcome["revision"].clone()));
    }
    assert!(
        clusters.iter().all(|one| *one == clusters[0]),
        "{clusters:?}"
    );

    // The dry run offers the same, and the text after one member names the others.
    let mut dry = words.to_vec();
    dry.push("--dry-run");
    let said = place.run(&dry).await.expect(0).said;
    assert_eq!(commands(&said).len(), 3, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_members_are_written_by_one_run_which_says_how_to_start_each() {
    let place = backed_up().await;
    let words = [
        "restore",
        "--latest",
        "--target",
        "etcd",
        "--data-dir",
        "new",
        "--all-members",
        "--initial-cluster",
        MEMBERS,
    ];
    let said = place.run(&words).await.expect(0).said;
    assert!(said.contains("1 key,"), "{said}");
    for (name, port) in [("m1", 2380), ("m2", 3380), ("m3", 4380)] {
        let dir = place.path().join("new").join(name);
        assert!(dir.join("member/snap/db").is_file(), "{said}");
        let start = format!(
            "etcd --name {name} --data-dir new/{name} --listen-peer-urls http://127.0.0.1:{port} \
             --listen-client-urls http://127.0.0.1:{}",
            port - 1
        );
        assert!(said.contains(&start), "{said}");
    }
    let one = place
        .run(&["restore", "--latest", "--data-dir", "new.holdfast"])
        .await
        .expect(0);
    assert!(one.said.contains("holdfast-data/store"), "{one:?}");
    assert!(one.said.contains("holdfast run"), "{one:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_members_of_a_bundled_store_are_one_cluster_with_one_token() {
    let place = backed_up().await;
    let words = [
        "restore",
        "--latest",
        "--data-dir",
        "new",
        "--all-members",
        "--initial-cluster",
        MEMBERS,
        "-w",
        "json",
    ];
    let restored = place.run(&words).await.expect(0).json();
    assert_eq!(restored["outcome"]["written"].as_array().unwrap().len(), 3);
    let token = restored["plan"]["token"].as_str().unwrap();
    let mut ids = Vec::new();
    for name in ["m1", "m2", "m3"] {
        let dir = place.path().join("new").join(name);
        let marker = std::fs::read(dir.join("member.json")).unwrap();
        let marker: Value = serde_json::from_slice(&marker).unwrap();
        assert_eq!(marker["name"], name);
        ids.push((marker["cluster_id"].clone(), marker["member_id"].clone()));
    }
    assert!(ids.iter().all(|(cluster, _)| *cluster == ids[0].0));
    assert!(ids[0].1 != ids[1].1 && ids[1].1 != ids[2].1 && ids[0].1 != ids[2].1);
    // As etcd computes it from the members and the token: a new token is another cluster.
    assert!(!token.is_empty());
    let again = [&words[..3], &["other"], &words[4..]].concat();
    let again = place.run(&again).await.expect(0).json();
    assert_ne!(again["plan"]["token"], restored["plan"]["token"]);
    assert_ne!(
        again["outcome"]["cluster_id"],
        restored["outcome"]["cluster_id"]
    );
}

/// Free ports for clients and peers that follow each other, as the printed commands have them.
fn port_pairs(count: usize) -> Vec<u16> {
    let listen = |port| std::net::TcpListener::bind(("127.0.0.1", port));
    let mut held = Vec::new();
    let mut ports = Vec::new();
    for _ in 0..1000 {
        if ports.len() == count {
            break;
        }
        let client = listen(0).unwrap();
        let port = client.local_addr().unwrap().port();
        if let Some(Ok(peer)) = port.checked_add(1).map(listen) {
            ports.push(port);
            held.extend([client, peer]);
        }
    }
    assert_eq!(ports.len(), count, "no free ports");
    ports
}

/// The commands that start what was restored, each as its words.
fn starts(said: &str) -> Vec<Vec<String>> {
    let lines = said.lines();
    let offered = lines.filter_map(|line| line.strip_prefix("start it: holdfast "));
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    offered.map(words).collect()
}

async fn hash_kv(port: u16, revision: i64) -> (u32, u64) {
    let url = format!("http://127.0.0.1:{port}");
    let mut client = MaintenanceClient::connect(url).await.unwrap();
    let told = client.hash_kv(HashKvRequest { revision }).await.unwrap();
    let told = told.into_inner();
    (told.hash, told.header.unwrap().cluster_id)
}

/// Restores with one command and starts what it wrote with the commands it printed.
async fn restored_members_form_one_cluster(count: usize) {
    let place = backed_up().await;
    let ports = port_pairs(count);
    let pairs: Vec<String> = ports
        .iter()
        .enumerate()
        .map(|(at, port)| format!("m{}=http://127.0.0.1:{}", at + 1, port + 1))
        .collect();
    let members = pairs.join(",");
    let restore = ["restore", "--latest", "--members", &members];
    let said = place.run(&restore).await.expect(0).said;
    let offered = starts(&said);
    assert_eq!(offered.len(), count, "{said}");
    let mut running = Vec::new();
    for (at, words) in offered.iter().enumerate() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        running.push(place.spawn(&words, &format!("m{}.log", at + 1)));
    }

    let mut first = Client::connect(ports[0]).await;
    let (value, revision) = first.get("k").await;
    assert_eq!(value.as_deref(), Some("v"));
    assert!(revision > 1_000_000_000, "{revision} is not bumped");
    let written = first.put("after", "restore").await;
    assert_eq!(written, revision + 1);
    let mut hashes = Vec::new();
    for port in &ports {
        let mut client = Client::connect(*port).await;
        let (value, at) = client.get("after").await;
        assert_eq!((value.as_deref(), at), (Some("restore"), written));
        let old = client.get_at("k", 2).await.unwrap_err();
        assert!(old.message().contains("compacted"), "{old}");
        hashes.push(hash_kv(*port, written).await);
    }
    assert!(hashes.iter().all(|one| *one == hashes[0]), "{hashes:?}");
    let url = format!("http://127.0.0.1:{}", ports[0]);
    eventually("every member has told its name", || async {
        let mut cluster = ClusterClient::connect(url.clone()).await.ok()?;
        let listed = cluster.member_list(MemberListRequest { linearizable: true });
        let listed = listed.await.ok()?.into_inner().members;
        assert_eq!(listed.len(), count);
        let is_known = |at: usize| listed.iter().any(|one| one.name == format!("m{}", at + 1));
        (0..count).all(is_known).then_some(())
    })
    .await;
    for member in &mut running {
        member.kill().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_restored_member_starts_with_the_printed_command() {
    restored_members_form_one_cluster(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_members_restored_by_one_command_form_one_cluster() {
    restored_members_form_one_cluster(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_members_restored_by_one_command_form_one_cluster() {
    restored_members_form_one_cluster(5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_that_opens_nothing_costs_nobody_a_revision() {
    let place = backed_up().await;
    place
        .run(&["key", "generate", "--dir", "other"])
        .await
        .expect(0);
    let vault = place
        .path()
        .join("holdfast-data/vault/clusters/real/ledger");
    let local = place.path().join("holdfast-data/ledger/real.json");
    let before = (files(&vault), std::fs::read(&local).unwrap());
    let words = [
        "restore",
        "--latest",
        "--data-dir",
        "new",
        "--identity",
        "other/identity.age",
    ];
    place.run(&words).await.expect(13);
    assert_eq!((files(&vault), std::fs::read(&local).unwrap()), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_host_with_the_identity_alone_is_told_whom_to_trust_and_harms_nothing() {
    let home = backed_up().await;
    let signer = home.run(&["key", "show", "-w", "json"]).await.json()["trusted_signers"][0]
        .as_str()
        .unwrap()
        .to_owned();
    let host = Place::new();
    let vault = home.path().join("holdfast-data/vault");
    let set = format!("restore.vault={{local: {{path: {}}}}}", vault.display());
    let identity = home.path().join("holdfast-data/keys/identity.age");
    let base = [
        "restore",
        "--latest",
        "--data-dir",
        "new",
        "--identity",
        identity.to_str().unwrap(),
        "--set",
        &set,
        "-w",
        "json",
    ];
    let unnamed = host.run(&base).await.expect(10);
    let next = failure(&unnamed)["next"].to_string();
    assert!(next.contains("real"), "{next}");

    let mut named = base.to_vec();
    named.extend(["--source", "real"]);
    let stranger = failure(&host.run(&named).await.expect(13));
    assert!(stranger["why"].to_string().contains(&signer), "{stranger}");
    let next = stranger["next"].as_str().unwrap();
    let trust = next
        .split('\'')
        .find(|text| text.starts_with("restore.trusted_signers="))
        .unwrap();

    // A host that has a signing key of its own, as one that ran `init` does.
    host.run(&["key", "generate", "--dir", "holdfast-data/keys"])
        .await
        .expect(0);
    named.extend(["--set", trust]);
    let done = host.run(&named).await.expect(0).json();
    let note = done["notes"].to_string();
    assert!(note.contains("trusted_signers"), "{note}");

    // At home the record is reported with its cure, and housekeeping goes on.
    let listed = home.run(&["backup", "list"]).await.expect(12);
    assert!(listed.said.contains("signed by a stranger"), "{listed:?}");
    assert!(
        listed.said.contains("restore.trusted_signers"),
        "{listed:?}"
    );
    home.run(&[
        "backup",
        "prune",
        "--set",
        "policies.retention.count_from=L2",
    ])
    .await
    .expect(0);
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|one| one.unwrap().path()).collect();
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vault_that_lost_its_marker_is_read_with_a_warning_and_not_written() {
    let place = backed_up().await;
    let marker = place.path().join("holdfast-data/vault/vault.json");
    std::fs::remove_file(&marker).unwrap();
    let warned = |ended: Ended| {
        assert!(ended.complained.contains("marker lost"), "{ended:?}");
        ended
    };
    warned(place.run(&["backup", "list"]).await.expect(12));
    warned(place.run(&["backup", "verify"]).await.expect(12));
    let restore = ["restore", "--latest", "--data-dir", "new"];
    let restored = warned(place.run(&restore).await.expect(0));
    assert!(restored.said.contains("1 key"), "{restored:?}");
    // Writing stops and says what to do.
    let refused = place.run(&["vault", "check"]).await.expect(12);
    assert!(refused.complained.contains("check --new"), "{refused:?}");
    let renewed = place.run(&["vault", "check", "--new"]).await.expect(0);
    assert!(renewed.said.contains("written anew"), "{renewed:?}");
    let listed = place.run(&["backup", "list"]).await.expect(0);
    assert_eq!(listed.complained, "");
}
