//! A full disk: reads go on, writes are refused, and come back by themselves with the space.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use holdfast_store::Error;
use holdfast_store::apply::NoEvents;
use holdfast_store::member::{Member, MemberOptions};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::member::{get, options, put};

/// A small file system; unmounted when dropped.
struct SmallDisk {
    at: PathBuf,
    _dir: TempDir,
}

impl SmallDisk {
    /// `None` where this user may not mount; a failure where it must work.
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    fn mount(megabytes: u32) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let at = dir.path().join("disk");
        std::fs::create_dir(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(&at)
            .output();
        let reason = match mounted {
            Ok(output) if output.status.success() => return Some(Self { at, _dir: dir }),
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        assert!(
            std::env::var_os("CI").is_none(),
            "cannot mount a small file system: {reason}"
        );
        eprintln!("SKIPPED: cannot mount a small file system: {reason}");
        None
    }

    /// Takes all the space that is left.
    fn fill(&self) {
        let filler = std::fs::File::create(self.filler()).unwrap();
        let chunk = vec![1; 64 << 10];
        let mut at = 0;
        let mut step = chunk.len();
        while step > 0 {
            match filler.write_at(&chunk[..step], at) {
                Ok(written) if written > 0 => at += u64::try_from(written).unwrap(),
                _ => step /= 2,
            }
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.at).status();
        assert!(
            unmounted.is_ok_and(|status| status.success()),
            "the small disk stays mounted"
        );
    }
}

fn small_options(dir: &Path) -> MemberOptions {
    MemberOptions {
        log_segment_bytes: 4 << 20,
        reserve_bytes: 2 << 20,
        ..options(dir)
    }
}

async fn write_until_refused(member: &Member, prefix: &str) -> (u32, Error) {
    let value = vec![5; 32 << 10];
    for at in 0..10_000 {
        match member.propose(put(&format!("{prefix}-{at}"), &value)).await {
            Ok(_) => {}
            Err(error) => return (at, error),
        }
    }
    panic!("the disk never filled up");
}

async fn wait_until_writable(member: &Member) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match member.propose(put("again", b"1")).await {
            Ok(_) => return,
            Err(error) => assert!(Instant::now() < deadline, "still refused: {error}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_until_the_disk_is_full_refuses_writes_and_serves_reads() {
    let Some(disk) = SmallDisk::mount(64) else {
        return;
    };
    let member = Member::start(small_options(&disk.at), Arc::new(NoEvents))
        .await
        .unwrap();
    let (written, error) = write_until_refused(&member, "a").await;
    assert!(matches!(error, Error::NoSpace), "{error:?}");
    assert!(
        written > 100,
        "only {written} writes of 32 KiB fit on 64 MiB"
    );
    for at in [0, written / 2, written - 1] {
        assert_eq!(
            get(&member, &format!("a-{at}"))
                .await
                .map(|value| value.len()),
            Some(32 << 10)
        );
    }
    let mut snapshot = Vec::new();
    member
        .state()
        .export()
        .unwrap()
        .write_to(&mut snapshot)
        .unwrap();
    assert!(snapshot.len() > 1 << 20);
    let status = member.status();
    assert!(
        status.fatal.is_none() && !status.errors.is_empty(),
        "{status:?}"
    );
    member.stop().await.unwrap();
    // Full as it is, it opens and can be read.
    let member = Member::start(small_options(&disk.at), Arc::new(NoEvents))
        .await
        .unwrap();
    assert_eq!(
        get(&member, "a-0").await.map(|value| value.len()),
        Some(32 << 10)
    );
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_filled_by_others_stops_writes_until_there_is_space_without_a_restart() {
    let Some(disk) = SmallDisk::mount(96) else {
        return;
    };
    let member = Member::start(small_options(&disk.at), Arc::new(NoEvents))
        .await
        .unwrap();
    for round in 0..3 {
        wait_until_writable(&member).await;
        member
            .propose(put(&format!("before-{round}"), b"1"))
            .await
            .unwrap();
        disk.fill();
        let (_, error) = write_until_refused(&member, &format!("full-{round}")).await;
        assert!(
            matches!(error, Error::NoSpace | Error::Timeout),
            "{error:?}"
        );
        for seen in 0..=round {
            assert!(get(&member, &format!("before-{seen}")).await.is_some());
        }
        disk.free();
    }
    wait_until_writable(&member).await;
    assert!(member.status().fatal.is_none());
    member.stop().await.unwrap();
}
