//! Starts that must not succeed, and the way out when a quorum is lost.

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::etcdctl::Etcdctl;
use holdfast_interop::peers::Peers;
use holdfast_interop::server::{Kind, Server};
use holdfast_interop::wait;

use super::script::Script;
use super::{compare, wait_writable};
use crate::pair::our_kind;

/// How long a start that is refused may take.
const REFUSED_WITHIN: Duration = Duration::from_secs(30);

/// The member ends by itself, not with success, and its log says `texts`.
fn assert_refused(cluster: &mut Cluster, at: usize, texts: &[&str]) -> Result<()> {
    let status = cluster.wait_end(at, REFUSED_WITHIN)?;
    let log = cluster.log(at);
    ensure!(!status.success(), "{status}\n{log}");
    for text in texts {
        ensure!(log.contains(text), "no {text:?} in\n{log}");
    }
    Ok(())
}

#[test]
fn a_start_that_does_not_fit_the_cluster_is_refused_and_says_what_to_do() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut cluster = Cluster::start(&peers, Kind::Holdfast, 3, &[])?;
    let new = cluster.reserve()?;
    let all = cluster.initial_cluster();
    cluster.launch(new, &all, "existing")?;
    assert_refused(
        &mut cluster,
        new,
        &["member count is unequal", "etcdctl member add"],
    )?;
    // The addresses of the old cluster, and a member that is not of it.
    cluster.launch(new, &all, "new")?;
    assert_refused(
        &mut cluster,
        new,
        &["is the address of a member of another cluster"],
    )?;
    // Data lost: it may have voted.
    cluster.kill(2)?;
    std::fs::remove_dir_all(cluster.data_dir(2))?;
    let three = cluster.initial_cluster_of(&[0, 1, 2]);
    for state in ["new", "existing"] {
        cluster.launch(2, &three, state)?;
        assert_refused(
            &mut cluster,
            2,
            &["has already been bootstrapped", "etcdctl member remove"],
        )?;
    }
    wait_writable(&cluster, 0)
}

/// The token makes ids at the founding: whoever has data, or joins, takes them from elsewhere, in
/// etcd too. With another token a founder would make another cluster: etcd's keeps knocking at
/// members that ignore it, ours ends and says so.
#[test]
fn a_wrong_token_founds_no_second_cluster_and_is_of_no_account_elsewhere_as_in_etcd() -> Result<()>
{
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    for kind in [Kind::Etcd, our_kind()] {
        let mut cluster = Cluster::start(&peers, kind, 3, &[])?;
        let founders = cluster.initial_cluster();
        "wrong".clone_into(&mut cluster.token);
        let before = cluster.members(0)?;
        cluster.stop(1)?;
        cluster.restart(1)?;
        wait_writable(&cluster, 1)?;
        ensure!(cluster.members(1)? == before, "{kind:?}: other ids");

        let new = cluster.reserve()?;
        let url = format!("--peer-urls={}", cluster.peer_url(new));
        wait::until("the member is added", wait::READY_MAX, || {
            let added = cluster.ctl(0).run(&["member", "add", "m3", &url])?;
            Ok((added.code == 0).then_some(()))
        })?;
        let all = cluster.initial_cluster();
        cluster.boot(new, &all, "existing")?;
        wait_writable(&cluster, new)?;
        ensure!(cluster.members(new)?.len() == 4);

        cluster.kill(2)?;
        std::fs::remove_dir_all(cluster.data_dir(2))?;
        let was_ready = cluster.said_ready(2);
        cluster.launch(2, &founders, "new")?;
        if kind == Kind::Etcd {
            wait::until("etcd's refusal", REFUSED_WITHIN, || {
                Ok(cluster.log(2).contains("cluster ID mismatch").then_some(()))
            })?;
            ensure!(cluster.said_ready(2) == was_ready, "it serves");
        } else {
            let text = "is the address of a member of another cluster";
            assert_refused(
                &mut cluster,
                2,
                &[text, "with the token wrong makes cluster"],
            )?;
        }
        wait_writable(&cluster, 0)?;
        ensure!(cluster.members(0)?.len() == 4);
    }
    Ok(())
}

#[test]
fn founders_meet_in_a_registry_of_etcd_as_etcds_do() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let registry = Server::start(&peers, Kind::Etcd)?;
    let ctl = Etcdctl::new(&peers, &registry.endpoint());
    let endpoints = format!("--discovery-endpoints={}", registry.endpoint());
    let mut seen = Vec::new();
    for (kind, token) in [(Kind::Etcd, "theirs"), (our_kind(), "ours")] {
        let size = format!("/_etcd/registry/{token}/_config/size");
        ctl.run(&["put", &size, "3"])?.success()?;
        let token_flag = format!("--discovery-token={token}");
        let mut cluster = Cluster::plan(&peers, kind, 3, &[&token_flag, &endpoints])?;
        cluster.launch_all("")?;
        wait_writable(&cluster, 1)?;
        assert_eq!(cluster.members(2)?.len(), 3);
        let prefix = format!("/_etcd/registry/{token}/members/");
        let found = ctl.run(&["get", &prefix, "--prefix"])?.success()?.stdout;
        let mut lines: Vec<String> = found
            .lines()
            .map(|line| {
                let mut line = line.replace(token, "TOKEN");
                for at in 0..3 {
                    line = line.replace(&cluster.peer_url(at), "PEER");
                }
                match line.rsplit_once('/') {
                    Some((prefix, _)) if prefix.starts_with("/_etcd") => prefix.to_owned(),
                    _ => line,
                }
            })
            .collect();
        lines.sort();
        seen.push(lines);
        let late = cluster.reserve()?;
        cluster.launch(late, "", "new")?;
        assert_refused(&mut cluster, late, &["discovery: cluster is full"])?;
    }
    assert_eq!(seen[0], seen[1]);
    Ok(())
}

#[test]
fn a_removed_member_stops_and_its_directory_is_refused() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut cluster = Cluster::start(&peers, Kind::Holdfast, 3, &[])?;
    // The leader: it hands over first.
    let leader = cluster.leader()?;
    let other = (leader + 1) % 3;
    let id = cluster
        .members(other)?
        .into_iter()
        .find_map(|(name, id)| (name == cluster.name(leader)).then_some(id));
    let id = format!("{:x}", id.unwrap_or_default());
    wait_writable(&cluster, other)?;
    let removed = cluster.ctl(other).run(&["member", "remove", &id])?;
    ensure!(removed.code == 0, "{removed:?}");
    let status = cluster.wait_end(leader, REFUSED_WITHIN)?;
    let log = cluster.log(leader);
    ensure!(status.success(), "{status}\n{log}");
    let told = "the member has been permanently removed from the cluster";
    ensure!(log.contains(told), "{log}");
    wait_writable(&cluster, other)?;
    let all = cluster.initial_cluster();
    cluster.launch(leader, &all, "new")?;
    assert_refused(&mut cluster, leader, &[told, "with an empty --data-dir"])
}

#[test]
fn the_last_member_goes_on_alone_when_it_is_told_to() -> Result<()> {
    compare(&[], |cluster: &mut Cluster, script: &mut Script| {
        wait_writable(cluster, 0)?;
        script.step(cluster, 0, "put k v")?;
        // etcd drops what it does not know to be committed, though it was acknowledged; ours keeps
        // all of its log.
        script.step(cluster, 0, "put last one")?;
        for at in 0..3 {
            cluster.kill(at)?;
        }
        cluster.flags.push("--force-new-cluster".to_owned());
        let all = cluster.initial_cluster();
        cluster.boot(0, &all, "new")?;
        wait_writable(cluster, 0)?;
        let last = cluster.ctl(0).run(&["get", "last"])?.success()?;
        ensure!(
            cluster.kind() == Kind::Etcd || last.stdout.contains("one"),
            "an acknowledged write is gone"
        );
        for line in [
            "member list",
            "get k",
            "put k after",
            "member remove ID(m1)",
            "endpoint status --cluster",
            "endpoint health --cluster",
        ] {
            script.step(cluster, 0, line)?;
        }
        cluster.flags.pop();
        cluster.stop(0)?;
        cluster.boot(0, &all, "new")?;
        wait_writable(cluster, 0)?;
        script.step(cluster, 0, "get k")?;
        script.step(cluster, 0, "member list")?;
        Ok(())
    })
}
