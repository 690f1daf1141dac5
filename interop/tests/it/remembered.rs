//! HashKV at exactly the compacted revision: etcd remembers, as long as it runs, what it hashed
//! just before a compaction, rows included that the compaction removed, and ours does the same. The
//! number is gone with the process: a file, a restart and a restore hash the rows that are left.

use anyhow::{Context as _, Result};
use holdfast_interop::client::{Client, limited};
use holdfast_interop::golden;
use holdfast_interop::peers::Peers;
use holdfast_interop::ports;
use holdfast_interop::server::{Kind, Server, ServerOptions};
use holdfast_proto::etcd::rpc;
use holdfast_store::bolt::FileSource;
use holdfast_store::etcd_file::EtcdFile;
use tonic::Request;

use crate::offline::{self, Restored, Tool};
use crate::pair::Pair;

/// The compacted revision, in the middle of the history.
const COMPACTED: i64 = 12;

async fn put(client: &mut Client, number: i64) -> Result<()> {
    let put = rpc::PutRequest {
        key: format!("key-{}", number % 5).into(),
        value: number.to_string().into(),
        ..Default::default()
    };
    client.kv.put(limited(Request::new(put))).await?;
    Ok(())
}

/// Hash and compacted revision that HashKV tells at the compacted revision.
async fn at_the_compaction(client: &mut Client) -> Result<(u32, i64)> {
    let told = client.hash_kv(COMPACTED).await?;
    Ok((told.hash, told.compact_revision))
}

/// Writes, compacts, and tells what is answered before, after, and after a restart.
async fn three_answers(server: Server) -> Result<[(u32, i64); 3]> {
    let mut client = Client::connect(&server.endpoint()).await?;
    for number in 0..20 {
        put(&mut client, number).await?;
    }
    let before = at_the_compaction(&mut client).await?;
    let compact = rpc::CompactionRequest {
        revision: COMPACTED,
        physical: true,
    };
    client.kv.compact(limited(Request::new(compact))).await?;
    let after = at_the_compaction(&mut client).await?;
    let server = server.restart()?;
    let mut client = Client::connect(&server.endpoint()).await?;
    Ok([before, after, at_the_compaction(&mut client).await?])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hash_before_a_compaction_is_remembered_until_a_restart() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let pair = Pair::start(&peers)?;
    let [before, after, restarted] = three_answers(pair.real).await?;
    assert_eq!(before.1, -1);
    assert_eq!(after, before, "remembered");
    assert_eq!(restarted.1, COMPACTED);
    assert_ne!(restarted.0, before.0, "the removed rows are gone");
    let ours = three_answers(pair.ours).await?;
    assert_eq!(ours, [before, after, restarted]);
    Ok(())
}

/// The golden files list three such numbers, of `basic`; nothing in the files can give them. What
/// an etcd that starts from the file says is what we compute from it.
#[tokio::test(flavor = "multi_thread")]
async fn a_golden_file_served_by_real_etcd_hashes_the_rows_that_are_left() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    for version in ["v3.5.35", "v3.6.16", "v3.7.3"] {
        let path = golden::snapshot(version, "basic");
        let file = EtcdFile::open(FileSource::open(&path)?)?;
        let compacted = file.compact_revision()?;
        let facts = golden::facts(version, "basic")?;
        let listed = facts["hashkv"]
            .as_array()
            .and_then(|list| list.iter().find(|one| one["asked"] == compacted))
            .context("no hash at the compacted revision")?;
        assert_eq!(listed["compact_revision"], -1, "{version}: remembered");

        let folder = tempfile::tempdir()?;
        let target = Restored {
            data_dir: &folder.path().join("data"),
            peer_port: ports::free()?,
            bump: None,
        };
        offline::restore(&peers, Tool::Etcdutl, &path, &target)?;
        let options = ServerOptions::new(Kind::Etcd).data_dir(target.data_dir, target.peer_port);
        let server = Server::start_with(&peers, options)?;
        let mut client = Client::connect(&server.endpoint()).await?;
        let told = client.hash_kv(compacted).await?;
        let computed = file.hash_kv(compacted)?;
        assert_eq!(told.hash, computed.hash, "{version}");
        assert_eq!(told.compact_revision, compacted, "{version}");
        assert_ne!(listed["hash"], told.hash, "{version}");
    }
    Ok(())
}
