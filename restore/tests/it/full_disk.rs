//! A full disk under a vault, and under the target of a restore.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use holdfast_policies::Level;
use holdfast_restore::progress::{Phase, Progress};
use holdfast_restore::{
    Error, ErrorKind, Pick, RestoreOptions, RestorePlan, Target, plan_restore, rebuild,
};
use object_store::local::LocalFileSystem;

use super::bench::{BASIC, Bench, SMALL, minute};
use super::small_disk::{FileSystem, SmallDisk};

/// Everything the error says, its sources included.
fn text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

#[tokio::test]
async fn a_backup_into_a_full_vault_says_so_and_leaves_no_half_backup() {
    for kind in FileSystem::ALL {
        let Some(disk) = SmallDisk::mount(kind, 16) else {
            continue;
        };
        let folder = tempfile::tempdir().unwrap();
        let store = LocalFileSystem::new_with_prefix(disk.folder("vault")).unwrap();
        let bench = Bench::over(folder, Arc::new(store)).await;
        let first = bench.backup(BASIC, minute(0)).await;

        let filler = disk.fill(&disk.folder("others"));
        let refused = bench.try_backup(SMALL, &bench.options(minute(1))).await;
        let error = refused.expect_err("there is no space for it");
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{kind:?}: {error:?}");
        let said = text(&error);
        assert!(said.contains("No space left"), "{kind:?}: {said}");
        let catalog = bench.catalog().await;
        assert_eq!(catalog.flaws, [], "{kind:?}");
        let listed: Vec<_> = catalog
            .backups
            .iter()
            .map(holdfast_restore::Backup::id)
            .collect();
        assert_eq!(listed, [first.manifest.id], "{kind:?}");

        fs::remove_file(filler).unwrap();
        let second = bench.backup(SMALL, minute(2)).await;
        assert_eq!(second.manifest.sequence.0, 2, "{kind:?}");
        for captured in [&first, &second] {
            let proof = bench.verify(captured.manifest.id, Level::L2).await;
            assert_eq!(proof.level, Some(Level::L2), "{kind:?}: {:?}", proof.flaws);
        }
    }
}

async fn plan(bench: &Bench, target: Target, data_dir: &Path) -> RestorePlan {
    let options = RestoreOptions {
        work_dir: Some(bench.work_dir()),
        ..RestoreOptions::single(target, data_dir.to_owned(), "m0", "http://127.0.0.1:2380")
    };
    plan_restore(&bench.catalog().await, Pick::Latest, &options).unwrap()
}

#[tokio::test]
async fn a_restore_onto_a_full_disk_says_so_and_leaves_nothing() {
    for kind in FileSystem::ALL {
        let Some(disk) = SmallDisk::mount(kind, 16) else {
            continue;
        };
        let bench = Bench::new().await;
        bench.backup(SMALL, minute(0)).await;
        let folder = disk.folder("targets");
        for target in [Target::Etcd, Target::Holdfast] {
            let data_dir = folder.join("new");
            let filler = disk.fill(&disk.folder("others"));
            let plan = plan(&bench, target, &data_dir).await;
            let vault = bench.vault.read_only();
            let refused = rebuild(&vault, &plan, &bench.keys, &|_| {}).await;
            let error = refused.expect_err("there is no space for it");
            assert!(
                matches!(error, Error::NotEnoughSpace { .. }),
                "{kind:?} {target:?}: {error:?}"
            );
            let said = error.to_string();
            assert!(said.contains("bytes free"), "{said}");
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "{kind:?}");
            fs::remove_file(filler).unwrap();
        }
    }
}

/// The check before the start does not know what others will write meanwhile.
#[tokio::test]
async fn a_disk_that_fills_up_during_a_restore_leaves_nothing() {
    for kind in FileSystem::ALL {
        let Some(disk) = SmallDisk::mount(kind, 24) else {
            continue;
        };
        let bench = Bench::new().await;
        bench.backup(SMALL, minute(0)).await;
        let folder = disk.folder("targets");
        let data_dir = folder.join("new");
        for target in [Target::Etcd, Target::Holdfast] {
            let planned = plan(&bench, target, &data_dir).await;
            let vault = bench.vault.read_only();
            let filler = Mutex::new(None);
            let fill = |progress: Progress| {
                if progress.phase == Phase::Building {
                    let full = || disk.fill(&disk.folder("others"));
                    filler.lock().unwrap().get_or_insert_with(full);
                }
            };
            let refused = rebuild(&vault, &planned, &bench.keys, &fill).await;
            let error = refused.expect_err("there is no space left");
            assert_eq!(
                error.kind(),
                ErrorKind::Exhausted,
                "{kind:?} {target:?}: {error:?}"
            );
            let left = fs::read_dir(&folder).unwrap().count();
            assert_eq!(left, 0, "{kind:?} {target:?}");
            let filler = filler.into_inner().unwrap();
            fs::remove_file(filler.expect("the disk was filled")).unwrap();
            rebuild(&vault, &planned, &bench.keys, &|_| {})
                .await
                .unwrap_or_else(|error| panic!("{kind:?} {target:?}: {error:?}"));
            fs::remove_dir_all(&data_dir).unwrap();
        }
    }
}
