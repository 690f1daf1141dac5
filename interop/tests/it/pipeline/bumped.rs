//! A cluster that was just restored with a bump stands exactly at its compaction, before anybody
//! writes. Its backup is compared with the source's hash all the same.

use anyhow::Result;
use holdfast_interop::client::{Client, limited};
use holdfast_interop::etcdctl::Etcdctl;
use holdfast_interop::peers::Peers;
use holdfast_interop::ports;
use holdfast_interop::server::{Kind, Server, ServerOptions};
use holdfast_policies::Level;
use holdfast_restore::manifest::SourceHash;
use holdfast_restore::{EtcdSource, EtcdSpec};

use super::stage::{Place, Stage};
use crate::offline::{self, Restored, Tool};
use crate::snapshots::fill;

/// How far the revision jumps.
const BUMP: i64 = 1_000_000;

/// Backs up the server and says the level proven, and whether the source's hash was told.
async fn level(stage: &Stage, server: &Server) -> Result<(Option<Level>, bool)> {
    let etcd = EtcdSource::new(EtcdSpec::at([server.endpoint()]))?;
    let captured = stage.capture(&etcd).await?;
    let content = &captured.manifest.content;
    assert_eq!(
        content.compact_revision, content.revision,
        "nobody has written yet"
    );
    let proof = stage.verify(captured.manifest.id, &stage.keys()?).await?;
    assert_eq!(proof.flaws, [], "{proof:?}");
    let is_told = matches!(captured.manifest.source_hash, SourceHash::Told { .. });
    Ok((proof.level, is_told))
}

async fn bumped(tool: Tool, kind: Kind) -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let origin = Server::start(&peers, Kind::Etcd)?;
    let revision = fill(&origin, 33).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("snapshot.db");
    let tool_words = ["snapshot", "save", &file.to_string_lossy()];
    Etcdctl::new(&peers, &origin.endpoint())
        .run(&tool_words)?
        .success()?;
    let data_dir = folder.path().join("data");
    let peer_port = ports::free()?;
    let target = Restored {
        data_dir: &data_dir,
        peer_port,
        bump: Some(u64::try_from(BUMP)?),
    };
    offline::restore(&peers, tool, &file, &target)?;
    let options = ServerOptions::new(kind).data_dir(&data_dir, peer_port);
    let server = Server::start_with(&peers, options)?;

    let stage = Stage::new(&peers, Place::Local).await?;
    assert_eq!(level(&stage, &server).await?, (Some(Level::L2), true));
    // What it remembers of the compaction is gone after a restart, and it still compares.
    let server = server.restart()?;
    assert_eq!(level(&stage, &server).await?, (Some(Level::L2), true));

    // The same state without a bump: compacted at the newest revision.
    let mut client = Client::connect(&server.endpoint()).await?;
    let put = holdfast_proto::etcd::rpc::PutRequest {
        key: "after".into(),
        value: "v".into(),
        ..Default::default()
    };
    let answer = client.kv.put(limited(tonic::Request::new(put))).await?;
    let newest = answer.into_inner().header.unwrap_or_default().revision;
    assert_eq!(newest, revision + BUMP + 1);
    let compact = holdfast_proto::etcd::rpc::CompactionRequest {
        revision: newest,
        physical: true,
    };
    client
        .kv
        .compact(limited(tonic::Request::new(compact)))
        .await?;
    assert_eq!(level(&stage, &server).await?, (Some(Level::L2), true));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_bumped_real_etcd_before_its_first_write_reaches_l2() -> Result<()> {
    bumped(Tool::Etcdutl, Kind::Etcd).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_our_bumped_store_before_its_first_write_reaches_l2() -> Result<()> {
    bumped(Tool::Holdfast, Kind::Holdfast).await
}
