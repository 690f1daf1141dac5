//! A full disk: reads go on, writes are refused, and come back by themselves with the space.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_store::Error;
use holdfast_store::apply::NoEvents;
use holdfast_store::member::{Member, MemberOptions};
use tokio::time::{Instant, sleep};

use crate::member::{get, options, put};
use crate::small_disk::{FileSystem, SmallDisk};

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
            Err(error) => assert!(
                Instant::now() < deadline,
                "still refused: {error}; {:?}",
                member.status()
            ),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_until_the_disk_is_full_refuses_writes_and_serves_reads() {
    for kind in FileSystem::ALL {
        if let Some(disk) = SmallDisk::mount(kind, 64) {
            write_until_it_is_full(&disk).await;
        }
    }
}

async fn write_until_it_is_full(disk: &SmallDisk) {
    let member = Member::start(small_options(&disk.folder("member")), Arc::new(NoEvents))
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
    let member = Member::start(small_options(&disk.folder("member")), Arc::new(NoEvents))
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
    for kind in FileSystem::ALL {
        if let Some(disk) = SmallDisk::mount(kind, 96) {
            let others = disk.folder("others");
            stop_and_go_on(&disk, &others).await;
        }
    }
}

async fn stop_and_go_on(disk: &SmallDisk, others: &Path) {
    let member = Member::start(small_options(&disk.folder("member")), Arc::new(NoEvents))
        .await
        .unwrap();
    for round in 0..3 {
        wait_until_writable(&member).await;
        member
            .propose(put(&format!("before-{round}"), b"1"))
            .await
            .unwrap();
        let filler = disk.fill(others);
        let (_, error) = write_until_refused(&member, &format!("full-{round}")).await;
        assert!(
            matches!(error, Error::NoSpace | Error::Timeout),
            "{error:?}"
        );
        for seen in 0..=round {
            assert!(get(&member, &format!("before-{seen}")).await.is_some());
        }
        std::fs::remove_file(filler).unwrap();
    }
    wait_until_writable(&member).await;
    assert!(member.status().fatal.is_none());
    member.stop().await.unwrap();
}
