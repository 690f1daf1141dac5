//! Several members: what operators and clients see of ours and of real etcd, and what they survive.

mod asked;
mod clocks;
mod failpoints;
mod faults;
mod go_client;
mod lifecycle;
mod load;
mod losses;
mod membership;
mod names;
mod nemesis;
mod partitions;
mod paused;
mod planted;
mod script;
mod tls;
mod transfer;
mod triggers;
mod verdict;

use std::time::Duration;

use anyhow::{Context as _, Result};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::peers::Peers;
use holdfast_interop::server::Kind;
use holdfast_interop::wait;

pub(crate) use self::faults::tell;
use self::script::{Script, assert_alike};
use crate::pair::our_kind;

/// etcd believes in a connection once it is this old.
const TRUSTED_AFTER: Duration = Duration::from_millis(5500);

/// Runs `scenario` against three members of real etcd and of ours, and compares what was seen.
fn compare(flags: &[&str], scenario: fn(&mut Cluster, &mut Script) -> Result<()>) -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut seen = Vec::new();
    for kind in [Kind::Etcd, our_kind()] {
        let mut cluster = Cluster::start(&peers, kind, 3, flags)?;
        let mut script = Script::default();
        for (name, id) in cluster.members(0)? {
            script.name(id, &name);
        }
        wait::pause(TRUSTED_AFTER);
        let done = scenario(&mut cluster, &mut script);
        done.with_context(|| script.lines().join("\n"))?;
        seen.push(script);
    }
    assert_alike(&seen[0], &seen[1]);
    Ok(())
}

/// Returns once a write through the member at `at` succeeds.
fn wait_writable(cluster: &Cluster, at: usize) -> Result<()> {
    let mut last = None;
    let waited = wait::until("a write", wait::READY_MAX, || {
        let put = cluster.ctl(at).run(&["put", "writable", "now"])?;
        let is_done = put.code == 0;
        last = Some(put);
        Ok(is_done.then_some(()))
    });
    waited.with_context(|| format!("{last:?}"))
}
