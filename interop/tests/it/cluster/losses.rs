//! A minority and a majority of the members is lost and comes back: what clients see of it.

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::client::{Client, limited, status};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::peers::Peers;
use holdfast_interop::server::Kind;
use holdfast_interop::wait;
use holdfast_proto::etcd::rpc;
use tokio::runtime::Runtime;
use tonic::Request;

use super::{TRUSTED_AFTER, asked};
use crate::pair::our_kind;

/// A cluster that loses members, and what was acknowledged by it.
struct Losing {
    cluster: Cluster,
    runtime: Runtime,
    kept: usize,
    lease: i64,
    members: Vec<u64>,
}

impl Losing {
    fn start(peers: &Peers, kind: Kind, size: usize) -> Result<Self> {
        let cluster = Cluster::start(peers, kind, size, &[])?;
        let runtime = Runtime::new()?;
        let lease = runtime.block_on(async {
            let mut client = Client::connect(&cluster.endpoint(0)).await?;
            let grant = rpc::LeaseGrantRequest { ttl: 600, id: 0 };
            let answer = client.lease.lease_grant(limited(Request::new(grant)));
            anyhow::Ok(answer.await?.into_inner().id)
        })?;
        let list = cluster.members(0)?;
        let id = |at| {
            let named = list.iter().find(|(name, _)| name == cluster.name(at));
            named.map(|(_, id)| *id).context("a member without an id")
        };
        let members = (0..size).map(id).collect::<Result<_>>()?;
        Ok(Self {
            cluster,
            runtime,
            kept: 0,
            lease,
            members,
        })
    }

    /// Writes through the member at `at` until one write is acknowledged, which is kept in mind.
    fn write(&mut self, at: usize) -> Result<()> {
        let key = format!("kept/{}", self.kept);
        let end = wait::now() + wait::READY_MAX;
        loop {
            let put = rpc::PutRequest {
                key: key.clone().into_bytes().into(),
                ..rpc::PutRequest::default()
            };
            let written = self.runtime.block_on(async {
                let mut client = Client::connect(&self.cluster.endpoint(at)).await?;
                anyhow::Ok(client.kv.put(limited(Request::new(put))).await?)
            });
            match written {
                Ok(_) => break,
                Err(error) => ensure!(wait::now() < end, "{key} through m{at}: {error:#}"),
            }
        }
        self.kept += 1;
        Ok(())
    }

    fn ask(&self, at: usize) -> Result<Vec<String>> {
        let endpoint = self.cluster.endpoint(at);
        let other = (at + 1) % self.members.len();
        let member = *self.members.get(other).context("no such member")?;
        self.runtime
            .block_on(asked::everything(&endpoint, self.lease, member))
    }

    /// Waits until the member at `at` knows that nobody leads.
    fn wait_leaderless(&self, at: usize) -> Result<()> {
        let endpoint = self.cluster.endpoint(at);
        wait::until("nobody leads", wait::READY_MAX, || {
            let said = self.runtime.block_on(status(&endpoint));
            Ok(said.filter(|said| said.leader == 0).map(drop))
        })
    }

    /// Every acknowledged write is at every member.
    fn assert_kept(&self) -> Result<()> {
        for at in 0..self.cluster.size() {
            let range = rpc::RangeRequest {
                key: b"kept/".to_vec().into(),
                range_end: b"kept0".to_vec().into(),
                count_only: true,
                ..rpc::RangeRequest::default()
            };
            let count = self.runtime.block_on(async {
                let mut client = Client::connect(&self.cluster.endpoint(at)).await?;
                let answer = client.kv.range(limited(Request::new(range))).await?;
                anyhow::Ok(answer.into_inner().count)
            })?;
            let expected = i64::try_from(self.kept)?;
            ensure!(count == expected, "m{at} has {count} of {expected} writes");
        }
        Ok(())
    }
}

/// Loses the leader and as many followers as leave a quorum, then one member more; then all come
/// back. What clients were told on the way.
fn lose(peers: &Peers, kind: Kind, size: usize) -> Result<Vec<String>> {
    let mut losing = Losing::start(peers, kind, size)?;
    losing.write(0)?;
    let leader = losing.cluster.leader()?;
    let minority = (size - 1) / 2;
    let order: Vec<usize> = (0..size).map(|step| (leader + step) % size).collect();
    let (lost, left) = order.split_at(minority);
    for at in lost {
        losing.cluster.kill(*at)?;
    }
    let mut told = Vec::new();
    for at in left {
        losing.write(*at)?;
    }
    let first = *left.first().context("nobody is left")?;
    told.push("--- a minority is lost".to_owned());
    told.extend(losing.ask(first)?);
    // The one that leads by now: those that are left follow nobody.
    let next = losing.cluster.leader()?;
    losing.cluster.kill(next)?;
    let survivor = left.iter().copied().find(|at| *at != next);
    let survivor = survivor.context("nobody survives")?;
    losing.wait_leaderless(survivor)?;
    told.push("--- the majority is lost".to_owned());
    told.extend(losing.ask(survivor)?);
    let mut back = lost.to_vec();
    back.push(next);
    losing.cluster.restart_all(&back)?;
    for at in 0..size {
        losing.write(at)?;
    }
    // etcd does not trust connections at once.
    wait::pause(TRUSTED_AFTER);
    told.push("--- all are back".to_owned());
    told.extend(losing.ask(survivor)?);
    losing.assert_kept()?;
    Ok(told)
}

fn compare_losses(size: usize) -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let real = lose(&peers, Kind::Etcd, size)?;
    let ours = lose(&peers, our_kind(), size)?;
    let differ: Vec<String> = real
        .iter()
        .zip(&ours)
        .filter(|(real, ours)| real != ours)
        .map(|(real, ours)| format!("etcd: {real}\nours: {ours}"))
        .collect();
    ensure!(real == ours, "{}\netcd saw {real:#?}", differ.join("\n"));
    Ok(())
}

/// Half a minute each: two clusters, and twice the seven seconds after which a call is given up.
#[test]
fn clients_of_three_members_see_what_etcds_see_when_one_is_lost_and_then_another() -> Result<()> {
    compare_losses(3)
}

#[test]
fn clients_of_five_members_see_what_etcds_see_when_two_are_lost_and_then_a_third() -> Result<()> {
    compare_losses(5)
}

/// Ten seconds.
#[test]
fn a_cluster_that_was_down_as_a_whole_has_all_that_it_acknowledged() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut losing = Losing::start(&peers, our_kind(), 3)?;
    for at in 0..3 {
        losing.write(at)?;
    }
    let all = [0, 1, 2];
    for at in all {
        losing.cluster.stop(at)?;
    }
    losing.cluster.restart_all(&all)?;
    losing.write(1)?;
    losing.assert_kept()?;
    // Ended as by a loss of power of the whole rack, and the last one that led comes up last.
    let leader = losing.cluster.leader()?;
    for at in all {
        losing.cluster.kill(at)?;
    }
    let others: Vec<usize> = all.into_iter().filter(|at| *at != leader).collect();
    losing.cluster.restart_all(&others)?;
    losing.write(others[0])?;
    losing.cluster.restart(leader)?;
    losing.write(leader)?;
    losing.assert_kept()
}
