//! The daemon captures the changes of a real etcd by itself: through random work, members that are
//! killed, and a compaction that it was not there for.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::etcdctl::Etcdctl;
use holdfast_interop::peers::Peers;
use holdfast_interop::process::Process;
use holdfast_interop::server::{Kind, Server, ServerOptions};
use holdfast_interop::{client, ports, wait};
use serde_json::Value;

use super::appliance::Appliance;
use crate::observe::observe;
use crate::snapshots::fill;

/// Longest wait for what was written to be captured.
const PATIENCE: Duration = Duration::from_mins(1);

/// A daemon that captures what it backs up.
struct Capturing {
    site: Appliance,
    daemon: Option<Process>,
}

impl Capturing {
    fn begin(site: Appliance) -> Result<Self> {
        site.edit("    schedule: \"@hourly\"", "    schedule: \"@every 15s\"")?;
        site.edit("    schedule: \"30 3 * * SUN\"", "    schedule: null")?;
        site.edit("  drill:\n", "  capture: {every: 1s}\n\n  drill:\n")?;
        site.edit("127.0.0.1:2384", "127.0.0.1:0")?;
        let mut capturing = Self { site, daemon: None };
        capturing.start()?;
        Ok(capturing)
    }

    fn start(&mut self) -> Result<()> {
        let log = self.site.path("log");
        let mut command = self.site.command(&["run"])?;
        self.daemon = Some(Process::start("daemon", &mut command, &log)?);
        Ok(())
    }

    /// As `kill -9` ends it.
    fn kill(&mut self) {
        self.daemon = None;
    }

    fn log(&self) -> String {
        let log = self.daemon.as_ref().map(Process::log);
        log.unwrap_or_default()
    }

    fn status(&self) -> Result<Value> {
        let output = self.site.run(&["status", "-w", "json"])?;
        let all: Value =
            serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))?;
        Ok(all[0].clone())
    }

    /// Waits until the vault has everything up to the newest revision at `endpoint`.
    async fn caught_up(&self, endpoint: &str) -> Result<Value> {
        let newest = client::status(endpoint).await.context("no answer")?;
        let newest = newest.header.context("no header")?.revision;
        let what = format!("revision {newest} is captured");
        let told = wait::until(&what, PATIENCE, || {
            let told = self.status()?;
            let captured = told["capture"]["revision"].as_i64();
            Ok((captured >= Some(newest)).then_some(told))
        });
        told.with_context(|| self.log())
    }

    /// What a real etcd shows that was restored from the newest change.
    async fn restored(&self, peers: &Peers) -> Result<Vec<String>> {
        let (dir, peer_port) = (self.site.path("restored"), ports::free()?);
        let text = dir.to_string_lossy().into_owned();
        let cluster = format!("m0=http://127.0.0.1:{peer_port}");
        self.site.ask(&[
            "restore",
            "--latest",
            "--target",
            "etcd",
            "--data-dir",
            &text,
            "--name",
            "m0",
            "--initial-cluster",
            &cluster,
        ])?;
        let options = ServerOptions::new(Kind::Etcd).data_dir(&dir, peer_port);
        let member = Server::start_with(peers, options)?;
        keys_of(&member.endpoint()).await
    }
}

/// Puts a key; answers its revision.
fn put(peers: &Peers, endpoint: &str, key: &str) -> Result<i64> {
    let said = Etcdctl::new(peers, endpoint).json(&["put", key, "value"])?;
    said["header"]["revision"].as_i64().context("no revision")
}

/// Every key with its revisions and the digest of its value.
async fn keys_of(endpoint: &str) -> Result<Vec<String>> {
    let mut lines = observe(endpoint, &[]).await?;
    // `observe` writes one key of its own, after it read.
    lines.retain(|line| line.contains("create="));
    ensure!(!lines.is_empty(), "nothing at {endpoint}");
    Ok(lines)
}

#[tokio::test(flavor = "multi_thread")]
async fn ss3_a_daemon_and_a_real_etcd_that_are_killed_in_turn_lose_no_change() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut etcd = Server::start(&peers, Kind::Etcd)?;
    fill(&etcd, 301).await?;
    let mut capturing = Capturing::begin(Appliance::new(&etcd)?)?;
    capturing.caught_up(&etcd.endpoint()).await?;
    for number in 0..3 {
        put(&peers, &etcd.endpoint(), &format!("/round/{number}"))?;
        etcd = etcd.restart_after_kill()?;
        put(&peers, &etcd.endpoint(), "/after")?;
        capturing.caught_up(&etcd.endpoint()).await?;
        put(&peers, &etcd.endpoint(), "/late")?;
        capturing.kill();
        put(&peers, &etcd.endpoint(), "/alone")?;
        capturing.start()?;
    }
    let told = capturing.caught_up(&etcd.endpoint()).await?;
    ensure!(told["capture"]["gaps"] == 0, "{told}");
    ensure!(told["alarms"] == serde_json::json!([]), "{told}");
    capturing.kill();
    let before = keys_of(&etcd.endpoint()).await?;
    assert_eq!(capturing.restored(&peers).await?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ss2_a_compaction_while_no_daemon_ran_is_a_gap_that_is_told() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let etcd = Server::start(&peers, Kind::Etcd)?;
    let first = put(&peers, &etcd.endpoint(), "/first")?;
    let mut capturing = Capturing::begin(Appliance::new(&etcd)?)?;
    capturing.caught_up(&etcd.endpoint()).await?;
    capturing.kill();
    let mut last = first;
    for number in 0..10 {
        last = put(&peers, &etcd.endpoint(), &format!("/unseen/{number}"))?;
    }
    let tool = Etcdctl::new(&peers, &etcd.endpoint());
    tool.run(&["compact", "--physical", &last.to_string()])?
        .success()?;
    capturing.start()?;
    put(&peers, &etcd.endpoint(), "/seen")?;
    let told = capturing.caught_up(&etcd.endpoint()).await?;
    let gap = &told["capture"]["last_gap"];
    ensure!(gap["from"] == first, "{told}");
    ensure!(gap["to"].as_i64() >= Some(last), "{told}");
    ensure!(told["alarms"][0]["name"] == "capture_gap", "{told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ss1_a_member_that_is_killed_is_left_for_another_without_a_gap() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut cluster = Cluster::start(&peers, Kind::Etcd, 3, &[])?;
    let alone = Server::start(&peers, Kind::Etcd)?;
    let site = Appliance::new(&alone)?;
    let endpoints = cluster.endpoints().join("\", \"");
    site.edit(&alone.endpoint(), &endpoints)?;
    put(&peers, &cluster.endpoint(0), "/first")?;
    let capturing = Capturing::begin(site)?;
    capturing.caught_up(&cluster.endpoint(0)).await?;
    let mut told = Value::Null;
    for at in 0..3 {
        cluster.kill(at)?;
        let other = cluster.endpoint((at + 1) % 3);
        cluster.leader()?;
        wait::until("a put", PATIENCE, || Ok(put(&peers, &other, "/on").ok()))?;
        told = capturing.caught_up(&other).await?;
        cluster.restart(at)?;
    }
    ensure!(told["capture"]["gaps"] == 0, "{told}");
    Ok(())
}
