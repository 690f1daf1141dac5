//! A backup of either store comes back as either kind of cluster.

use anyhow::Result;
use holdfast_interop::peers::Peers;
use holdfast_interop::ports;
use holdfast_interop::server::{Kind, Server, ServerOptions};
use holdfast_policies::Level;
use holdfast_restore::plan::BUMP_FLOOR;
use holdfast_restore::{EtcdSource, EtcdSpec, Pick, RestoreOptions, Target};

use super::stage::{Place, Stage};
use crate::observe::observe;
use crate::snapshots::fill;

/// Keys, leases and alarms, without what a bump changes on purpose.
fn content(lines: &[String]) -> Vec<&String> {
    lines
        .iter()
        .filter(|line| line.contains("create=") || line.starts_with("lease "))
        .collect()
}

async fn round_trip(place: Place, source: Kind) -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let server = Server::start(&peers, source)?;
    let stage = Stage::new(&peers, place).await?;
    let revision = fill(&server, 21).await?;
    let etcd = EtcdSource::new(EtcdSpec::at([server.endpoint()]))?;
    let captured = stage.capture(&etcd).await?;
    assert_eq!(captured.manifest.content.revision, revision);
    let keys = stage.keys()?;
    let proof = stage.verify(captured.manifest.id, &keys).await?;
    assert_eq!(proof.level, Some(Level::L2), "{proof:?}");
    assert_eq!(proof.flaws, []);
    let before = observe(&server.endpoint(), &[]).await?;

    for (target, kind) in [
        (Target::Etcd, Kind::Etcd),
        (Target::Holdfast, Kind::Holdfast),
    ] {
        let data_dir = stage.path(&format!("restored-{kind:?}"));
        let peer_port = ports::free()?;
        let peer = format!("http://127.0.0.1:{peer_port}");
        let options = RestoreOptions::single(target, data_dir.clone(), "m0", &peer);
        let restored = stage.restore(Pick::Latest, &options, &keys).await?;
        assert!(restored.revision >= revision + BUMP_FLOOR, "{restored:?}");
        let again = stage.restore(Pick::Latest, &options, &keys).await;
        assert!(again.is_err(), "an existing directory was overwritten");

        let options = ServerOptions::new(kind).data_dir(&data_dir, peer_port);
        let server = Server::start_with(&peers, options)?;
        let after = observe(&server.endpoint(), &[revision]).await?;
        assert_eq!(content(&after), content(&before), "{target:?}");
        let first = after.first().map(String::as_str).unwrap_or_default();
        assert!(first.contains(&restored.revision.to_string()), "{first}");
        let compacted = format!("compact_revision={}", restored.revision);
        assert!(
            after.iter().any(|line| line.contains(&compacted)),
            "{after:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_real_etcd_in_a_local_vault_restores_to_both_targets() -> Result<()> {
    round_trip(Place::Local, Kind::Etcd).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_real_etcd_on_s3_restores_to_both_targets() -> Result<()> {
    round_trip(Place::S3, Kind::Etcd).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_our_store_on_s3_restores_to_both_targets() -> Result<()> {
    round_trip(Place::S3, Kind::Holdfast).await
}
