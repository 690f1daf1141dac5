//! A member of three comes back from what a loss of power leaves of its disk, at any write or sync,
//! and again from what a loss of power during its recovery leaves. It joins, the three agree, and
//! what was acknowledged is there, even where that member alone still had it.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says what it expects and stops when it is not so"
)]

mod disk;
mod trio;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use self::trio::{Clients, Trio};
use crate::api_support::PATIENCE;
use crate::crash::disk::Dice;
use crate::long::rounds;

/// Clients at work.
const HANDS: usize = 6;
/// Writes and syncs from which the one is drawn at which the power fails.
const OPERATIONS: usize = 160;
/// The same of a recovery, which has fewer.
const RECOVERY_OPERATIONS: usize = 40;
/// The most that a recovery has: more would be no end.
const RECOVERY_OPERATIONS_MAX: u64 = 400;

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A start on a disk that may fail again before the member is ready.
async fn come_back(trio: &mut Trio, at: usize) -> bool {
    if trio.launch(at).await.is_err() {
        return false;
    }
    let disk = trio.seats[at].disk.clone();
    let is_ready = tokio::select! {
        ready = trio.ready(at) => ready.is_ok(),
        () = async { while !disk.is_off() { sleep(Duration::from_millis(5)).await } } => false,
    };
    is_ready && disk.keep_on()
}

/// The leader and one follower write, the third is away. The follower loses its power, the leader
/// is gone: what they acknowledged, the follower alone has.
async fn lose_the_only_other_copy(trio: &mut Trio, clients: &Clients, round: usize) {
    let mut dice = Dice::new(u64::try_from(round).unwrap() + 1);
    let leader = trio.leader().await;
    let (victim, away) = ((leader + 1) % 3, (leader + 2) % 3);
    trio.isolate(away);
    let before = clients.acknowledged();
    let writing = clients.write(trio.member(leader), HANDS);
    until("writes go on", || clients.acknowledged() > before + 20).await;
    let disk = trio.seats[victim].disk.clone();
    disk.fail_after(u64::try_from(dice.below(OPERATIONS)).unwrap());
    until("the power fails", || disk.is_off()).await;
    trio.kill(leader).await;
    drop(writing);
    trio.lose_power(victim, &mut dice).await;
    trio.network.heal();
    // Up to two more losses of power before it has recovered.
    for _ in 0..dice.below(3) {
        let after = u64::try_from(dice.below(RECOVERY_OPERATIONS)).unwrap();
        trio.seats[victim].disk.fail_after(after);
        if come_back(trio, victim).await {
            break;
        }
        trio.lose_power(victim, &mut dice).await;
        trio.network.heal();
    }
    if !trio.is_up(victim) {
        trio.launch(victim).await.unwrap();
    }
    trio.ready(victim).await.unwrap();
    trio.member(victim).linearizable().await.unwrap();
    clients.check(trio.member(victim));
    trio.launch(leader).await.unwrap();
    trio.ready(leader).await.unwrap();
    trio.agree().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_back_from_any_image_of_its_disk_has_what_it_acknowledged_and_joins() {
    let mut trio = Trio::start().await;
    let clients = Clients::new();
    let first = std::env::var("HOLDFAST_TEST_SEED").map_or(0, |seed| seed.parse().unwrap());
    for round in first..first + rounds(12, 600) {
        println!("round {round}: HOLDFAST_TEST_SEED={round} begins here");
        lose_the_only_other_copy(&mut trio, &clients, round).await;
    }
    for at in 0..3 {
        clients.check(trio.member(at));
    }
}

/// The files of a member that is down.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for item in std::fs::read_dir(next).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let inside = path.strip_prefix(folder).unwrap().to_owned();
                found.push((inside, std::fs::read(path).unwrap()));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn power_lost_again_at_each_write_of_a_recovery_changes_nothing() {
    let mut trio = Trio::start().await;
    let clients = Clients::new();
    let leader = trio.leader().await;
    let victim = (leader + 1) % 3;
    let writing = clients.write(trio.member(leader), HANDS);
    until("writes go on", || clients.acknowledged() > 300).await;
    let disk = trio.seats[victim].disk.clone();
    disk.fail_after(30);
    until("the power fails", || disk.is_off()).await;
    drop(writing);
    let mut dice = Dice::new(1);
    trio.lose_power(victim, &mut dice).await;
    // A member must not forget what it told the others: all go back together each time.
    let others = [(victim + 1) % 3, (victim + 2) % 3];
    for at in others {
        trio.kill(at).await;
    }
    let world: Vec<_> = (0..3).map(|at| files(&trio.seats[at].folder)).collect();
    let step = usize::try_from(rounds(4_u64, 1)).unwrap();
    let (mut recovered, mut lost) = (false, 0);
    for operations in (0..RECOVERY_OPERATIONS_MAX).step_by(step) {
        for (at, files) in world.iter().enumerate() {
            trio.put_back(at, files);
        }
        trio.network.heal();
        for at in others {
            trio.launch(at).await.unwrap();
        }
        trio.seats[victim].disk.fail_after(operations);
        recovered = come_back(&mut trio, victim).await;
        if !recovered {
            lost += 1;
            trio.lose_power(victim, &mut dice).await;
            trio.network.heal();
            let back = come_back(&mut trio, victim).await;
            assert!(back, "after {operations} operations of the recovery");
        }
        trio.member(victim).linearizable().await.unwrap();
        clients.check(trio.member(victim));
        trio.agree().await;
        if recovered {
            break;
        }
        for at in 0..3 {
            trio.kill(at).await;
        }
    }
    assert!(recovered, "a recovery has an end");
    assert!(lost > 1, "power was lost {lost} times");
    println!("power was lost at {lost} places of the recovery");
}
