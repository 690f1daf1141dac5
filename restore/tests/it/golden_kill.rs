//! A restore that is killed at any moment leaves either nothing at the target or all of it.
#![expect(
    clippy::unwrap_used,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_proto::etcd::rpc::RangeRequest;
use holdfast_restore::etcd_datadir::write_etcd_datadir;
use holdfast_restore::store_datadir::write_store_datadir;
use holdfast_store::apply::NoEvents;
use holdfast_store::bolt::FileSource;
use holdfast_store::datadir::bootstrap::{Changes, NewCluster};
use holdfast_store::etcd_file::EtcdFile;
use holdfast_store::member::{Member, MemberOptions};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::Instant;

use super::long::rounds;
use crate::golden_datadir::{plan, source};

const TARGET: &str = "HOLDFAST_TEST_RESTORE_TARGET";
const KIND: &str = "HOLDFAST_TEST_RESTORE_KIND";
const FILE: &str = "v3.7.3/alarm";
const PEER: &str = "http://127.0.0.1:23802";
/// The revision of the file, and what is added.
const REVISION: i64 = 1_000_000_030;

/// For which store a directory is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Etcd,
    Holdfast,
}

impl Kind {
    fn restore(self, target: &Path) {
        match self {
            Self::Etcd => {
                write_etcd_datadir(&source(FILE), &plan(target)).unwrap();
            }
            Self::Holdfast => {
                let cluster = NewCluster::single("m0", &[PEER.to_owned()], "killed");
                let changes = Changes {
                    bump: 1_000_000_000,
                    mark_compacted: true,
                    clear_alarms: true,
                };
                write_store_datadir(target, &source(FILE), &cluster, changes).unwrap();
            }
        }
    }

    /// Asserts that a finished directory is there.
    async fn assert_whole(self, target: &Path) {
        match self {
            Self::Etcd => {
                let database = FileSource::open(&target.join("member/snap/db")).unwrap();
                let file = EtcdFile::open(database).unwrap();
                assert!(file.check().is_clean());
                assert_eq!(file.revision().unwrap(), REVISION);
                let log = target.join("member/wal/0000000000000000-0000000000000000.wal");
                assert_eq!(fs::metadata(log).unwrap().len(), 64_000_000);
                let beside = fs::read_dir(target.join("member/snap")).unwrap();
                assert_eq!(beside.count(), 2);
            }
            Self::Holdfast => {
                let options = MemberOptions {
                    peer_urls: vec![PEER.to_owned()],
                    log_segment_bytes: 1 << 20,
                    reserve_bytes: 1 << 20,
                    ..MemberOptions::new("m0", target)
                };
                let member = Member::start(options, Arc::new(NoEvents)).await.unwrap();
                assert_eq!(member.state().revision(), REVISION);
                let all = RangeRequest {
                    key: Bytes::from_static(b"\0"),
                    range_end: Bytes::from_static(b"\0"),
                    ..RangeRequest::default()
                };
                assert_eq!(member.state().range(&all).unwrap().count, 29);
                member.stop().await.unwrap();
            }
        }
    }
}

/// Not a test of its own: the process that is killed runs only this.
#[test]
fn child_restores_into_the_target_it_is_given() {
    let Some(target) = std::env::var_os(TARGET) else {
        return;
    };
    let is_etcd = std::env::var(KIND).unwrap() == "Etcd";
    let kind = if is_etcd { Kind::Etcd } else { Kind::Holdfast };
    kind.restore(Path::new(&target));
}

fn spawn(kind: Kind, target: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "golden_kill::child_restores_into_the_target_it_is_given",
        ])
        .env(TARGET, target)
        .env(KIND, format!("{kind:?}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

async fn nothing_or_everything(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("new");
    let began = Instant::now();
    assert!(spawn(kind, &target).wait().unwrap().success());
    let mut span = began.elapsed().mul_f64(1.2);
    kind.assert_whole(&target).await;
    fs::remove_dir_all(&target).unwrap();

    let mut random = StdRng::seed_from_u64(9);
    let (mut nothing, mut everything) = (0, 0);
    let rounds = rounds(30, 100);
    for _ in 0..rounds {
        let mut child = spawn(kind, &target);
        // The moment is the point: anywhere within the run, which takes as long as the machine
        // has other things to do. The span follows, so that both ends are seen.
        let moment = random.random_range(Duration::ZERO..span);
        tokio::time::sleep(moment).await;
        child.kill().unwrap();
        child.wait().unwrap();
        if target.exists() {
            kind.assert_whole(&target).await;
            fs::remove_dir_all(&target).unwrap();
            everything += 1;
            span = span.mul_f64(0.85).max(moment / 2);
        } else {
            nothing += 1;
            span = span.mul_f64(1.05);
        }
    }
    assert_eq!(nothing + everything, rounds);
    assert!(
        nothing > 0 && everything > 0,
        "{kind:?}: nothing {nothing} times, everything {everything} times"
    );
    kind.restore(&target);
    kind.assert_whole(&target).await;
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "leftovers are removed");
}

#[tokio::test]
async fn a_restore_for_etcd_killed_at_any_moment_leaves_nothing_or_everything() {
    nothing_or_everything(Kind::Etcd).await;
}

#[tokio::test]
async fn a_restore_for_our_store_killed_at_any_moment_leaves_nothing_or_everything() {
    nothing_or_everything(Kind::Holdfast).await;
}
