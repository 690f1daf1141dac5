//! kill -9 at random moments: nothing acknowledged is lost, and it opens again by itself.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use holdfast_store::Error;
use holdfast_store::apply::NoEvents;
use holdfast_store::member::{Member, MemberOptions};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::long::rounds;
use crate::member::{get, options, put};
use crate::small_disk::{FileSystem, SmallDisk};

const ROLE: &str = "HOLDFAST_TEST_KILL_DIR";
const START: &str = "HOLDFAST_TEST_KILL_START";
const WRITERS: u64 = 4;

fn child_options(dir: &Path) -> MemberOptions {
    // Small limits, so that kills fall into rollovers, checkpoints and purges too.
    MemberOptions {
        log_segment_bytes: 128 << 10,
        snapshot_count: 100,
        catch_up_entries: 20,
        ..options(dir)
    }
}

/// Not a test by itself: the process that is killed. Prints each key once it is acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn child_that_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(ROLE) else {
        return;
    };
    let first: u64 = std::env::var(START).unwrap().parse().unwrap();
    let member = Member::start(child_options(Path::new(&dir)), Arc::new(NoEvents))
        .await
        .unwrap();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let member = member.clone();
        writers.spawn(async move {
            for at in 0_u64.. {
                let number = first + at * WRITERS + writer;
                let value = number.to_string().repeat(40);
                let key = format!("key-{number}");
                // A full disk is waited for: some rounds fill it.
                while let Err(error) = member.propose(put(&key, value.as_bytes())).await {
                    assert!(matches!(error, Error::NoSpace | Error::Timeout), "{error}");
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                let mut out = std::io::stdout().lock();
                writeln!(out, "ACK {number}").unwrap();
                out.flush().unwrap();
            }
        });
    }
    writers.join_all().await;
}

fn spawn_child(dir: &Path, first: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "kill::child_that_writes_until_it_is_killed",
            "--nocapture",
        ])
        .env(ROLE, dir)
        .env(START, first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Lets a child write for `patience` after its first acknowledgement, kills it after `last_act`,
/// and returns what it had acknowledged.
fn write_and_kill(dir: &Path, first: u64, patience: Duration, last_act: impl FnOnce()) -> Vec<u64> {
    let mut child = spawn_child(dir, first);
    let out = BufReader::new(child.stdout.take().unwrap());
    let (said, hears) = std::sync::mpsc::sync_channel(1);
    let listener = std::thread::spawn(move || {
        let mut acknowledged = Vec::new();
        for line in out.lines() {
            let Ok(line) = line else { break };
            let number = line
                .split("ACK ")
                .nth(1)
                .and_then(|number| number.parse().ok());
            if let Some(number) = number {
                if acknowledged.is_empty() {
                    let _sent = said.try_send(());
                }
                acknowledged.push(number);
            }
        }
        acknowledged
    });
    let _first = hears.recv_timeout(Duration::from_secs(30));
    // A pause between random moments is what is tested here.
    let _nothing = hears.recv_timeout(patience);
    last_act();
    child.kill().unwrap();
    child.wait().unwrap();
    listener.join().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_nine_at_random_moments_loses_no_acknowledged_write() {
    if std::env::var_os(ROLE).is_some() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mut acknowledged: Vec<u64> = Vec::new();
    let mut first = 0;
    let rounds = rounds(100, 1_000);
    for round in 0..rounds {
        let patience = Duration::from_millis(u64::from(rand::random::<u8>()) / 2);
        let path = dir.path().to_owned();
        let fresh =
            tokio::task::spawn_blocking(move || write_and_kill(&path, first, patience, || {}))
                .await
                .unwrap();
        assert!(
            !fresh.is_empty(),
            "round {round}: the member did not come up and write"
        );
        first = fresh.iter().max().unwrap() + 10_000;
        first -= first % WRITERS;
        acknowledged.extend(&fresh);
        if round % 20 != 19 && round != rounds - 1 {
            continue;
        }
        assert_all_there(dir.path(), &acknowledged, round).await;
    }
}

/// Opens what a child left behind and looks for everything that was acknowledged.
async fn assert_all_there(dir: &Path, acknowledged: &[u64], round: u32) {
    let member = Member::start(child_options(dir), Arc::new(NoEvents))
        .await
        .unwrap_or_else(|error| panic!("round {round}: {error}"));
    for number in acknowledged {
        let value = get(&member, &format!("key-{number}")).await;
        let expected = number.to_string().repeat(40);
        assert_eq!(
            value.as_deref(),
            Some(expected.as_bytes()),
            "round {round}, key {number}"
        );
    }
    member.stop().await.unwrap();
}

/// On a real file system that forgets what was not synced: the log, the state, and the order in
/// which one is cut behind the other. In every other round the disk fills up first, so that the
/// state cannot be made durable while the log goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_of_power_at_random_moments_loses_no_acknowledged_write() {
    let Some(disk) = SmallDisk::mount(FileSystem::Ext4, 192) else {
        return;
    };
    let disk = Arc::new(disk);
    let mut acknowledged: Vec<u64> = Vec::new();
    for round in 0..rounds(12, 200) {
        let first = acknowledged.iter().max().map_or(0, |last| last + 10_000);
        let first = first - first % WRITERS;
        let patience = Duration::from_millis(200 + u64::from(rand::random::<u8>()) * 4);
        let writing = Arc::clone(&disk);
        let fresh = tokio::task::spawn_blocking(move || {
            let (dir, others) = (writing.folder("member"), writing.folder("others"));
            let last_act = || {
                if round % 2 == 1 {
                    writing.fill(&others);
                    std::thread::park_timeout(patience);
                }
                writing.cut_power();
            };
            let fresh = write_and_kill(&dir, first, patience, last_act);
            writing.power_up();
            std::fs::remove_dir_all(others).unwrap();
            fresh
        });
        let fresh = fresh.await.unwrap();
        assert!(
            !fresh.is_empty(),
            "round {round}: the member did not come up and write"
        );
        acknowledged.extend(&fresh);
        assert_all_there(&disk.folder("member"), &acknowledged, round).await;
    }
}
