//! The daily work through command line and daemon: a real etcd, a vault on a real S3 server,
//! and drills that boot a real etcd.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use holdfast_interop::peers::{Peer, Peers};
use holdfast_interop::server::{Kind, Server};
use holdfast_interop::wait;
use serde_json::Value;

use super::appliance::Appliance;
use crate::snapshots::fill;

/// How long the daemon may take to have two backups and a drill.
const PATIENCE: Duration = Duration::from_mins(2);

/// A drill's report shows that a real etcd was booted and everything held.
fn assert_passed_on_etcd(report: &Value) {
    assert_eq!(report["outcome"], "passed", "{report}");
    assert_eq!(report["target"], "etcd", "{report}");
    let version = report["restored"]["server_version"].as_str();
    assert_eq!(version, Some("3.7.3"), "{report}");
}

fn backups(appliance: &Appliance) -> Result<Vec<Value>> {
    let listed = appliance.run(&["backup", "list", "-w", "json"])?.json()?;
    let backups = listed["backups"].as_array().context("no list")?;
    Ok(backups.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_backs_up_to_s3_and_rehearses_on_a_real_etcd() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let server = Server::start(&peers, Kind::Etcd)?;
    let revision = fill(&server, 41).await?;
    let appliance = Appliance::on_s3(&peers, &server)?;
    let etcd = peers.path(Peer::Etcd)?;
    let path = appliance.path("holdfast.yaml");
    let text = std::fs::read_to_string(&path)?;
    let drills = format!(
        "drills:\n  target: etcd\n  etcd_binary: {}\n",
        etcd.display()
    );
    std::fs::write(&path, format!("{text}\n{drills}"))?;
    appliance.edit("schedule: \"@hourly\"", "schedule: \"@every 3s\"")?;
    appliance.edit("listen: 127.0.0.1:2384", "listen: 127.0.0.1:0")?;

    // By hand, without a daemon.
    let taken = appliance.run(&["backup", "now", "-w", "json"])?.json()?;
    assert_eq!(taken[0]["level"], "L2", "{taken}");
    assert_eq!(taken[0]["revision"], revision, "{taken}");
    let report = appliance.run(&["drill", "run", "-w", "json"])?.json()?;
    assert_passed_on_etcd(&report);

    // By the daemon, which answers the same commands.
    let log = std::fs::File::create(appliance.path("daemon.log"))?;
    let mut daemon = appliance
        .command(&["run"])?
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    let is_proven = |one: &&Value| one["level"] == "L2" || one["level"] == "L3";
    let outcome = wait::until("proven backups of the daemon", PATIENCE, || {
        let proven = backups(&appliance)?.iter().filter(is_proven).count();
        Ok((proven >= 3).then_some(()))
    })
    .and_then(|()| appliance.run(&["drill", "run", "-w", "json"])?.json());
    daemon.kill()?;
    daemon.wait()?;
    let log = std::fs::read_to_string(appliance.path("daemon.log"))?;
    assert_passed_on_etcd(&outcome.with_context(|| log)?);
    let listed = appliance.run(&["drill", "list", "-w", "json"])?.json()?;
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    let is_left = |name: &String| name.contains("/uses/");
    assert!(!appliance.objects()?.iter().any(is_left), "a mark is left");
    Ok(())
}
