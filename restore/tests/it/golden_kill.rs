//! A restore that is killed at any moment leaves either nothing at the target or all of it.
#![expect(
    clippy::unwrap_used,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use holdfast_restore::etcd_datadir::write_etcd_datadir;
use holdfast_store::bolt::FileSource;
use holdfast_store::etcd_file::EtcdFile;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::golden_datadir::{plan, source};

const TARGET: &str = "HOLDFAST_TEST_RESTORE_TARGET";
const ROUNDS: u32 = 40;

/// Not a test of its own: the process that is killed runs only this.
#[test]
fn child_restores_into_the_target_it_is_given() {
    if let Some(target) = std::env::var_os(TARGET) {
        write_etcd_datadir(&source("v3.7.3/alarm"), &plan(Path::new(&target))).unwrap();
    }
}

fn is_whole(target: &Path) -> bool {
    let database = FileSource::open(&target.join("member/snap/db")).unwrap();
    let file = EtcdFile::open(database).unwrap();
    let log = target.join("member/wal/0000000000000000-0000000000000000.wal");
    file.check().is_clean()
        && file.revision().unwrap() == 1_000_000_030
        && fs::metadata(log).unwrap().len() == 64_000_000
        && fs::read_dir(target.join("member/snap")).unwrap().count() == 2
}

#[tokio::test]
async fn killed_at_any_moment_it_leaves_nothing_or_everything() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("new.etcd");
    let mut random = StdRng::seed_from_u64(9);
    let (mut nothing, mut everything) = (0, 0);
    for _ in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "golden_kill::child_restores_into_the_target_it_is_given",
            ])
            .env(TARGET, &target)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The moment is the point: anywhere within the run.
        tokio::time::sleep(Duration::from_micros(random.random_range(0..120_000))).await;
        child.kill().unwrap();
        child.wait().unwrap();
        if target.exists() {
            assert!(is_whole(&target));
            fs::remove_dir_all(&target).unwrap();
            everything += 1;
        } else {
            nothing += 1;
        }
    }
    write_etcd_datadir(&source("v3.7.3/alarm"), &plan(&target)).unwrap();
    assert!(is_whole(&target));
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "leftovers are removed"
    );
    assert_eq!(nothing + everything, ROUNDS);
}
