//! What monitors, load balancers and start scripts see of the process, beside real etcd.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::client::{Client, limited};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::peers::{Peer, Peers};
use holdfast_interop::server::{Kind, Server};
use holdfast_interop::{holdfast, http};
use holdfast_proto::etcd::rpc;
use holdfast_proto::grpc::health::health_client::HealthClient;
use holdfast_proto::grpc::health::{HealthCheckRequest, HealthListRequest};
use tokio::time::{Instant, sleep};
use tonic::Request;
use tonic::transport::Endpoint;

use crate::pair::Pair;

/// How long the loss of a member may take to be counted.
const PAGE_MAX: Duration = Duration::from_mins(1);

/// A few calls of each kind, so that metrics with labels have samples.
async fn use_a_little(server: &Server) -> Result<()> {
    let mut client = Client::connect(&server.endpoint()).await?;
    let put = rpc::PutRequest {
        key: "k".into(),
        value: "v".into(),
        ..Default::default()
    };
    client.kv.put(limited(Request::new(put))).await?;
    let range = rpc::RangeRequest {
        key: "k".into(),
        ..Default::default()
    };
    client.kv.range(limited(Request::new(range))).await?;
    let grant = rpc::LeaseGrantRequest { ttl: 60, id: 0 };
    client
        .lease
        .lease_grant(limited(Request::new(grant)))
        .await?;
    let defragment = Request::new(rpc::DefragmentRequest {});
    client.maintenance.defragment(limited(defragment)).await?;
    Ok(())
}

/// `name type` of each metric on the page.
fn families(page: &str) -> Vec<String> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut families: Vec<String> = lines.map(str::to_owned).collect();
    families.sort_unstable();
    families
}

/// The families of a member of three, one of which was lost, once `names` are among them.
async fn families_of_peers(peers: &Peers, kind: Kind, names: &[&str]) -> Result<Vec<String>> {
    let mut cluster = Cluster::start(peers, kind, 3, &[])?;
    cluster.kill(2)?;
    let end = Instant::now() + PAGE_MAX;
    loop {
        let (_, page) = http::get(cluster.address(0), "/metrics")?;
        let found = families(&page);
        let has = |name: &&str| found.iter().any(|family| family.starts_with(*name));
        if names.iter().all(has) {
            return Ok(found);
        }
        let missing: Vec<_> = names.iter().filter(|name| !has(name)).collect();
        ensure!(Instant::now() < end, "{kind:?} has no {missing:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn every_metric_of_other_members_that_etcd_has_is_of_the_same_type() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    // Those of snapshots are there after one, and etcd's cannot be told to send one at will.
    let metrics = holdfast_store::metrics::METRICS.iter();
    let (listed, names): (Vec<_>, Vec<_>) = metrics
        .filter(|metric| metric.is_of_other_members() && !metric.name.contains("snapshot"))
        .map(|metric| {
            (
                format!("{} {}", metric.name, metric.kind.name()),
                metric.name,
            )
        })
        .unzip();
    assert_eq!(listed.len(), 6);
    for kind in [Kind::Etcd, Kind::Holdfast] {
        let found = families_of_peers(&peers, kind, &names).await?;
        for family in &listed {
            assert!(
                found.contains(family),
                "{kind:?} has no {family}: {found:#?}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_metric_of_ours_that_etcd_has_is_of_the_same_type() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    // With the metrics that are only there on request.
    let pair = Pair::start_with(&peers, &["--metrics=extensive"])?;
    let mut pages = Vec::new();
    for server in [&pair.real, &pair.ours] {
        use_a_little(server).await?;
        let (code, page) = http::get(server.address(), "/metrics")?;
        assert_eq!(code, 200);
        pages.push(families(&page));
    }
    let listed: Vec<String> = holdfast_store::metrics::METRICS
        .iter()
        .filter(|metric| !metric.is_of_other_members())
        .map(|metric| format!("{} {}", metric.name, metric.kind.name()))
        .collect();
    assert_eq!(pages[1], listed, "the page is not the documented list");
    for family in listed
        .iter()
        .filter(|family| !family.starts_with("holdfast_"))
    {
        assert!(
            pages[0].contains(family),
            "etcd has no {family}:\n{:#?}",
            pages[0]
        );
    }
    Ok(())
}

#[tokio::test]
async fn the_health_service_answers_as_etcds() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let pair = Pair::start(&peers)?;
    let mut answers = Vec::new();
    for server in [&pair.real, &pair.ours] {
        let channel = Endpoint::from_shared(server.endpoint())?.connect().await?;
        let mut health = HealthClient::new(channel);
        let mut lines = Vec::new();
        for service in ["", "etcdserverpb.KV", "nobody"] {
            let service = service.to_owned();
            let request = HealthCheckRequest { service };
            let checked = health.check(limited(Request::new(request.clone()))).await;
            lines.push(match checked {
                Ok(answer) => format!("{:?}", answer.into_inner()),
                Err(status) => format!("{:?} {}", status.code(), status.message()),
            });
            let mut watch = health.watch(Request::new(request)).await?.into_inner();
            lines.push(format!("{:?}", watch.message().await?));
        }
        let list = health
            .list(limited(Request::new(HealthListRequest {})))
            .await?;
        lines.push(format!("{:?}", list.into_inner()));
        answers.push(lines);
    }
    assert_eq!(answers[0], answers[1]);
    Ok(())
}

/// A member without what follows from its ports.
fn described(member: &serde_json::Value) -> String {
    assert!(member["id"].is_u64(), "{member}");
    let names = member.as_object().map(serde_json::Map::len);
    format!("{} {} {names:?}", member["name"], member["clientURLs"])
}

#[test]
fn the_peer_port_answers_as_etcds() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let pair = Pair::start(&peers)?;
    let look = |server: &Server| -> Result<Vec<String>> {
        let address = server.peer_address();
        let client = server.address().port().to_string();
        let mut lines = Vec::new();
        for path in [
            "/version",
            "/members",
            "/members/",
            "/",
            "/health",
            "/metrics",
        ] {
            let (code, body) = http::get(address, path)?;
            // Ids follow from the ports, which differ.
            let members: Result<Vec<serde_json::Value>, _> = serde_json::from_str(&body);
            let body = match members {
                Ok(members) => members
                    .iter()
                    .map(described)
                    .collect::<Vec<_>>()
                    .join("; ")
                    .replace(&client, "PORT"),
                Err(_) => body,
            };
            lines.push(format!("{path}: {code} {body}"));
        }
        let (code, body) = http::post(address, "/members", "{}")?;
        lines.push(format!("POST: {code} {body}"));
        Ok(lines)
    };
    assert_eq!(look(&pair.real)?, look(&pair.ours)?);
    Ok(())
}

#[test]
fn a_flag_beside_its_variable_is_refused_by_both() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let mut ours = holdfast::command()?;
    ours.arg("store");
    for mut command in [peers.command(Peer::Etcd)?, ours] {
        let output = command
            .current_dir(folder.path())
            .env("ETCD_NAME", "same")
            .arg("--name=same")
            .output()
            .context("start the program")?;
        assert!(!output.status.success());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("conflicting environment variable"), "{told}");
        assert!(told.contains("ETCD_NAME"), "{told}");
    }
    Ok(())
}
