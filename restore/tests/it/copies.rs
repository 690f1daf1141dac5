//! One vault's backups in another vault: whole at every moment, the same at the end.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use chrono::TimeDelta;
use holdfast_policies::Level;
use holdfast_restore::copy::{
    CompareOptions, Compared, Copied, DifferenceKind, compare, copy_cluster, standing,
};
use holdfast_restore::prune::{self, PruneOptions};
use holdfast_restore::vault::{ObjectName, layout};
use holdfast_restore::{Catalog, Error, ReadWrite, Vault, VerifyOptions, verify};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;

use super::bench::{BASIC, Bench, K8S, SMALL, minute};
use super::faults::{Mortal, plan_for};

/// A vault and the folder of another one.
struct Pair {
    first: Bench,
    folder: tempfile::TempDir,
    copy: Vault<ReadWrite>,
}

impl Pair {
    async fn of(first: Bench) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = (minute(0), &first.signer.verifier());
        let copy = Vault::create_in_store(store(&folder), "", "copy".to_owned(), made)
            .await
            .unwrap();
        Self {
            first,
            folder,
            copy,
        }
    }

    async fn copy(&self) -> Copied {
        self.copy_to(&self.copy).await.unwrap()
    }

    async fn copy_to(&self, to: &Vault<ReadWrite>) -> Result<Copied, Error> {
        let (cluster, trust) = (&self.first.cluster, &self.first.keys.trust);
        copy_cluster(&self.first.vault, to, cluster, trust, &|_| {}).await
    }

    async fn catalog(&self) -> Catalog {
        let (cluster, trust) = (&self.first.cluster, &self.first.keys.trust);
        Catalog::load(&self.copy, cluster, trust, None)
            .await
            .unwrap()
    }

    async fn compare(&self) -> Compared {
        let (cluster, trust) = (&self.first.cluster, &self.first.keys.trust);
        let options = CompareOptions { reads_bytes: true };
        let both = (&self.first.vault, &self.copy);
        compare(both, cluster, trust, options, &|_| {})
            .await
            .unwrap()
    }

    /// Where an object of the copy lies on disk.
    fn file(&self, name: &ObjectName) -> PathBuf {
        self.folder.path().join(name.as_str())
    }
}

fn store(folder: &tempfile::TempDir) -> Arc<dyn ObjectStore> {
    Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap())
}

/// Two backups, the first one proven.
async fn two() -> Bench {
    let bench = Bench::new().await;
    let first = bench.backup(SMALL, minute(0)).await;
    bench.prove(&first, Level::L3).await;
    bench.backup(BASIC, minute(1)).await;
    bench
}

async fn verified(pair: &Pair, upto: Level) {
    let catalog = pair.catalog().await;
    for backup in &catalog.backups {
        let options = VerifyOptions {
            upto,
            now: minute(500),
            work_dir: pair.first.work_dir(),
        };
        let id = backup.id();
        let keys = &pair.first.keys;
        let proof = verify(&pair.copy, &catalog, id, keys, &options, &|_| {})
            .await
            .unwrap();
        assert_eq!(proof.flaws, []);
        assert_eq!(proof.level, Some(upto));
    }
}

#[tokio::test]
async fn a_copy_holds_what_the_first_vault_holds_and_a_second_run_has_nothing_to_do() {
    let pair = Pair::of(two().await).await;
    let copied = pair.copy().await;
    assert_eq!((copied.backups.len(), copied.refused.len()), (2, 0));
    let catalog = pair.catalog().await;
    assert_eq!(catalog.flaws, []);
    assert_eq!(catalog.backups, {
        let mut first = pair.first.catalog().await.backups;
        // Each vault has a clock of its own.
        for (one, other) in first.iter_mut().zip(&catalog.backups) {
            one.observed = other.observed;
        }
        first
    });
    assert_eq!(catalog.ledger.highest, 452);
    verified(&pair, Level::L2).await;
    let compared = pair.compare().await;
    assert_eq!(compared.differences, []);
    assert!(compared.bytes > 10_000, "{compared:?}");
    let again = pair.copy().await;
    assert_eq!(again, Copied::default());
    pair.first.backup(K8S, minute(2)).await;
    assert_eq!(pair.copy().await.backups.len(), 1, "only what is new");
}

#[tokio::test]
async fn a_copy_killed_between_any_two_operations_shows_no_backup_that_is_not_whole() {
    let counted = Pair::of(two().await).await;
    let immortal = 1_000_000;
    let mortal = Arc::new(Mortal::new(store(&counted.folder), immortal, false));
    let shared: Arc<dyn ObjectStore> = Arc::<Mortal>::clone(&mortal);
    let through = counted.first.through(shared).await;
    counted.copy_to(&through).await.unwrap();
    let operations = mortal.used(immortal);
    assert!(operations >= 20, "{operations} operations");
    let first = two().await;
    let mut pair = Pair::of(first).await;
    for answer_is_lost in [false, true] {
        for life in 2..operations {
            pair = Pair::of(pair.first).await;
            let mortal = Arc::new(Mortal::new(store(&pair.folder), life, answer_is_lost));
            let through = pair.first.through(mortal).await;
            drop(pair.copy_to(&through).await);
            for backup in pair.catalog().await.backups {
                assert_eq!(backup.flaws, [], "after {life}");
            }
            let last = pair.copy().await;
            assert_eq!(last.refused, [], "after {life}");
            assert_eq!(pair.catalog().await.flaws, [], "after {life}");
            assert_eq!(pair.compare().await.differences, [], "after {life}");
        }
    }
    verified(&pair, Level::L1).await;
}

#[tokio::test]
async fn a_part_that_is_damaged_in_the_first_vault_is_not_copied_and_later_backups_are() {
    let pair = Pair::of(two().await).await;
    let damaged = pair.first.catalog().await.backups[0].id();
    let part = layout::part(&pair.first.cluster, damaged, 1);
    let mut bytes = fs::read(pair.first.file(&part)).unwrap();
    bytes[100] ^= 1;
    fs::write(pair.first.file(&part), bytes).unwrap();
    let copied = pair.copy().await;
    assert_eq!(copied.backups.len(), 1);
    assert_eq!(copied.refused.len(), 1);
    assert_eq!(copied.refused[0].object, part.as_str());
    assert!(copied.refused[0].reason.contains("digest"), "{copied:?}");
    let catalog = pair.catalog().await;
    assert_eq!(catalog.backups.len(), 1);
    assert_ne!(catalog.backups[0].id(), damaged);
    let first = pair.first.catalog().await;
    let standing = standing(&pair.first.vault, &first, &pair.copy).await;
    let standing = standing.unwrap();
    assert_eq!((standing.held, standing.behind), (1, 1));
    assert_eq!(standing.since, Some(first.backups[0].observed));
}

#[tokio::test]
async fn a_vault_with_another_history_is_no_place_for_a_copy() {
    let pair = Pair::of(two().await).await;
    let other = two().await;
    let strange = other.vault;
    let refused = pair.copy_to(&strange).await.unwrap_err();
    assert!(matches!(refused, Error::ObjectExists { .. }), "{refused}");
}

#[tokio::test]
async fn what_was_let_go_leaves_a_copy_only_once_that_holds_all_that_is_kept() {
    let pair = Pair::of(two().await).await;
    pair.copy().await;
    let third = pair.first.backup(K8S, minute(2)).await;
    pair.first.prove(&third, Level::L3).await;
    let catalog = pair.first.catalog().await;
    let plan = plan_for(&catalog.facts(minute(30)), 1);
    assert_eq!(plan.release.len(), 2);
    let options = PruneOptions {
        signer: &pair.first.signer,
        trust: &pair.first.keys.trust,
        local: None,
        vault_now: None,
        now: minute(30),
        trash_grace: TimeDelta::zero(),
    };
    prune::execute_prune(&pair.first.vault, &pair.first.cluster, &plan, options)
        .await
        .unwrap();
    // The third does not reach the copy: it keeps the two.
    let part = layout::part(&pair.first.cluster, third.manifest.id, 0);
    let sound = fs::read(pair.first.file(&part)).unwrap();
    fs::write(pair.first.file(&part), b"short").unwrap();
    assert!(!pair.copy().await.refused.is_empty());
    assert_eq!(pair.catalog().await.backups.len(), 2);
    // It does: they are let go there as well.
    fs::write(pair.first.file(&part), sound).unwrap();
    assert_eq!(pair.copy().await.refused, []);
    let catalog = pair.catalog().await;
    assert_eq!(catalog.backups.len(), 1);
    assert_eq!(catalog.backups[0].id(), third.manifest.id);
    let compared = pair.compare().await;
    assert_eq!(compared.differences, []);
    assert!(compared.let_go > 0, "their bytes are still in the copy");
    // A copy made now is told of the gap and holds nothing of the two.
    let late = Pair::of(pair.first).await;
    late.copy().await;
    let problems = late.catalog().await.flaws;
    assert_eq!(problems, []);
}

#[tokio::test]
async fn differences_are_told_by_object_and_by_side() {
    let pair = Pair::of(two().await).await;
    pair.copy().await;
    let catalog = pair.first.catalog().await;
    let (older, newer) = (catalog.backups[0].id(), catalog.backups[1].id());
    let cluster = &pair.first.cluster;
    let flip = |path: PathBuf| {
        let mut bytes = fs::read(&path).unwrap();
        bytes[50] ^= 4;
        fs::write(path, bytes).unwrap();
    };
    let missing = layout::part(cluster, older, 0);
    fs::remove_file(pair.file(&missing)).unwrap();
    let flipped = layout::part(cluster, older, 1);
    flip(pair.file(&flipped));
    let flipped_first = layout::part(cluster, newer, 0);
    flip(pair.first.file(&flipped_first));
    let manifest = layout::manifest(cluster, catalog.backups[0].manifest.sequence);
    fs::remove_file(pair.first.file(&manifest)).unwrap();
    let compared = pair.compare().await;
    let told: Vec<(&str, DifferenceKind)> = compared
        .differences
        .iter()
        .map(|one| (one.object.as_str(), one.kind))
        .collect();
    let mut wanted = vec![
        (manifest.as_str(), DifferenceKind::MissingInFirst),
        (missing.as_str(), DifferenceKind::MissingInSecond),
        (flipped.as_str(), DifferenceKind::DamagedInSecond),
        (flipped_first.as_str(), DifferenceKind::DamagedInFirst),
    ];
    wanted.sort_unstable();
    assert_eq!(told, wanted);
}
