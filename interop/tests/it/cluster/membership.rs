//! `etcdctl member ...` against three members, as real etcd answers it.

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::wait;

use super::{TRUSTED_AFTER, compare, wait_writable};

/// The text by which a removed member says why it ends.
const REMOVED: &str = "the member has been permanently removed from the cluster";

#[test]
fn a_learner_is_added_serves_what_it_may_is_promoted_and_removed_as_in_etcd() -> Result<()> {
    compare(&[], |cluster, script| {
        for line in [
            "member list",
            "member list -w table",
            "endpoint status --cluster",
            "endpoint health --cluster",
            "put k v",
        ] {
            script.step(cluster, 0, line)?;
        }
        let new = cluster.reserve()?;
        cluster.reserve()?;
        for line in [
            "member add m3 --peer-urls=PEER(m3) --learner",
            "member list",
            "member add m4 --peer-urls=PEER(m4) --learner",
            "member promote ID(added3)",
        ] {
            script.step(cluster, 1, line)?;
        }
        cluster.boot(new, &cluster.initial_cluster_of(&[0, 1, 2, 3]), "existing")?;
        for line in [
            "member list --consistency=s",
            "get k",
            "get k --consistency=s",
            "put k other",
            "del k",
            "lease grant 100",
            "lease list",
            "compaction 2",
            "alarm list",
            "defrag",
            "endpoint hashkv",
            "endpoint health",
        ] {
            script.step(cluster, new, line)?;
        }
        let status = cluster.ctl(new).json(&["endpoint", "status"])?;
        ensure!(status[0]["Status"]["isLearner"] == true, "{status}");
        for line in [
            "member list",
            "member promote ID(added3)",
            "member list",
            "member promote ID(added3)",
            "member promote ID(m1)",
        ] {
            script.step(cluster, 2, line)?;
        }
        wait_writable(cluster, new)?;
        script.step(cluster, new, "get k")?;
        script.step(cluster, 0, "member remove ID(added3)")?;
        script.step(cluster, 0, "member list")?;
        let status = cluster.wait_end(new, Duration::from_secs(30))?;
        script.note(&format!(
            "the removed member ended by itself: {}",
            status.success()
        ));
        ensure!(cluster.log(new).contains(REMOVED), "{}", cluster.log(new));
        script.step(cluster, 0, "member remove ID(added3)")?;
        Ok(())
    })
}

#[test]
fn members_are_added_updated_and_removed_by_etcds_checks() -> Result<()> {
    compare(&[], |cluster, script| {
        cluster.reserve()?;
        cluster.reserve()?;
        for line in [
            "member add m3 --peer-urls=PEER(m1)",
            "member add m3 --peer-urls=http://nowhere",
            "member add m3",
            "member remove 1234567890abcdef",
            "member promote 1234567890abcdef",
            "member update 1234567890abcdef --peer-urls=PEER(m3)",
            "member update ID(m1) --peer-urls=PEER(m2)",
            "member remove nonsense",
            "member add m3 --peer-urls=PEER(m3)",
            "member list",
            "member add m4 --peer-urls=PEER(m4)",
            "member list",
            "put k v",
            "member remove ID(added4)",
            "member update ID(added3) --peer-urls=PEER(m4)",
            "member list",
            "member remove ID(added3)",
            "member list",
        ] {
            script.step(cluster, 0, line)?;
        }
        Ok(())
    })
}

#[test]
fn a_change_that_would_cost_the_quorum_is_refused_as_in_etcd() -> Result<()> {
    compare(&[], |cluster, script| {
        cluster.reserve()?;
        let others: Vec<usize> = (1..3).collect();
        cluster.kill(2)?;
        wait_writable(cluster, 0)?;
        wait::pause(TRUSTED_AFTER);
        ensure!(others.len() == 2);
        for line in [
            "member add m3 --peer-urls=PEER(m3)",
            "member add m3 --peer-urls=PEER(m3) --learner",
            "member remove ID(m1)",
            "member remove ID(m2)",
            "member list",
            "endpoint status",
            "member remove ID(m2)",
            "put k v",
        ] {
            script.step(cluster, 0, line)?;
        }
        Ok(())
    })
}

#[test]
fn the_lead_is_moved_as_in_etcd() -> Result<()> {
    compare(&[], |cluster, script| {
        let all = [0, 1, 2];
        let members = cluster.members(0)?;
        let first = members.iter().find(|(name, _)| name == "m0");
        let first = first.map(|(_, id)| format!("{id:x}")).unwrap_or_default();
        if cluster.leader()? != 0 {
            let moved = cluster.ctl_of(&all).run(&["move-leader", &first])?;
            ensure!(moved.code == 0, "{moved:?}");
        }
        let wait_leader = |cluster: &Cluster, leader| {
            wait::until("the new leader", wait::READY_MAX, || {
                let known = all
                    .iter()
                    .all(|at| cluster.leader_seen_by(*at) == Some(leader));
                Ok(known.then_some(()))
            })
        };
        wait_leader(cluster, 0)?;
        script.step(cluster, 0, "move-leader ID(m1)")?;
        wait_leader(cluster, 1)?;
        cluster.reserve()?;
        for (at, line) in [
            (0, "move-leader ID(m2)"),
            (1, "move-leader ID(m1)"),
            (1, "move-leader 1234567890abcdef"),
            (1, "move-leader nonsense"),
            (1, "member add m3 --peer-urls=PEER(m3) --learner"),
            (1, "move-leader ID(added3)"),
            (1, "put k v"),
        ] {
            script.step(cluster, at, line)?;
        }
        Ok(())
    })
}

/// A member moves: its peer URLs are updated while it runs, and then it is started at the new
/// address, where the others find it by what the cluster says and no flag of theirs.
#[test]
fn a_member_whose_peer_urls_were_updated_is_reached_at_its_new_address_as_in_etcd() -> Result<()> {
    compare(&[], |cluster, script| {
        script.step(cluster, 0, "put k before")?;
        cluster.relocate(1)?;
        script.step(cluster, 0, "member update ID(m1) --peer-urls=PEER(m1)")?;
        script.step(cluster, 2, "member list")?;
        // It listens at the old address, where nobody looks for it any more.
        script.step(cluster, 2, "put k meanwhile")?;
        cluster.stop(1)?;
        cluster.restart(1)?;
        script.step(cluster, 1, "member list")?;
        // Two of three are a quorum only when they reach each other: there is no other way.
        cluster.kill(2)?;
        wait_writable(cluster, 0)?;
        wait_writable(cluster, 1)?;
        script.step(cluster, 1, "get k")?;
        script.step(cluster, 1, "put k after")?;
        script.step(cluster, 0, "get k")?;
        // The one that moved can lead, and the one that was away learns where it is.
        let leader = cluster.leader()?;
        if leader != 1 {
            super::nemesis::move_lead(cluster, leader, 1)?;
        }
        cluster.restart(2)?;
        wait_writable(cluster, 2)?;
        script.step(cluster, 2, "get k")?;
        script.step(cluster, 2, "member list")?;
        Ok(())
    })
}
