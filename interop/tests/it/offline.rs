//! The offline tools, real and ours, with the same flags.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use holdfast_interop::holdfast;
use holdfast_interop::peers::{Peer, Peers};
use holdfast_interop::run;
use holdfast_store::bolt::FileSource;
use holdfast_store::datadir::bootstrap::{Changes, NewCluster, write_data_dir};
use holdfast_store::etcd_file::EtcdFile;
use serde_json::Value;

/// The token of every restored cluster.
const TOKEN: &str = "interop";

/// Which program does the offline work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Real etcdutl, which makes data directories of real etcd.
    Etcdutl,
    /// Ours, for data directories of our store.
    Holdfast,
    /// `holdfast snapshot`, for data directories of real etcd.
    HoldfastForEtcd,
}

/// Where a restored member will be.
pub(crate) struct Restored<'a> {
    pub(crate) data_dir: &'a Path,
    pub(crate) peer_port: u16,
    /// How much to add to the revision; old revisions are compacted then.
    pub(crate) bump: Option<u64>,
}

/// `snapshot restore` of a one-member cluster named `m0`; for our own store its library call.
pub(crate) fn restore(peers: &Peers, tool: Tool, file: &Path, target: &Restored<'_>) -> Result<()> {
    let peer = format!("http://127.0.0.1:{}", target.peer_port);
    let mut command = match tool {
        Tool::Etcdutl => peers.command(Peer::Etcdutl)?,
        Tool::HoldfastForEtcd => holdfast::command()?,
        Tool::Holdfast => {
            let changes = Changes {
                bump: i64::try_from(target.bump.unwrap_or_default())?,
                mark_compacted: target.bump.is_some(),
                clear_alarms: false,
            };
            let cluster = NewCluster::single("m0", &[peer], TOKEN);
            let source = EtcdFile::open(FileSource::open(file)?)?;
            write_data_dir(target.data_dir, &source, &cluster, changes)?;
            return Ok(());
        }
    };
    command.args(["snapshot", "restore"]).arg(file);
    command.arg("--data-dir").arg(target.data_dir);
    command.arg("--name=m0");
    command.arg(format!("--initial-cluster-token={TOKEN}"));
    command.arg(format!("--initial-cluster=m0={peer}"));
    command.arg(format!("--initial-advertise-peer-urls={peer}"));
    if let Some(bump) = target.bump {
        command.arg(format!("--bump-revision={bump}"));
        command.arg("--mark-compacted");
    }
    run::run(&mut command)?.success()?;
    Ok(())
}

/// `snapshot status -w json`.
pub(crate) fn status(peers: &Peers, tool: Tool, file: &Path) -> Result<Value> {
    let mut command = match tool {
        Tool::Etcdutl => peers.command(Peer::Etcdutl)?,
        Tool::Holdfast | Tool::HoldfastForEtcd => holdfast::command()?,
    };
    command.args(["snapshot", "status", "-w", "json"]).arg(file);
    run::run(&mut command)?.json()
}

/// The program that has etcdutl's commands, and its words for `hashkv`.
fn hash_kv_words(peers: &Peers, tool: Tool) -> Result<(Command, &'static [&'static str])> {
    Ok(match tool {
        Tool::Etcdutl => (peers.command(Peer::Etcdutl)?, &["hashkv"]),
        Tool::Holdfast | Tool::HoldfastForEtcd => (holdfast::command()?, &["snapshot", "hashkv"]),
    })
}

/// What `snapshot status` and then `hashkv` print of a copy of `file`, which etcdutl changes.
pub(crate) fn printed(peers: &Peers, tool: Tool, file: &Path, form: &[&str]) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("copy.db");
    std::fs::copy(file, &copy)?;
    let mut status = match tool {
        Tool::Etcdutl => peers.command(Peer::Etcdutl)?,
        Tool::Holdfast | Tool::HoldfastForEtcd => holdfast::command()?,
    };
    status.args(["snapshot", "status"]).args(form).arg(&copy);
    let status = run::run(&mut status)?.success()?;
    let (mut hash_kv, words) = hash_kv_words(peers, tool)?;
    hash_kv.args(words).args(form).arg(&copy);
    let hash_kv = run::run(&mut hash_kv)?.success()?;
    Ok(status.stdout + &hash_kv.stdout)
}
