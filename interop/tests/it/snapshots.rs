//! Snapshots cross over both ways: what one program saved the other restores and serves.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context as _, Result};
use holdfast_interop::client::{Client, limited};
use holdfast_interop::etcdctl::Etcdctl;
use holdfast_interop::peers::{Peer, Peers};
use holdfast_interop::server::{Kind, Server, ServerOptions};
use holdfast_interop::{ports, run};
use tonic::Request;

use crate::observe::{assert_same, observe};
use crate::offline::{self, Restored, Tool};
use crate::pair::our_kind;
use crate::requests::{Call, Calls};

/// Enough calls for deletions, transactions, leases and compactions to be in the history.
const CALLS: usize = 300;

/// Gives `server` a random history and further keys, and tells its revision.
pub(crate) async fn fill(server: &Server, seed: u64) -> Result<i64> {
    fill_behind(server, seed, &AtomicI64::new(i64::MAX)).await
}

/// The same, with no compaction beyond what `read` says that a reader has.
pub(crate) async fn fill_behind(server: &Server, seed: u64, read: &AtomicI64) -> Result<i64> {
    let mut client = Client::connect(&server.endpoint()).await?;
    let mut calls = Calls::new(seed);
    for _ in 0..CALLS {
        // Refused calls are part of a history too.
        let revision = match calls.draw() {
            Call::Put(call) => header(client.kv.put(limited(Request::new(call))).await, |a| {
                a.header
            }),
            Call::Delete(call) => header(
                client.kv.delete_range(limited(Request::new(call))).await,
                |a| a.header,
            ),
            Call::Txn(call) => header(client.kv.txn(limited(Request::new(call))).await, |a| {
                a.header
            }),
            Call::Compact(call) if call.revision > read.load(Ordering::Relaxed) => None,
            Call::Compact(call) => {
                header(client.kv.compact(limited(Request::new(call))).await, |a| {
                    a.header
                })
            }
            Call::Grant(call) => header(
                client.lease.lease_grant(limited(Request::new(call))).await,
                |a| a.header,
            ),
            Call::Revoke(call) => header(
                client.lease.lease_revoke(limited(Request::new(call))).await,
                |a| a.header,
            ),
            Call::Range(_) => None,
        };
        calls.saw(revision);
    }
    // Many keys and large values, so that the file has branch pages and overflow pages.
    let large = vec![b'x'; 40_000];
    for i in 0..600 {
        let value = if i % 100 == 0 {
            large.clone()
        } else {
            vec![b'y'; i]
        };
        let put = holdfast_proto::etcd::rpc::PutRequest {
            key: format!("many/{i:04}").into(),
            value: value.into(),
            ..Default::default()
        };
        calls.saw(header(
            client.kv.put(limited(Request::new(put))).await,
            |a| a.header,
        ));
    }
    Ok(calls.revision())
}

fn header<T>(
    answer: Result<tonic::Response<T>, tonic::Status>,
    take: impl Fn(T) -> Option<holdfast_proto::etcd::rpc::ResponseHeader>,
) -> Option<i64> {
    answer
        .ok()
        .and_then(|answer| take(answer.into_inner()))
        .map(|header| header.revision)
}

/// Restores `file` with `tool` and serves it with `kind`; gives what a client then sees.
async fn serve(
    peers: &Peers,
    tool: Tool,
    kind: Kind,
    file: &Path,
    bump: Option<u64>,
    old: &[i64],
) -> Result<Vec<String>> {
    let folder = tempfile::tempdir()?;
    let data_dir = folder.path().join("data");
    let peer_port = ports::free()?;
    let target = Restored {
        data_dir: &data_dir,
        peer_port,
        bump,
    };
    offline::restore(peers, tool, file, &target)?;
    let options = ServerOptions::new(kind).data_dir(&data_dir, peer_port);
    let server = Server::start_with(peers, options)?;
    observe(&server.endpoint(), old).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_our_store_is_restored_and_served_by_real_etcd() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let ours = Server::start(&peers, our_kind())?;
    let revision = fill(&ours, 7).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("snapshot.db");
    let path = file.to_string_lossy();
    let tool = Etcdctl::new(&peers, &ours.endpoint());
    let saved = tool.run(&["snapshot", "save", &path])?.success()?;
    assert!(
        saved.stdout.contains("Snapshot saved at"),
        "{}",
        saved.stdout
    );

    run::run(peers.command(Peer::Bbolt)?.arg("check").arg(&file))?.success()?;
    let status = offline::status(&peers, Tool::Etcdutl, &file)?;
    assert_eq!(status["revision"], revision);
    assert_eq!(offline::status(&peers, Tool::Holdfast, &file)?, status);

    let old = [1, revision - 5];
    let ours_saw = observe(&ours.endpoint(), &old).await?;
    let real_saw = serve(&peers, Tool::Etcdutl, Kind::Etcd, &file, None, &old).await?;
    assert_same(&ours_saw, &real_saw);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_real_etcd_is_restored_and_served_by_our_store() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let real = Server::start(&peers, Kind::Etcd)?;
    let revision = fill(&real, 8).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("snapshot.db");
    let tool = Etcdctl::new(&peers, &real.endpoint());
    tool.run(&["snapshot", "save", &file.to_string_lossy()])?
        .success()?;

    let status = offline::status(&peers, Tool::Etcdutl, &file)?;
    assert_eq!(offline::status(&peers, Tool::Holdfast, &file)?, status);

    let old = [1, revision - 5];
    let real_saw = observe(&real.endpoint(), &old).await?;
    let ours_saw = serve(&peers, Tool::Holdfast, Kind::Holdfast, &file, None, &old).await?;
    assert_same(&ours_saw, &real_saw);
    let again = serve(&peers, Tool::HoldfastForEtcd, Kind::Etcd, &file, None, &old).await?;
    assert_same(&again, &real_saw);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_snapshot_of_a_store_under_writes_is_of_one_moment() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let ours = Server::start(&peers, our_kind())?;
    fill(&ours, 9).await?;
    let mut client = Client::connect(&ours.endpoint()).await?;
    // Each transaction writes both keys; a snapshot between two of them shows both or none.
    let mut writer = tokio::task::JoinSet::new();
    writer.spawn(async move {
        for i in 0..2_000 {
            let put = |key: &str| holdfast_proto::etcd::rpc::RequestOp {
                request: Some(holdfast_proto::etcd::rpc::request_op::Request::RequestPut(
                    holdfast_proto::etcd::rpc::PutRequest {
                        key: key.to_owned().into(),
                        value: i.to_string().into(),
                        ..Default::default()
                    },
                )),
            };
            let pair = holdfast_proto::etcd::rpc::TxnRequest {
                success: vec![put("left"), put("right")],
                ..Default::default()
            };
            client.kv.txn(limited(Request::new(pair))).await?;
        }
        Ok::<(), tonic::Status>(())
    });
    let folder = tempfile::tempdir()?;
    let tool = Etcdctl::new(&peers, &ours.endpoint());
    for number in 0..3 {
        let file = folder.path().join(format!("{number}.db"));
        tool.run(&["snapshot", "save", &file.to_string_lossy()])?
            .success()?;
        run::run(peers.command(Peer::Bbolt)?.arg("check").arg(&file))?.success()?;
        let lines = serve(&peers, Tool::Etcdutl, Kind::Etcd, &file, None, &[]).await?;
        let of = |key: &str| {
            let line = lines
                .iter()
                .find(|line| line.starts_with(&format!("b\"{key}\" ")));
            line.map(|line| line.replace(key, ""))
        };
        assert_eq!(of("left"), of("right"), "snapshot {number}");
    }
    writer.join_next().await.context("there is a writer")???;
    Ok(())
}
