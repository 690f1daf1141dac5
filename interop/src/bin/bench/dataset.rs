//! A large data set: memory, restart, and everything that reads all of it.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use holdfast_interop::etcdctl::Etcdctl;
use holdfast_interop::peers::{Peer, Peers};
use holdfast_interop::server::{Kind, Server, ServerOptions};
use holdfast_interop::{holdfast, ports, run, usage, wait};

use crate::figures::{Figure, Figures};
use crate::load::{self, LOAD_MAX};
use crate::{Scale, pipeline, progress};

/// Quota above any data set here, so that the default of 2 GiB is not the limit.
const QUOTA: &str = "--quota-backend-bytes=8589934592";

/// Values of 1 KiB under as many keys as the scale says.
pub(crate) fn measure(
    peers: &Peers,
    kind: Kind,
    scale: Scale,
    figures: &mut Figures,
) -> Result<()> {
    let server = Server::start_with(peers, ServerOptions::new(kind).flag(QUOTA))?;
    progress(kind, "filling the data set");
    let space = format!("--key-space-size={}", scale.keys);
    let fill = [
        "put",
        "--val-size=1024",
        "--key-size=16",
        "--sequential-keys",
        &space,
    ];
    let filled = load::run(peers, &load::Servers::one(&server), 200, scale.keys, &fill)?;
    figures.set(kind, Figure::FillRate, filled.rate);
    figures.set(
        kind,
        Figure::Memory,
        usage::memory_mib(server.process_id(), "VmRSS")?,
    );
    figures.set(
        kind,
        Figure::MemoryPeak,
        usage::memory_mib(server.process_id(), "VmHWM")?,
    );
    figures.set(kind, Figure::Disk, usage::disk_mib(server.data_dir())?);

    progress(kind, "restart");
    let (server, took) = server.restart_timed()?;
    figures.set(kind, Figure::Restart, took.as_secs_f64());

    progress(kind, "snapshot");
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("snapshot.db");
    let tool = Etcdctl::new(peers, &server.endpoint());
    let mut save = tool.command(&["snapshot", "save", &file.to_string_lossy()])?;
    figures.set(kind, Figure::SnapshotSave, seconds(&mut save)?);
    pipeline::measure(&server, figures)?;
    drop(server);
    offline(peers, kind, &file, figures)
}

/// The offline tools of each side on its own snapshot.
fn offline(peers: &Peers, kind: Kind, file: &Path, figures: &mut Figures) -> Result<()> {
    let command = || match kind {
        Kind::Etcd => peers.command(Peer::Etcdutl),
        Kind::Holdfast => holdfast::command().map(|mut command| {
            command.arg("snapshot");
            command
        }),
    };
    let snapshot = |command: &mut Command, word: &str| {
        // etcdutl has `hashkv` beside `snapshot`, we have it below.
        if kind == Kind::Etcd && word != "hashkv" {
            command.arg("snapshot");
        }
        command.arg(word).arg(file);
    };
    progress(kind, "offline tools");
    let mut status = command()?;
    snapshot(&mut status, "status");
    figures.set(kind, Figure::SnapshotStatus, seconds(&mut status)?);
    let target = tempfile::tempdir()?;
    let peer = format!("http://127.0.0.1:{}", ports::free()?);
    let mut restore = command()?;
    snapshot(&mut restore, "restore");
    restore
        .arg("--data-dir")
        .arg(target.path().join("data"))
        .args(["--name=m0", &format!("--initial-cluster=m0={peer}")])
        .arg(format!("--initial-advertise-peer-urls={peer}"));
    figures.set(kind, Figure::Restore, seconds(&mut restore)?);
    // Last: the real one changes its input.
    let mut hash = command()?;
    snapshot(&mut hash, "hashkv");
    figures.set(kind, Figure::HashKv, seconds(&mut hash)?);
    Ok(())
}

/// How long a program runs, which must succeed.
pub(crate) fn seconds(command: &mut Command) -> Result<f64> {
    let start = wait::now();
    run::run_within(command, "", LOAD_MAX)?.success()?;
    Ok(start.elapsed().as_secs_f64())
}
