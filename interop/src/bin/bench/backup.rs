//! A sealed backup of a real etcd, into a folder and to S3, and the same by hand: `etcdctl snapshot
//! save`, zstd and age one after the other, and restic on the saved file. Each stage alone tells
//! what cannot be avoided.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::etcdctl::Etcdctl;
use holdfast_interop::holdfast;
use holdfast_interop::peers::{Peer, Peers};
use holdfast_interop::s3::{ACCESS_KEY, S3, SECRET_KEY};
use holdfast_interop::server::{Kind, Server, ServerOptions};
use holdfast_interop::{usage, wait};
use serde_json::Value;

use crate::load;

/// Quota above any data set here.
const QUOTA: &str = "--quota-backend-bytes=17179869184";

/// Longest run of one program.
const RUN_MAX: Duration = Duration::from_hours(1);

/// How often the memory of a program is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// The bucket of the backup to S3.
const BUCKET: &str = "backups";

/// What a stage took.
struct Took {
    seconds: f64,
    peak_mib: f64,
}

/// Measures everything on `mib` MiB of values and returns a table.
pub(crate) fn measure(peers: &Peers, mib: u32) -> Result<String> {
    let server = Server::start_with(peers, ServerOptions::new(Kind::Etcd).flag(QUOTA))?;
    let keys = mib.saturating_mul(1024);
    let space = format!("--key-space-size={keys}");
    let words = [
        "put",
        "--val-size=1024",
        "--key-size=16",
        "--sequential-keys",
        &space,
    ];
    crate::progress(Kind::Etcd, "filling the data set");
    load::run(peers, &load::Servers::one(&server), 200, keys, &words)?;
    let folder = tempfile::tempdir()?;
    let mut table = "| way | seconds | peak MiB | MiB stored |\n|---|---|---|---|\n".to_owned();
    let s3 = S3::start(peers, &[BUCKET])?;
    for on_s3 in [None, Some(&s3)] {
        let (took, stored, verify) = ours(folder.path(), &server, on_s3)?;
        let place = if on_s3.is_some() { "S3" } else { "a folder" };
        row(
            &mut table,
            &format!("holdfast, to {place}, stored (L0)"),
            &took,
            stored,
        )?;
        row(
            &mut table,
            &format!("holdfast, to {place}, proven (L2)"),
            &verify,
            stored,
        )?;
    }
    by_hand(peers, &server, folder.path(), &mut table)?;
    Ok(table)
}

/// One backup that is only stored, and one that is proven as well.
fn ours(folder: &Path, server: &Server, s3: Option<&S3>) -> Result<(Took, f64, Took)> {
    let home = tempfile::tempdir_in(folder)?;
    let run = |words: &[&str]| -> Result<(Took, Vec<u8>)> {
        let mut command = holdfast::command()?;
        command.current_dir(home.path()).args(words);
        timed(&mut command, home.path())
    };
    run(&["init"])?;
    configure(home.path(), server, s3)?;
    let (took, report) = run(&[
        "backup",
        "now",
        "-w",
        "json",
        "--set",
        "policies.backup.verify=L0",
    ])?;
    let report: Value = serde_json::from_slice(&report)?;
    let stored = report
        .pointer("/0/stored_bytes")
        .and_then(Value::as_u64)
        .context("no stored_bytes")?;
    let (proven, _) = run(&["backup", "now"])?;
    Ok((took, mib(stored)?, proven))
}

fn configure(home: &Path, server: &Server, s3: Option<&S3>) -> Result<()> {
    let path = home.join("holdfast.yaml");
    let text = fs::read_to_string(&path)?;
    let source = format!(
        "    - name: bench\n      kind:\n        etcd:\n          endpoints: [\"{}\"]\n",
        server.endpoint()
    );
    let mut changed = text
        .replace("    - name: bundled\n      kind: bundled\n", &source)
        .replace("  enabled: true\n", "  enabled: false\n");
    if let Some(s3) = s3 {
        let credentials =
            format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
        fs::write(home.join("credentials"), credentials)?;
        let vault = format!(
            "    s3: {{ bucket: {BUCKET}, endpoint: \"{}\", allow_http: true, \
             credentials_file: credentials }}\n",
            s3.endpoint()
        );
        changed = changed.replace("    local:\n      path: holdfast-data/vault\n", &vault);
    }
    ensure!(
        changed != text,
        "not the configuration that was expected:\n{text}"
    );
    Ok(fs::write(path, changed)?)
}

/// Every way by hand, stage by stage.
fn by_hand(peers: &Peers, server: &Server, folder: &Path, table: &mut String) -> Result<()> {
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (file, packed, sealed) = (
        path("snap.db"),
        path("snap.db.zst"),
        path("snap.db.zst.age"),
    );
    let tool = Etcdctl::new(peers, &server.endpoint());
    let (save, _) = timed(&mut tool.command(&["snapshot", "save", &file])?, folder)?;
    row(
        table,
        "etcdctl snapshot save",
        &save,
        mib(fs::metadata(&file)?.len())?,
    )?;
    let is_there = Command::new("zstd").arg("--version").output().is_ok();
    if is_there {
        let mut zstd = Command::new("zstd");
        zstd.args(["-q", "-f", "-T1", &file, "-o", &packed]);
        let (pack, _) = timed(&mut zstd, folder)?;
        row(
            table,
            "zstd alone",
            &pack,
            mib(fs::metadata(&packed)?.len())?,
        )?;
        let mut age = peers.command(Peer::Age)?;
        age.args(["-r", RECIPIENT, "-o", &sealed, &packed]);
        let (seal, _) = timed(&mut age, folder)?;
        row(
            table,
            "age alone",
            &seal,
            mib(fs::metadata(&sealed)?.len())?,
        )?;
        let all = Took {
            seconds: save.seconds + pack.seconds + seal.seconds,
            peak_mib: save.peak_mib.max(pack.peak_mib).max(seal.peak_mib),
        };
        row(
            table,
            "by hand: save, zstd, age",
            &all,
            mib(fs::metadata(&sealed)?.len())?,
        )?;
    } else {
        writeln!(
            table,
            "| by hand: save, zstd, age | zstd is not there | | |"
        )?;
    }
    let vault = path("restic");
    let restic = |words: &[&str]| -> Result<Command> {
        let mut command = peers.command(Peer::Restic)?;
        command
            .env("RESTIC_PASSWORD", "bench")
            .env("HOME", folder)
            .args(["-r", &vault, "-q"])
            .args(words);
        Ok(command)
    };
    timed(&mut restic(&["init"])?, folder)?;
    let (backup, _) = timed(&mut restic(&["backup", &file])?, folder)?;
    let stored = usage::disk_mib(Path::new(&vault))?;
    row(table, "restic alone", &backup, stored)?;
    let all = Took {
        seconds: save.seconds + backup.seconds,
        peak_mib: save.peak_mib.max(backup.peak_mib),
    };
    row(table, "by hand: save, restic", &all, stored)
}

/// A recipient nobody has the identity of.
const RECIPIENT: &str = "age1lvyvwawkr0mcnnnncaghunadrqkmuf9e6507x9y920xxpp866cnql7dp2z";

fn row(table: &mut String, way: &str, took: &Took, stored_mib: f64) -> Result<()> {
    let (seconds, peak) = (took.seconds, took.peak_mib);
    Ok(writeln!(
        table,
        "| {way} | {seconds:.2} | {peak:.0} | {stored_mib:.0} |"
    )?)
}

fn mib(bytes: u64) -> Result<f64> {
    let kib = u32::try_from(bytes / 1024)?;
    Ok(f64::from(kib) / 1024.0)
}

/// Runs a program to its end and watches its memory.
fn timed(command: &mut Command, folder: &Path) -> Result<(Took, Vec<u8>)> {
    let (out, err) = (folder.join("out"), folder.join("err"));
    let start = wait::now();
    let mut child = command
        .stdout(fs::File::create(&out)?)
        .stderr(fs::File::create(&err)?)
        .spawn()
        .with_context(|| format!("{command:?}"))?;
    let mut peak_mib = 0.0_f64;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if let Ok(now) = usage::memory_mib(child.id(), "VmHWM") {
            peak_mib = peak_mib.max(now);
        }
        if start.elapsed() > RUN_MAX {
            child.kill()?;
        }
        wait::pause(LOOK);
    };
    let seconds = start.elapsed().as_secs_f64();
    let told = String::from_utf8_lossy(&fs::read(&err)?).into_owned();
    ensure!(status.success(), "{command:?}: {status}\n{told}");
    Ok((Took { seconds, peak_mib }, fs::read(&out)?))
}
