//! etcd's Go client library sees the same from our store as from real etcd.

use anyhow::Result;
use holdfast_interop::peers::{Peer, Peers};
use holdfast_interop::run;

use crate::pair::Pair;

fn compare(scenario: &str) -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let pair = Pair::start(&peers)?;
    let saw = |endpoint: String| -> Result<String> {
        let output = run::run(peers.command(Peer::Goclient)?.args([scenario, &endpoint]))?;
        Ok(output.success()?.stdout)
    };
    let real = saw(pair.real.endpoint())?;
    let ours = saw(pair.ours.endpoint())?;
    assert!(!real.is_empty());
    assert_eq!(ours, real);
    Ok(())
}

#[test]
fn watches_of_the_go_client_see_the_same_events() -> Result<()> {
    compare("watch")
}

#[test]
fn leases_of_the_go_client_live_and_expire_alike() -> Result<()> {
    compare("lease")
}

#[test]
fn sessions_mutexes_and_elections_of_the_go_client_work() -> Result<()> {
    compare("concurrency")
}
