//! Founders that find each other by DNS, in a namespace with a name server of the test.

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::hosts::{self, Place};
use holdfast_interop::names::{NameServer, Service};
use holdfast_interop::peers::Peers;
use holdfast_interop::server::Kind;

use super::wait_writable;
use crate::pair::our_kind;

const NAME: &str = "cluster::names::founders_meet_by_service_records_in_dns_as_etcds_do";
const ASKED: &str = "_etcd-server-blue._tcp.example.org";

/// The members as one of them lists them, ports masked.
fn listed(cluster: &Cluster, at: usize) -> Result<Vec<String>> {
    let list = cluster.ctl(at).json(&["member", "list"])?;
    let members = list["members"].as_array().context("no members")?;
    let mut lines: Vec<String> = members
        .iter()
        .map(|member| {
            let mut line = format!("{} {}", member["name"], member["peerURLs"]);
            for place in 0..cluster.size() {
                let url = cluster.peer_url(place);
                let port = url.rsplit(':').next().unwrap_or_default();
                line = line.replace(port, &format!("PORT{place}"));
            }
            line
        })
        .collect();
    lines.sort();
    Ok(lines)
}

#[test]
fn founders_meet_by_service_records_in_dns_as_etcds_do() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    if matches!(hosts::enter(&peers, NAME)?, Place::Outside) {
        return Ok(());
    }
    hosts::ask_loopback_for_names()?;
    let names = NameServer::start()?;
    let mut seen = Vec::new();
    for kind in [Kind::Etcd, our_kind()] {
        let flags = ["--discovery-srv=example.org", "--discovery-srv-name=blue"];
        let mut cluster = Cluster::plan(&peers, kind, 3, &flags)?;
        cluster.peer_host = Some("localhost".to_owned());
        let services = (0..3).map(|at| {
            let url = cluster.peer_url(at);
            let port = url.rsplit(':').next().context("no port")?.parse()?;
            anyhow::Ok(Service {
                name: ASKED.to_owned(),
                host: "localhost".to_owned(),
                port,
            })
        });
        names.know(services.collect::<Result<_>>()?);
        let before = names.asked().len();
        cluster.launch_all("")?;
        for at in 0..3 {
            wait_writable(&cluster, at)?;
        }
        let asked = names.asked().split_off(before);
        let times = asked.iter().filter(|name| *name == ASKED).count();
        ensure!(times >= 3, "{kind:?} asked for {asked:?}");
        seen.push(listed(&cluster, 0)?);
        // Once founded they need no names.
        names.know(Vec::new());
        cluster.kill(1)?;
        cluster.boot(1, "", "new")?;
        wait_writable(&cluster, 1)?;
    }
    ensure!(seen[0].len() == 3 && seen[0] == seen[1], "{seen:#?}");
    Ok(())
}
