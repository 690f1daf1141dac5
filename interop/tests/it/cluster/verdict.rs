//! Holds what was recorded against etcd's promises.

use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::client::Client;
use holdfast_interop::cluster::Cluster;
use holdfast_interop::history::{self, Summary, Timeline, check_watch};
use holdfast_interop::peers::{Peer, Peers};
use holdfast_interop::recorder::{self, Recorded};

/// Checks the clients' history, every watch, and that all members hold the same.
pub(crate) async fn judge(cluster: &Cluster, recorded: &Recorded) -> Result<Summary> {
    let history = &recorded.history;
    let summary = history::check(history)?;
    let timeline = Timeline::replay(history.base, &history.events)?;
    for watch in &recorded.watches {
        check_watch(&timeline, watch)?;
    }
    for endpoint in cluster.endpoints() {
        let newest = recorder::newest(&endpoint).await?;
        ensure!(newest >= timeline.newest(), "{endpoint} is at {newest}");
        let changes = recorder::all_changes(&endpoint, history.base, timeline.newest()).await?;
        let is_equal = changes
            .get(..history.events.len())
            .is_some_and(|changes| changes == history.events);
        ensure!(is_equal, "{endpoint} has other changes");
    }
    assert_alike(&cluster.endpoints(), timeline.newest()).await?;
    Ok(summary)
}

/// All members have the same history up to `revision`.
pub(crate) async fn assert_alike(endpoints: &[String], revision: i64) -> Result<()> {
    let mut hashes = Vec::new();
    for endpoint in endpoints {
        ensure!(
            recorder::newest(endpoint).await? >= revision,
            "{endpoint} is behind {revision}"
        );
        let answer = Client::connect(endpoint).await?.hash_kv(revision).await?;
        hashes.push((answer.hash, answer.compact_revision));
    }
    hashes.dedup();
    ensure!(hashes.len() == 1, "members differ: {hashes:?}");
    Ok(())
}

/// Searches for one order of a small history.
pub(crate) fn search(peers: &Peers, recorded: &Recorded) -> Result<String> {
    let mut child = peers
        .command(Peer::Checker)?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = history::to_json_lines(&recorded.history);
    child
        .stdin
        .take()
        .context("no standard input")?
        .write_all(lines.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "the checker: {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
