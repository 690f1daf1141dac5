//! Every golden snapshot through both restores: what a client sees afterwards is what it sees
//! after real etcdutl restored it for real etcd.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use holdfast_interop::golden::{self, GOLDEN};
use holdfast_interop::peers::Peers;
use holdfast_interop::ports;
use holdfast_interop::server::{Kind, Server, ServerOptions};
use tokio::task::JoinSet;

use crate::observe::observe;
use crate::offline::{self, Restored, Tool};

/// The bump of the golden files of the first shape.
const BUMP: u64 = 1_000_000;

/// The revision that real etcd reported when it made the snapshot.
fn revision(version: &str, name: &str) -> Result<i64> {
    let facts = golden::facts(version, name)?;
    let status = [&facts["status"], &facts["etcdutl_snapshot_status"]];
    let revision = status.iter().find_map(|status| status["revision"].as_i64());
    revision.with_context(|| format!("no revision in {version}/{name}.json"))
}

async fn serve(
    peers: &Peers,
    tool: Tool,
    file: &Path,
    bump: Option<u64>,
    old: &[i64],
) -> Result<Vec<String>> {
    let kind = if tool == Tool::Holdfast {
        Kind::Holdfast
    } else {
        Kind::Etcd
    };
    let folder = tempfile::tempdir()?;
    let data_dir = folder.path().join("data");
    let peer_port = ports::free()?;
    let target = Restored {
        data_dir: &data_dir,
        peer_port,
        bump,
    };
    let before = std::fs::read(file)?;
    offline::restore(peers, tool, file, &target)?;
    assert_eq!(std::fs::read(file)?, before, "{tool:?} changed its input");
    let options = ServerOptions::new(kind).data_dir(&data_dir, peer_port);
    let server = Server::start_with(peers, options)?;
    let first = observe(&server.endpoint(), old).await?;
    // What was restored must also be what comes back from disk.
    let server = server.restart()?;
    let mut all = first;
    all.extend(observe(&server.endpoint(), old).await?);
    Ok(all)
}

async fn compare(bump: Option<u64>) -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    // Most of the time is spent waiting for elections, so the files take their turns together.
    let peers = Arc::new(peers);
    let mut files = JoinSet::new();
    for (version, name) in GOLDEN {
        let peers = Arc::clone(&peers);
        files.spawn(async move { compare_one(&peers, version, name, bump).await });
    }
    let mut differences = Vec::new();
    while let Some(found) = files.join_next().await {
        differences.extend(found??);
    }
    assert!(
        differences.is_empty(),
        "bump {bump:?}\n{}",
        differences.join("\n")
    );
    Ok(())
}

async fn compare_one(
    peers: &Peers,
    version: &str,
    name: &str,
    bump: Option<u64>,
) -> Result<Vec<String>> {
    let mut differences = Vec::new();
    let file = golden::snapshot(version, name);
    let last = revision(version, name)?;
    // Old revisions: compacted ones, and with a bump every one.
    let old: Vec<i64> = if bump.is_some() {
        vec![1, last]
    } else {
        vec![1]
    };
    let old = if last < 2 { Vec::new() } else { old };
    let expected = serve(peers, Tool::Etcdutl, &file, bump, &old).await?;
    for tool in [Tool::Holdfast, Tool::HoldfastForEtcd] {
        if name == "auth" && tool == Tool::Holdfast {
            continue;
        }
        match serve(peers, tool, &file, bump, &old).await {
            Ok(got) if got == expected => {}
            Ok(got) => differences.push(difference(version, name, tool, &expected, &got)),
            Err(error) => differences.push(format!("{version}/{name} {tool:?}: {error:?}")),
        }
    }
    Ok(differences)
}

fn difference(
    version: &str,
    name: &str,
    tool: Tool,
    expected: &[String],
    got: &[String],
) -> String {
    let pairs = expected
        .iter()
        .zip(got)
        .filter(|(expected, got)| expected != got);
    let lines: Vec<String> = pairs
        .take(5)
        .map(|(expected, got)| format!("  etcd {expected}\n  ours {got}"))
        .collect();
    let counts = format!("{} and {} lines", expected.len(), got.len());
    format!("{version}/{name} {tool:?}: {counts}\n{}", lines.join("\n"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_golden_snapshot_restored_plainly_answers_as_real_etcd() -> Result<()> {
    compare(None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_golden_snapshot_restored_with_a_bump_answers_as_real_etcd() -> Result<()> {
    compare(Some(BUMP)).await
}

/// In every form, and in none chosen.
#[test]
fn status_and_hashkv_of_every_golden_snapshot_print_the_bytes_of_real_etcdutl() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let forms: [&[&str]; 5] = [
        &[],
        &["-w", "simple"],
        &["-w", "table"],
        &["--write-out=fields"],
        &["-w", "json"],
    ];
    for (version, name) in GOLDEN {
        let file = golden::snapshot(version, name);
        for form in forms {
            let expected = offline::printed(&peers, Tool::Etcdutl, &file, form)?;
            let got = offline::printed(&peers, Tool::Holdfast, &file, form)?;
            assert_eq!(got, expected, "{version}/{name} {form:?}");
        }
    }
    Ok(())
}

/// A store that cannot check passwords must not hand out what they protect.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_with_auth_enabled_is_not_served_without_auth() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let file = golden::snapshot("v3.7.3", "auth");
    let lines = serve(&peers, Tool::Holdfast, &file, None, &[]).await?;
    assert!(
        lines.iter().all(|line| !line.contains("create=")),
        "{lines:?}"
    );
    assert!(lines[0].starts_with("range: "), "{lines:?}");
    Ok(())
}
