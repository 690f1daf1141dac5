//! SIGKILL at random moments: a backup is whole or not there, and so is a restored directory.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;
use holdfast_interop::peers::Peers;
use holdfast_interop::ports;
use holdfast_interop::server::{Kind, Server, ServerOptions};
use holdfast_interop::wait;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::appliance::{Appliance, shape};
use crate::long::rounds;
use crate::observe::observe;
use crate::snapshots::fill;

/// Runs a command line once to learn how long it takes.
fn duration(appliance: &Appliance, words: &[&str]) -> Result<Duration> {
    let start = wait::now();
    appliance.run(words)?.success()?;
    Ok(start.elapsed())
}

/// Runs a command line and kills it at a random moment of its life, or shortly after; tells when.
fn kill_within(
    appliance: &Appliance,
    words: &[&str],
    life: Duration,
    rng: &mut StdRng,
) -> Result<Duration> {
    let mut child = appliance
        .command(words)?
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let moment = life.mul_f64(rng.random_range(0.0..1.1));
    wait::pause(moment);
    child.kill()?;
    child.wait()?;
    Ok(moment)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_killed_at_any_moment_is_whole_or_not_there() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let server = Server::start(&peers, Kind::Etcd)?;
    fill(&server, 31).await?;
    let appliance = Appliance::new(&server)?;
    let mut life = duration(&appliance, &["backup", "now"])?;
    let mut rng = StdRng::seed_from_u64(31);
    let (mut finished, mut cut) = (0, 0);
    let mut known = newest(&appliance)?;
    let rounds = rounds(100, 1_000);
    for round in 0..rounds {
        let moment = kill_within(&appliance, &["backup", "now"], life, &mut rng)?;
        let now = newest(&appliance)?;
        // The length of the run follows the machine's other work, so that both ends are seen.
        if now == known {
            cut += 1;
            life = life.mul_f64(1.05);
        } else {
            finished += 1;
            life = life.mul_f64(0.85).max(moment / 2);
        }
        known = now;
        let list = appliance.run(&["backup", "list"])?;
        // A prune that was killed is the one thing that may be seen; the next one finishes it.
        let problems = list
            .stdout
            .lines()
            .filter(|line| line.starts_with("problem: "));
        let is_prune = |line: &str| line.contains("prune has not finished");
        let other: Vec<&str> = problems.filter(|line| !is_prune(line)).collect();
        assert_eq!(
            other,
            Vec::<&str>::new(),
            "round {round}: {}{}",
            list.stdout,
            list.stderr
        );
    }
    assert!(
        finished > 0 && cut > 0,
        "{finished} of {rounds} backups came to their end, {cut} were cut short"
    );
    // Leftovers do not stand in the way, and every backup that is listed can be read back.
    appliance.run(&["backup", "now"])?.success()?;
    let all = appliance.run(&["backup", "list", "-w", "json"])?.json()?;
    let ids = ids(&all);
    assert!(ids.len() > 1, "{all}");
    for id in ids {
        let proof = appliance.run(&["backup", "verify", &id])?;
        assert_eq!(proof.code, 0, "{id}: {}{}", proof.stdout, proof.stderr);
        assert!(proof.stdout.contains("L2"), "{}", proof.stdout);
    }
    Ok(())
}

/// The id of the newest backup that is listed: ids sort by time.
fn newest(appliance: &Appliance) -> Result<Option<String>> {
    let list = appliance.run(&["backup", "list", "-w", "json"])?.json()?;
    Ok(ids(&list).pop())
}

/// Every backup's id in the answer of `backup list`.
fn ids(list: &serde_json::Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![list];
    while let Some(value) = open.pop() {
        match value {
            serde_json::Value::Object(fields) => {
                if let Some(id) = fields.get("id").and_then(serde_json::Value::as_str) {
                    found.push(id.to_owned());
                }
                open.extend(fields.values());
            }
            serde_json::Value::Array(values) => open.extend(values),
            _ => {}
        }
    }
    found.sort();
    found.dedup();
    found
}

async fn restore_killed(target: &str, kind: Kind) -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let server = Server::start(&peers, Kind::Etcd)?;
    fill(&server, 32).await?;
    let appliance = Appliance::new(&server)?;
    appliance.run(&["backup", "now"])?.success()?;
    let before = observe(&server.endpoint(), &[]).await?;
    let peer_port = ports::free()?;
    let cluster = format!("--initial-cluster=m0=http://127.0.0.1:{peer_port}");
    let words = |dir: &'static str| {
        let whole = [
            "restore",
            "--latest",
            "--data-dir",
            dir,
            "--name=m0",
            "--target",
            target,
        ];
        let mut whole = whole.to_vec();
        whole.push(&cluster);
        whole
    };
    let mut life = duration(&appliance, &words("reference"))?;
    let whole = shape(&appliance.path("reference"))?;
    let mut rng = StdRng::seed_from_u64(32);
    let (mut finished, mut cut) = (0, 0);
    let rounds = rounds(50, 100);
    for round in 0..rounds {
        let moment = kill_within(&appliance, &words("killed"), life, &mut rng)?;
        let path = appliance.path("killed");
        if path.exists() {
            assert_eq!(
                shape(&path)?,
                whole,
                "round {round} left a part of a directory"
            );
            std::fs::remove_dir_all(&path)?;
            finished += 1;
            // The length of the run follows the machine's other work, so that both ends are seen.
            life = life.mul_f64(0.85).max(moment / 2);
        } else {
            cut += 1;
            life = life.mul_f64(1.05);
        }
    }
    assert!(
        finished > 0 && cut > 0,
        "{finished} of {rounds} came to their end, {cut} were cut short"
    );
    appliance.run(&words("killed"))?.success()?;
    assert_eq!(
        appliance.named("killed")?,
        ["killed"],
        "leftovers of killed restores"
    );

    let options = ServerOptions::new(kind).data_dir(&appliance.path("killed"), peer_port);
    let restored = Server::start_with(&peers, options)?;
    let after = observe(&restored.endpoint(), &[]).await?;
    let keys = |lines: &[String]| -> Vec<String> {
        lines
            .iter()
            .filter(|line| line.contains("create="))
            .cloned()
            .collect()
    };
    assert_eq!(keys(&after), keys(&before));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_for_real_etcd_killed_at_any_moment_is_whole_or_not_there() -> Result<()> {
    restore_killed("etcd", Kind::Etcd).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_for_our_store_killed_at_any_moment_is_whole_or_not_there() -> Result<()> {
    restore_killed("holdfast", Kind::Holdfast).await
}
