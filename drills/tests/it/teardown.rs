//! Nothing is left behind, however a drill ends.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use holdfast_drills::{DrillOptions, Outcome, Phase, clean_leftovers, run};

use super::long::rounds;
use super::stage::{
    SMALL, Stage, assert_no_process_in, keys_in, member_command, noon, processes_in, vault_in,
};

/// Names the stage of the drill that is to be killed.
const STAGE_FOLDER: &str = "HOLDFAST_TEST_STAGE";

/// Not a test when started as one: a drill that never gets beyond its checks.
#[test]
fn drill_process() {
    let Some(folder) = std::env::var_os(STAGE_FOLDER).map(PathBuf::from) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let scratch = folder.join("scratch");
        let options = DrillOptions::new("prod".parse().unwrap(), noon(), scratch, member_command());
        let hang_at_check = |phase| {
            if phase == Phase::Check {
                std::thread::park();
            }
        };
        let vault = vault_in(&folder).await;
        run(&options, &vault, &keys_in(&folder), &hang_at_check)
            .await
            .unwrap();
    });
}

#[tokio::test]
async fn a_killed_drill_is_cleaned_up_after_by_the_next_start() {
    let stage = Stage::new().await;
    stage.backup(SMALL).await;
    let mut drill = Command::new(std::env::current_exe().unwrap())
        .args(["teardown::drill_process", "--exact", "--nocapture"])
        .env(STAGE_FOLDER, stage.folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let scratch = stage.scratch();
    for _ in 0..600 {
        if !processes_in(&scratch).is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(
        !processes_in(&scratch).is_empty(),
        "the drill never booted a member"
    );
    assert_eq!(
        clean_leftovers(&scratch).await.unwrap(),
        [],
        "a running drill was touched"
    );
    drill.kill().unwrap();
    drill.wait().unwrap();

    // The member notices by itself that nobody is there any more.
    assert_no_process_in(&scratch).await;
    assert_eq!(clean_leftovers(&scratch).await.unwrap().len(), 1);
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
    let report = stage.drill(&stage.options()).await;
    assert_eq!(report.outcome, Outcome::Passed, "{report}");
}

#[tokio::test]
async fn two_drills_at_once_do_not_meet() {
    let stage = Stage::new().await;
    stage.backup(SMALL).await;
    let (one, other) = (stage.options(), stage.options());
    let (one, other) = tokio::join!(stage.drill(&one), stage.drill(&other));
    assert_eq!(
        (one.outcome, other.outcome),
        (Outcome::Passed, Outcome::Passed),
        "{one}\n{other}"
    );
}

#[tokio::test]
async fn the_same_drill_is_not_run_twice_at_once() {
    let stage = Stage::new().await;
    let options = stage.options();
    let taken = stage.scratch().join(format!("drill-{}", options.id));
    std::fs::create_dir_all(&taken).unwrap();
    let vault = stage.vault.read_only();
    assert!(run(&options, &vault, &stage.keys, &|_| {}).await.is_err());
    assert!(taken.exists());
}

/// Names the stage in which drills run in a row, and says how many.
const ROW_FOLDER: &str = "HOLDFAST_TEST_ROW_FOLDER";
const ROW_COUNT: &str = "HOLDFAST_TEST_ROW_COUNT";

/// Drills before the first look: what is made once is made by then.
const WARM_UP: usize = 3;

/// Memory that many drills may take beyond what few take, in KiB.
const GROWTH_MAX: u64 = 48 * 1024;

/// Not a test when started as one: drills in a row, with a look at this process after each.
#[test]
fn row_process() {
    let Some(folder) = std::env::var_os(ROW_FOLDER).map(PathBuf::from) else {
        return;
    };
    let count: usize = std::env::var(ROW_COUNT).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for number in 0..WARM_UP + count {
        runtime.block_on(async {
            let (cluster, scratch) = ("prod".parse().unwrap(), folder.join("scratch"));
            let options = DrillOptions::new(cluster, noon(), scratch, member_command());
            let vault = vault_in(&folder).await;
            let report = run(&options, &vault, &keys_in(&folder), &|_| {}).await;
            let report = report.unwrap();
            assert_eq!(report.outcome, Outcome::Passed, "{report}");
            assert!(report.teardown.is_clean, "{report}");
        });
        if number + 1 >= WARM_UP {
            let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
            println!("looked memory={} files={files}", memory());
        }
    }
}

/// Resident memory of this process, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let figure = line.unwrap().split_whitespace().nth(1);
    figure.unwrap().parse().unwrap()
}

#[tokio::test]
async fn drills_in_a_row_leave_no_process_folder_port_file_or_memory() {
    let stage = Stage::new().await;
    stage.backup(SMALL).await;
    let count = rounds(10, 1000);
    let row = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["teardown::row_process", "--exact", "--nocapture"])
        .env(ROW_FOLDER, stage.folder.path())
        .env(ROW_COUNT, count.to_string())
        .output();
    let row = row.await.unwrap();
    let text = String::from_utf8_lossy(&row.stdout);
    assert!(
        row.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&row.stderr)
    );
    let number = |line: &str, name: &str| -> u64 {
        let (_, rest) = line.split_once(name).unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let looks: Vec<(u64, u64)> = text
        .lines()
        .filter(|line| line.contains("looked memory="))
        .map(|line| (number(line, "memory="), number(line, "files=")))
        .collect();
    assert_eq!(looks.len(), count + 1, "{text}");
    let (first, last) = (looks[0], looks[looks.len() - 1]);
    assert!(
        last.0 < first.0 + GROWTH_MAX,
        "memory grows: {first:?}, {last:?}"
    );
    assert!(last.1 <= first.1, "files stay open: {first:?}, {last:?}");
    assert_eq!(std::fs::read_dir(stage.scratch()).unwrap().count(), 0);
    assert_no_process_in(&stage.scratch()).await;
}

#[tokio::test]
async fn drills_leave_no_file_open() {
    let stage = Stage::new().await;
    stage.backup(SMALL).await;
    for _ in 0..5 {
        stage.drill(&stage.options()).await;
    }
    let folder = stage.folder.path();
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let open: Vec<PathBuf> = targets
        .filter(|target| target.starts_with(folder))
        .collect();
    assert_eq!(open, Vec::<PathBuf>::new());
}
