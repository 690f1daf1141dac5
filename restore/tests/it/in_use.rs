//! A backup that somebody reads is not removed, whoever prunes and from wherever.

use std::sync::Arc;

use chrono::TimeDelta;
use holdfast_policies::{Level, SnapshotId};
use holdfast_restore::in_use::{LEASE, Mark, Reader};
use holdfast_restore::prune::{PruneOptions, Pruned, execute_prune};
use holdfast_restore::{
    Error, ErrorKind, Pick, RestoreOptions, RestorePlan, Target, plan_restore, rebuild,
};
use object_store::ObjectStore;

use super::bench::{BASIC, Bench, SMALL, local_store, minute};
use super::faults::plan_for;
use super::trash::NoDelete;

/// Two backups; no rule keeps the first.
async fn two() -> (Bench, SnapshotId) {
    let bench = Bench::new().await;
    let first = bench.backup(SMALL, minute(0)).await;
    bench.prove(&first, Level::L2).await;
    let second = bench.backup(BASIC, minute(1)).await;
    bench.prove(&second, Level::L2).await;
    (bench, first.manifest.id)
}

fn options(bench: &Bench, after: TimeDelta, grace: TimeDelta) -> PruneOptions<'_> {
    PruneOptions {
        signer: &bench.signer,
        trust: &bench.keys.trust,
        local: None,
        now: minute(30) + after,
        vault_now: None,
        trash_grace: grace,
    }
}

/// Plans and prunes so long after the half hour.
async fn prune(bench: &Bench, after: TimeDelta, grace: TimeDelta) -> Pruned {
    let plan = plan_for(&bench.catalog().await.facts(minute(30) + after), 1);
    execute_prune(
        &bench.vault,
        &bench.cluster,
        &plan,
        options(bench, after, grace),
    )
    .await
    .unwrap()
}

async fn plan_of(bench: &Bench, id: SnapshotId) -> RestorePlan {
    let data_dir = bench.folder.path().join("out/new");
    let options = RestoreOptions {
        work_dir: Some(bench.work_dir()),
        ..RestoreOptions::single(Target::Etcd, data_dir, "m0", "http://127.0.0.1:2380")
    };
    plan_restore(&bench.catalog().await, Pick::Id(id), &options).unwrap()
}

async fn restore(bench: &Bench, plan: &RestorePlan) {
    rebuild(&bench.vault.read_only(), plan, &bench.keys, &|_| {})
        .await
        .unwrap();
}

fn parts_of(bench: &Bench, id: SnapshotId) -> usize {
    let files = bench.files();
    let folder = format!("parts/{id}/");
    let is_part = |file: &&std::path::PathBuf| file.to_string_lossy().contains(&folder);
    files.iter().filter(is_part).count()
}

const NOW: TimeDelta = TimeDelta::zero();

#[tokio::test]
async fn a_backup_being_restored_is_kept_whole_and_goes_afterwards() {
    let (bench, first) = two().await;
    let plan = plan_of(&bench, first).await;
    let mark = Mark::set(&bench.vault, &bench.cluster, first, Reader::Restore)
        .await
        .unwrap();
    let work = async {
        let pruned = prune(&bench, NOW, NOW).await;
        assert_eq!(pruned, Pruned::default(), "the plan itself keeps it");
        restore(&bench, &plan).await;
    };
    mark.during(work).await;
    assert!(bench.catalog().await.get(first).unwrap().uses.is_empty());
    let pruned = prune(&bench, NOW, NOW).await;
    assert_eq!((pruned.trashed, pruned.removed), (vec![first], vec![first]));
    assert_eq!(parts_of(&bench, first), 0);
}

#[tokio::test]
async fn a_reader_that_comes_after_the_plan_is_seen_by_the_prune() {
    let (bench, first) = two().await;
    let plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
    assert_eq!(plan.release, [first]);
    let _mark = Mark::set(&bench.vault, &bench.cluster, first, Reader::Drill)
        .await
        .unwrap();
    let pruned = execute_prune(
        &bench.vault,
        &bench.cluster,
        &plan,
        options(&bench, NOW, NOW),
    )
    .await
    .unwrap();
    let (id, reason) = pruned.held.first().unwrap();
    assert_eq!((*id, reason.as_str()), (first, "in use by a drill"));
    assert!(pruned.trashed.is_empty(), "{pruned:?}");
    assert_eq!(bench.verify(first, Level::L1).await.flaws, []);
}

#[tokio::test]
async fn a_reader_of_the_trash_holds_its_removal_back_and_can_read_to_the_end() {
    let (bench, first) = two().await;
    let pruned = prune(&bench, NOW, LEASE).await;
    assert_eq!(pruned.trashed, [first]);
    let plan = plan_of(&bench, first).await;
    let said = plan.warnings.iter().any(|one| one.contains("in the trash"));
    assert!(said, "{:?}", plan.warnings);
    let mark = Mark::set(&bench.vault, &bench.cluster, first, Reader::Restore)
        .await
        .unwrap();
    let work = async {
        let pruned = prune(&bench, LEASE * 2, LEASE).await;
        let held = vec![(first, "in use".to_owned())];
        assert_eq!((pruned.removed, pruned.held), (vec![], held));
        restore(&bench, &plan).await;
    };
    mark.during(work).await;
    assert_eq!(prune(&bench, LEASE * 2, LEASE).await.removed, [first]);
}

#[tokio::test]
async fn a_reader_that_comes_after_the_removal_began_is_refused() {
    let (bench, first) = two().await;
    assert_eq!(prune(&bench, NOW, LEASE).await.trashed, [first]);
    // Killed right after it said that it removes.
    let local: Arc<dyn ObjectStore> = Arc::new(NoDelete(local_store(bench.folder.path())));
    let vault = bench.through(local).await;
    let plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
    let options = options(&bench, LEASE * 2, LEASE);
    let pruned = execute_prune(&vault, &bench.cluster, &plan, options)
        .await
        .unwrap();
    assert_eq!(pruned.refused.len(), 1, "{pruned:?}");
    assert!(pruned.refused[0].1.contains("manifests/"), "{pruned:?}");
    let refused = Mark::set(&bench.vault, &bench.cluster, first, Reader::Restore)
        .await
        .unwrap_err();
    assert!(
        matches!(refused, Error::NothingToRestore { .. }),
        "{refused}"
    );
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    let files = bench.files();
    assert!(
        !files
            .iter()
            .any(|file| file.to_string_lossy().contains("/uses/")),
        "no mark stays behind"
    );
    let catalog = bench.catalog().await;
    assert!(catalog.get_named(first).is_err(), "it may be half gone");
    assert_eq!(prune(&bench, LEASE * 2, LEASE).await.removed, [first]);
    assert_eq!(parts_of(&bench, first), 0);
}

/// A host with read-only credentials leaves no mark; the time of grace is for it.
#[tokio::test]
async fn a_reader_without_a_mark_finishes_within_the_grace() {
    let (bench, first) = two().await;
    let plan = plan_of(&bench, first).await;
    let whole = parts_of(&bench, first);
    let pruned = prune(&bench, NOW, TimeDelta::minutes(60)).await;
    assert_eq!((pruned.trashed, pruned.removed), (vec![first], vec![]));
    let catalog = bench.catalog().await;
    assert!(catalog.get(first).is_err(), "it is not offered any more");
    assert!(catalog.orphans.is_empty(), "its parts are not nobody's");
    assert_eq!(parts_of(&bench, first), whole);
    restore(&bench, &plan).await;
    let pruned = prune(&bench, TimeDelta::minutes(59), TimeDelta::minutes(60)).await;
    assert_eq!((pruned.removed, pruned.waiting.len()), (vec![], 1));
    let pruned = prune(&bench, TimeDelta::minutes(61), TimeDelta::minutes(60)).await;
    assert_eq!(pruned.removed, [first]);
    assert_eq!(parts_of(&bench, first), 0);
    assert_eq!(bench.catalog().await.orphans, []);
}

#[tokio::test]
async fn a_mark_of_a_killed_reader_runs_out_and_is_removed() {
    let (bench, first) = two().await;
    let mark = Mark::set(&bench.vault, &bench.cluster, first, Reader::Export)
        .await
        .unwrap();
    drop(mark);
    let catalog = bench.catalog().await;
    let backup = catalog.get(first).unwrap();
    let stored = backup.uses.first().unwrap().modified;
    assert_eq!(backup.reader(stored), Some("export"));
    let late = stored + LEASE;
    assert_eq!(backup.reader(late - TimeDelta::seconds(1)), Some("export"));
    assert_eq!(backup.reader(late), None);
    assert!(!backup.fact(late).is_in_use);
    let pruned = prune(&bench, late - minute(30), NOW).await;
    assert_eq!(pruned.removed, [first]);
    let files = bench.files();
    assert!(
        !files
            .iter()
            .any(|file| file.to_string_lossy().contains("/uses/"))
    );
}
