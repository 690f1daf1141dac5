//! The daemon left alone: two sources under writes, a schedule, drills, nobody at the console.
//!
//! The short form takes about a minute. `HOLDFAST_LONG_TESTS=1` leaves it alone for ten minutes,
//! with a backup of each source every minute.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::client::{Client, limited};
use holdfast_interop::peers::Peers;
use holdfast_interop::process::Process;
use holdfast_interop::server::{Kind, Server, ServerOptions};
use holdfast_interop::{ports, wait};
use holdfast_proto::etcd::rpc;
use serde_json::Value;
use tokio::task::JoinSet;
use tonic::Request;

use super::appliance::Appliance;
use crate::long::rounds;
use crate::observe::observe;

/// Keys that the writers turn over.
const KEYS: u64 = 2_000;
/// Bytes of each value.
const VALUE_BYTES: usize = 512;
/// The writers rest this long after each write.
const REST: Duration = Duration::from_millis(2);

/// How long it is left alone, and how often it acts.
struct Form {
    alone: Duration,
    backup: &'static str,
    drill: &'static str,
    /// Backups and drills of each source that there must be at the end.
    backups_min: usize,
    drills_min: usize,
}

fn form() -> Form {
    let short = Form {
        alone: Duration::from_secs(45),
        backup: "@every 10s",
        drill: "@every 20s",
        backups_min: 2,
        drills_min: 1,
    };
    let long = Form {
        alone: Duration::from_mins(10),
        backup: "@every 1m",
        drill: "@every 3m",
        backups_min: 9,
        drills_min: 2,
    };
    rounds(short, long)
}

const SOURCES: [&str; 2] = ["bundled", "production"];

/// Writes `holdfast.yaml`: the bundled store and a real etcd as sources, one vault.
fn configure(site: &Appliance, form: &Form, etcd: &str, store_port: u16, admin: u16) -> Result<()> {
    let words = ["key", "generate", "--dir", "holdfast-data/keys"];
    let said = site.run(&words)?.success()?.stdout;
    let recipient = said
        .split(|c: char| !c.is_ascii_alphanumeric())
        .find(|word| word.starts_with("age1"))
        .with_context(|| format!("no recipient in {said:?}"))?;
    let text = format!(
        r#"
appliance:
  admin: {{ listen: "127.0.0.1:{admin}" }}
store:
  listen_client_urls: ["http://127.0.0.1:{store_port}"]
restore:
  sources:
    - {{ name: bundled, kind: bundled }}
    - name: production
      kind: {{ etcd: {{ endpoints: ["{etcd}"] }} }}
policies:
  encryption: {{ recipients: ["{recipient}"] }}
  backup: {{ schedule: "{}", verify: L2 }}
  drill: {{ schedule: "{}" }}
  retention: {{ keep_last: 100 }}
"#,
        form.backup, form.drill
    );
    std::fs::write(site.path("holdfast.yaml"), text)?;
    Ok(())
}

/// Puts without an end until told; counts what was acknowledged.
async fn write(endpoint: String, stop: Arc<AtomicBool>, done: Arc<AtomicU64>) -> Result<()> {
    let mut client = Client::connect(&endpoint).await?;
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let request = rpc::PutRequest {
            key: format!("/load/{:06}", number % KEYS).into(),
            value: vec![u8::try_from(number % 251)?; VALUE_BYTES].into(),
            ..Default::default()
        };
        client.kv.put(limited(Request::new(request))).await?;
        number += 1;
        done.store(number, Ordering::Relaxed);
        tokio::time::sleep(REST).await;
    }
    Ok(())
}

fn backups(site: &Appliance, source: &str) -> Result<Vec<Value>> {
    let listed = site.ask(&["backup", "list", "--source", source])?;
    let problems = listed["problems"].as_array().map_or(0, Vec::len);
    ensure!(problems == 0, "{listed}");
    Ok(listed["backups"].as_array().cloned().unwrap_or_default())
}

fn drills(site: &Appliance, source: &str) -> Result<Vec<Value>> {
    let listed = site.ask(&["drill", "list", "--source", source])?;
    Ok(listed.as_array().cloned().unwrap_or_default())
}

/// Every backup stands at L2 or more, none is damaged, the newest holds `revision`.
fn all_proven(backups: &[Value], revision: i64) -> Result<bool> {
    let is_proven = |one: &Value| matches!(one["level"].as_str(), Some("L2" | "L3"));
    for one in backups {
        ensure!(one["is_damaged"] == false, "damaged: {one}");
    }
    let newest = backups.first().context("no backup")?;
    Ok(backups.iter().all(is_proven) && newest["revision"].as_i64() == Some(revision))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_left_alone_leaves_proven_backups_and_passed_drills() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let form = form();
    let etcd = Server::start(&peers, Kind::Etcd)?;
    let (store_port, admin) = (ports::free()?, ports::free()?);
    let site = Appliance::bare()?;
    configure(&site, &form, &etcd.endpoint(), store_port, admin)?;
    let mut daemon = Process::start("daemon", &mut site.command(&["run"])?, &site.path("log"))?;
    let store = SocketAddr::from(([127, 0, 0, 1], store_port));
    daemon.ready(|| holdfast_interop::http::get(store, "/health").ok())?;

    let endpoints = [format!("http://{store}"), etcd.endpoint()];
    let revisions = load(&form, &endpoints).await?;

    // What the load left is backed up and proven, by itself.
    for (source, revision) in SOURCES.iter().zip(revisions) {
        let what = format!("a proven backup of {source} at revision {revision}");
        let backups = wait::until(&what, Duration::from_mins(3), || {
            let backups = backups(&site, source)?;
            Ok(all_proven(&backups, revision)?.then_some(backups))
        });
        let backups = backups.with_context(|| daemon.log())?;
        ensure!(
            backups.len() >= form.backups_min,
            "{source}: {} backups",
            backups.len()
        );
        let drills = drills(&site, source)?;
        let passed = drills.iter().filter(|one| one["outcome"] == "passed");
        let passed = passed.count();
        ensure!(passed == drills.len(), "{source}: {drills:?}");
        ensure!(passed >= form.drills_min, "{source}: {passed} drills");
        println!(
            "{source}: {} backups, {passed} drills passed",
            backups.len()
        );
    }
    daemon.stop()?;

    let before = keys_of(&etcd.endpoint()).await?;
    for (target, kind) in [("holdfast", Kind::Holdfast), ("etcd", Kind::Etcd)] {
        let after = restored(&peers, &site, target, kind).await?;
        assert_eq!(after, before, "restored for {target}");
    }
    Ok(())
}

/// Writes to all `endpoints` for the time of `form`; gives the revision each ends at.
async fn load(form: &Form, endpoints: &[String]) -> Result<Vec<i64>> {
    let stop = Arc::new(AtomicBool::new(false));
    let (mut writers, mut counts) = (JoinSet::new(), Vec::new());
    for endpoint in endpoints {
        let done = Arc::new(AtomicU64::new(0));
        writers.spawn(write(
            endpoint.clone(),
            Arc::clone(&stop),
            Arc::clone(&done),
        ));
        counts.push(done);
    }
    tokio::time::sleep(form.alone).await;
    stop.store(true, Ordering::Relaxed);
    while let Some(written) = writers.join_next().await {
        written??;
    }
    let mut revisions = Vec::new();
    for (done, endpoint) in counts.into_iter().zip(endpoints) {
        let writes = done.load(Ordering::Relaxed);
        ensure!(writes > 1_000, "{endpoint}: only {writes} writes");
        let mut client = Client::connect(endpoint).await?;
        let status = limited(Request::new(rpc::StatusRequest {}));
        let status = client.maintenance.status(status).await?.into_inner();
        revisions.push(status.header.context("no header")?.revision);
    }
    Ok(revisions)
}

/// Restores the newest backup of `production` for `target` and reads it back from a member.
async fn restored(
    peers: &Peers,
    site: &Appliance,
    target: &str,
    kind: Kind,
) -> Result<Vec<String>> {
    let peer_port = ports::free()?;
    let cluster = format!("m0=http://127.0.0.1:{peer_port}");
    let dir = site.path(&format!("restored-{target}"));
    let dir_text = dir.to_string_lossy().into_owned();
    let words = ["restore", "--source", "production", "--latest"];
    let mut words = words.to_vec();
    words.extend(["--target", target, "--data-dir", &dir_text, "--name", "m0"]);
    words.extend(["--initial-cluster", &cluster]);
    site.ask(&words)?;
    let options = ServerOptions::new(kind).data_dir(&dir, peer_port);
    let member = Server::start_with(peers, options)?;
    keys_of(&member.endpoint()).await
}

/// Every key with its revisions and the digest of its value.
async fn keys_of(endpoint: &str) -> Result<Vec<String>> {
    let mut lines = observe(endpoint, &[]).await?;
    // `observe` writes one key of its own, after it read.
    lines.retain(|line| line.contains("create="));
    ensure!(!lines.is_empty(), "nothing at {endpoint}");
    Ok(lines)
}
