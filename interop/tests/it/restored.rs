//! `holdfast snapshot restore` beyond a plain data directory of etcd: a log elsewhere, our store.

use std::path::{Path, PathBuf};

use anyhow::Result;
use holdfast_interop::etcdctl::Etcdctl;
use holdfast_interop::peers::Peers;
use holdfast_interop::server::{Kind, Server, ServerOptions};
use holdfast_interop::{holdfast, ports, run};
use tempfile::TempDir;

use crate::observe::{assert_same, observe};
use crate::snapshots::fill;

/// A snapshot of a real etcd with a history, and what its clients see.
struct Origin {
    folder: TempDir,
    revision: i64,
    seen: Vec<String>,
}

impl Origin {
    async fn new(peers: &Peers) -> Result<Self> {
        let server = Server::start(peers, Kind::Etcd)?;
        let revision = fill(&server, 51).await?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("snapshot.db");
        Etcdctl::new(peers, &server.endpoint())
            .run(&["snapshot", "save", &file.to_string_lossy()])?
            .success()?;
        Ok(Self {
            seen: observe(&server.endpoint(), &[revision]).await?,
            folder,
            revision,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `holdfast snapshot restore` for a member whose peers find it at `port`.
    fn restore(&self, data_dir: &Path, port: u16, further: &[&str]) -> Result<run::Output> {
        let peer = format!("http://127.0.0.1:{port}");
        let mut command = holdfast::command()?;
        command
            .args(["snapshot", "restore"])
            .arg(self.path("snapshot.db"))
            .arg("--data-dir")
            .arg(data_dir)
            .args(["--name=m0", "--initial-cluster-token=interop"])
            .arg(format!("--initial-cluster=m0={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .args(further);
        run::run(&mut command)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_etcd_serves_a_restored_directory_whose_log_is_elsewhere() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let origin = Origin::new(&peers).await?;
    let (data_dir, wal_dir) = (origin.path("data"), origin.path("log/of/m0"));
    let wal_flag = format!("--wal-dir={}", wal_dir.display());
    let port = ports::free()?;
    origin.restore(&data_dir, port, &[&wal_flag])?.success()?;
    assert!(!data_dir.join("member/wal").exists());

    let options = ServerOptions::new(Kind::Etcd)
        .data_dir(&data_dir, port)
        .flag(&wal_flag);
    let server = Server::start_with(&peers, options)?;
    let seen = observe(&server.endpoint(), &[origin.revision]).await?;
    assert_same(&origin.seen, &seen);
    // It goes on writing there, and starts again.
    Etcdctl::new(&peers, &server.endpoint())
        .run(&["put", "after", "v"])?
        .success()?;
    let server = server.restart()?;
    let got = Etcdctl::new(&peers, &server.endpoint()).run(&["get", "after"])?;
    assert_eq!(got.success()?.stdout, "after\nv\n");
    assert!(!data_dir.join("member/wal").exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn our_store_serves_a_snapshot_restored_for_it() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let origin = Origin::new(&peers).await?;
    let data_dir = origin.path("data");
    let port = ports::free()?;
    let target = "--target=holdfast";
    origin.restore(&data_dir, port, &[target])?.success()?;
    let again = origin.restore(&data_dir, port, &[target])?;
    assert_eq!(
        again.code, 11,
        "an existing directory is refused: {again:?}"
    );
    let with_log = origin.restore(&origin.path("other"), port, &[target, "--wal-dir=log"])?;
    assert_eq!(
        with_log.code, 2,
        "our store has no such directory: {with_log:?}"
    );

    let options = ServerOptions::new(Kind::Holdfast).data_dir(&data_dir, port);
    let server = Server::start_with(&peers, options)?;
    let seen = observe(&server.endpoint(), &[origin.revision]).await?;
    assert_same(&origin.seen, &seen);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn our_store_starts_beyond_a_bump_asked_for() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let origin = Origin::new(&peers).await?;
    let data_dir = origin.path("data");
    let port = ports::free()?;
    let flags = [
        "--target=holdfast",
        "--bump-revision=1000",
        "--mark-compacted",
    ];
    let restored = origin.restore(&data_dir, port, &flags)?.success()?;
    let wanted = format!("revision  {}", origin.revision + 1000);
    assert!(restored.stdout.contains(&wanted), "{}", restored.stdout);
    let options = ServerOptions::new(Kind::Holdfast).data_dir(&data_dir, port);
    let server = Server::start_with(&peers, options)?;
    let seen = observe(&server.endpoint(), &[origin.revision]).await?;
    let first = seen.first().map(String::as_str).unwrap_or_default();
    let revision = (origin.revision + 1000).to_string();
    assert!(first.contains(&revision), "{first}");
    Ok(())
}
