//! A full disk: reads go on, writes are refused, and come back by themselves with the space.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::etcd::rpc::CompactionRequest;
use holdfast_store::Error;
use holdfast_store::apply::NoEvents;
use holdfast_store::command::Request;
use holdfast_store::member::{Member, MemberOptions};
use tokio::time::{Instant, sleep};

use crate::long::rounds;
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

/// Writes until a refusal stays: what the member gives up for a full disk is used up then.
async fn fill_for_good(member: &Member) {
    let deadline = Instant::now() + Duration::from_mins(1);
    for round in 0.. {
        write_until_refused(member, &format!("more-{round}")).await;
        let refused = Instant::now();
        while !member.status().errors.is_empty() {
            if refused.elapsed() > FULL_FOR {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        assert!(
            Instant::now() < deadline,
            "a refusal never stays: {:?}",
            member.status()
        );
    }
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
    fill_for_good(&member).await;
    assert!(member.status().fatal.is_none());
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

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_finds_the_disk_full_waits_a_moment_for_space_before_it_is_refused() {
    let Some(disk) = SmallDisk::mount(FileSystem::Tmpfs, 96) else {
        return;
    };
    let others = disk.folder("others");
    let member = Member::start(small_options(&disk.folder("member")), Arc::new(NoEvents))
        .await
        .unwrap();
    let filler = disk.fill(&others);
    let big = vec![1; 1 << 20];
    let write = member.propose(put("k", &big));
    let make_room = async {
        let deadline = Instant::now() + Duration::from_secs(20);
        while member.status().errors.is_empty() {
            assert!(Instant::now() < deadline, "{:?}", member.status());
            sleep(Duration::from_millis(5)).await;
        }
        std::fs::remove_file(filler).unwrap();
    };
    let (written, ()) = tokio::join!(write, make_room);
    written.unwrap();
    assert_eq!(get(&member, "k").await.as_deref(), Some(big.as_slice()));
    member.stop().await.unwrap();
}

const ROLE: &str = "HOLDFAST_TEST_FULL_DIR";
const KEYS: u32 = 20;
const VALUE_BYTES: usize = 256 << 10;
/// Longer than the member takes to purge its log: refused for as long, it is full of history.
const FULL_FOR: Duration = Duration::from_secs(2);

/// The value of write number `at`.
fn value(at: u32) -> Vec<u8> {
    at.to_be_bytes().repeat(VALUE_BYTES / 4)
}

/// Writes the same keys again and again until that is refused for good; the number of the newest
/// write of each key.
async fn fill_with_history(member: &Member) -> Vec<u32> {
    let mut newest = vec![0; usize::try_from(KEYS).unwrap()];
    let (mut written, mut refused_since) = (0, None);
    for _ in 0..100_000 {
        let key = written % KEYS;
        match member
            .propose(put(&format!("k{key}"), &value(written)))
            .await
        {
            Ok(_) => {
                newest[usize::try_from(key).unwrap()] = written;
                written += 1;
                refused_since = None;
            }
            Err(error) => {
                assert!(matches!(error, Error::NoSpace), "{error:?}");
                let since: &mut Instant = refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() > FULL_FOR {
                    assert!(written > 4 * KEYS, "only {written} writes fit");
                    return newest;
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
    panic!("the disk never filled up");
}

async fn assert_newest(member: &Member, newest: &[u32]) {
    for (key, at) in newest.iter().enumerate() {
        let found = get(member, &format!("k{key}")).await;
        assert!(
            found.is_some_and(|found| found == value(*at)),
            "k{key} is not as written last"
        );
    }
}

async fn compact(member: &Member) {
    let compact = CompactionRequest {
        revision: member.state().revision(),
        physical: true,
    };
    member.propose(Request::Compact(compact)).await.unwrap();
    member.compaction_finished().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_full_of_history_takes_writes_again_after_a_compaction() {
    for kind in FileSystem::ALL {
        if let Some(disk) = SmallDisk::mount(kind, 96) {
            compact_and_go_on(&disk).await;
        }
    }
}

async fn compact_and_go_on(disk: &SmallDisk) {
    let dir = disk.folder("member");
    let start = || Member::start(small_options(&dir), Arc::new(NoEvents));
    let mut member = start().await.unwrap();
    for round in 0..rounds(3, 20) {
        let newest = fill_with_history(&member).await;
        assert_newest(&member, &newest).await;
        assert!(member.status().fatal.is_none());
        if round == 1 {
            // A member that is stopped while the disk is full starts on the full disk.
            member.stop().await.unwrap();
            member = start().await.unwrap();
        }
        compact(&member).await;
        wait_until_writable(&member).await;
        assert_newest(&member, &newest).await;
        // All that was given back to the disk was free: the file can be read from its start.
        member.stop().await.unwrap();
        member = start().await.unwrap();
        assert_newest(&member, &newest).await;
    }
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_an_older_state_keeps_its_pages_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount(FileSystem::Tmpfs, 96) else {
        return;
    };
    let member = Member::start(small_options(&disk.folder("member")), Arc::new(NoEvents))
        .await
        .unwrap();
    fill_with_history(&member).await;
    let mut reader = member.state().export().unwrap();
    compact(&member).await;
    // The member looks for space meanwhile.
    sleep(Duration::from_secs(2)).await;
    let refused = member.propose(put("k0", &value(0))).await;
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    let mut snapshot = Vec::new();
    reader.write_to(&mut snapshot).unwrap();
    assert!(snapshot.len() > 20 << 20, "{}", snapshot.len());
    drop(reader);
    wait_until_writable(&member).await;
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_defragmentation_on_a_full_disk_succeeds_or_says_what_it_needs_and_changes_nothing() {
    let Some(disk) = SmallDisk::mount(FileSystem::Tmpfs, 96) else {
        return;
    };
    let member = Member::start(small_options(&disk.folder("member")), Arc::new(NoEvents))
        .await
        .unwrap();
    let newest = fill_with_history(&member).await;
    let reader = member.state().export().unwrap();
    compact(&member).await;
    // Neither a second file nor giving pages back is possible.
    let refused = member.defragment().await.unwrap_err();
    let Error::NoSpaceToRewrite {
        needed_bytes,
        free_bytes,
    } = refused
    else {
        panic!("{refused:?}");
    };
    assert!(needed_bytes > free_bytes && needed_bytes > 5 << 20);
    assert_newest(&member, &newest).await;
    drop(reader);
    member.defragment().await.unwrap();
    assert_newest(&member, &newest).await;
    wait_until_writable(&member).await;
    member.defragment().await.unwrap();
    assert_newest(&member, &newest).await;
    member.stop().await.unwrap();
}

/// Not a test by itself: the process that is killed. Says so when its disk is full of history.
#[tokio::test(flavor = "multi_thread")]
async fn child_that_fills_its_disk_until_it_is_killed() {
    let Some(dir) = std::env::var_os(ROLE) else {
        return;
    };
    let member = Member::start(small_options(Path::new(&dir)), Arc::new(NoEvents))
        .await
        .unwrap();
    fill_with_history(&member).await;
    let mut out = std::io::stdout();
    writeln!(out, "FULL").unwrap();
    out.flush().unwrap();
    sleep(Duration::from_mins(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_killed_on_a_disk_full_of_history_starts_and_takes_writes_after_a_compaction() {
    for kind in FileSystem::ALL {
        if let Some(disk) = SmallDisk::mount(kind, 96) {
            for _ in 0..2 {
                fill_and_kill(&disk.folder("member"));
                restart_and_go_on(&disk.folder("member")).await;
            }
        }
    }
}

fn fill_and_kill(dir: &Path) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "enospc::child_that_fills_its_disk_until_it_is_killed",
            "--nocapture",
        ])
        .env(ROLE, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_full = lines.any(|line| line.is_ok_and(|line| line.contains("FULL")));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_full, "the child ended before its disk was full");
}

async fn restart_and_go_on(dir: &Path) {
    let member = Member::start(small_options(dir), Arc::new(NoEvents))
        .await
        .unwrap();
    assert_eq!(
        get(&member, "k3").await.map(|value| value.len()),
        Some(VALUE_BYTES)
    );
    compact(&member).await;
    wait_until_writable(&member).await;
    member.stop().await.unwrap();
}
