//! Carrying out retention plans: what goes, what must not, and what is left when stopped.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::TimeDelta;
use holdfast_policies::Level;
use holdfast_restore::pin::{self, Pin};
use holdfast_restore::prune::{self, PruneOptions};
use holdfast_restore::vault::layout;
use holdfast_restore::{Catalog, Error, FlawKind, Signer, Trust};

use super::bench::{BASIC, Bench, K8S, SMALL, minute};
use super::faults::plan_for;

async fn three(levels: [Level; 3]) -> Bench {
    let bench = Bench::new().await;
    for (n, (golden, level)) in (0..).zip([BASIC, SMALL, K8S].into_iter().zip(levels)) {
        let captured = bench.backup(golden, minute(n)).await;
        bench.prove(&captured, level).await;
    }
    bench
}

fn options(bench: &Bench) -> PruneOptions<'_> {
    PruneOptions {
        signer: &bench.signer,
        trust: &bench.keys.trust,
        local: None,
        now: minute(30),
        vault_now: None,
        trash_grace: TimeDelta::zero(),
    }
}

#[tokio::test]
async fn what_a_plan_releases_is_gone_whole_and_the_chain_still_holds() {
    let bench = three([Level::L2, Level::L2, Level::L2]).await;
    let before = bench.catalog().await;
    let plan = plan_for(&before.facts(minute(30)), 1);
    assert_eq!(plan.release.len(), 2);
    let pruned = prune::execute_prune(&bench.vault, &bench.cluster, &plan, options(&bench))
        .await
        .unwrap();
    assert_eq!(
        (&pruned.trashed, &pruned.removed),
        (&plan.release, &plan.release)
    );
    let after = bench.catalog().await;
    assert_eq!(after.flaws, []);
    assert_eq!((after.backups.len(), after.released.len()), (1, 2));
    assert_eq!(after.orphans, []);
    let of_gone = bench
        .files()
        .into_iter()
        .filter(|file| {
            plan.release
                .iter()
                .any(|id| file.to_string_lossy().contains(&id.to_string()))
        })
        .count();
    assert_eq!(of_gone, 4, "only their four release records name them");
    let next = bench.backup(BASIC, minute(40)).await;
    assert_eq!(next.manifest.sequence.0, 4);
    assert_eq!(bench.catalog().await.flaws, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_the_vault_while_others_write_and_prune_sees_no_damage() {
    let bench = three([Level::L2, Level::L2, Level::L2]).await;
    let is_done = AtomicBool::new(false);
    let write = async {
        for n in 0..25 {
            let captured = bench.backup(SMALL, minute(3 + n)).await;
            bench.prove(&captured, Level::L2).await;
            let plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
            // After everything was stored, by the vault's clock.
            let now = minute(100_000_000);
            let options = PruneOptions {
                now,
                ..options(&bench)
            };
            prune::execute_prune(&bench.vault, &bench.cluster, &plan, options)
                .await
                .unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    };
    let read = async {
        let mut loads = 0;
        while !is_done.load(Ordering::Relaxed) {
            let catalog = bench.catalog().await;
            assert_eq!(catalog.flaws, [], "load {loads}");
            let damaged = catalog.backups.iter().find(|one| !one.flaws.is_empty());
            assert!(damaged.is_none(), "load {loads}: {damaged:?}");
            loads += 1;
        }
        loads
    };
    let ((), loads) = tokio::join!(write, read);
    assert!(loads > 25, "{loads}");
}

#[tokio::test]
async fn a_plan_that_removes_the_last_proven_backup_is_refused() {
    let bench = three([Level::L3, Level::L2, Level::L2]).await;
    let mut plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
    let proven = bench.catalog().await.backups[0].id();
    assert!(
        !plan.release.contains(&proven),
        "the policy itself keeps it"
    );
    plan.release.push(proven);
    let refused = prune::execute_prune(&bench.vault, &bench.cluster, &plan, options(&bench))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("proven to L3"), "{refused}");
    assert_eq!(bench.catalog().await.backups.len(), 3);
}

#[tokio::test]
async fn a_pinned_backup_is_not_removed() {
    let bench = three([Level::L2, Level::L2, Level::L2]).await;
    let plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
    let mut wish = Pin {
        id: plan.release[0],
        cluster: bench.cluster.clone(),
        number: 0,
        is_pinned: true,
        reason: "before the upgrade".to_owned(),
        at: minute(5),
    };
    pin::set(&bench.vault, wish.clone(), &bench.signer)
        .await
        .unwrap();
    let refused = prune::execute_prune(&bench.vault, &bench.cluster, &plan, options(&bench))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("pinned"), "{refused}");
    assert!(
        bench
            .catalog()
            .await
            .get(wish.id)
            .unwrap()
            .fact(minute(30))
            .is_pinned
    );
    wish.is_pinned = false;
    pin::set(&bench.vault, wish, &bench.signer).await.unwrap();
    prune::execute_prune(&bench.vault, &bench.cluster, &plan, options(&bench))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_plan_made_before_the_newest_backup_is_refused() {
    let bench = three([Level::L2, Level::L2, Level::L2]).await;
    let plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
    bench.backup(BASIC, minute(20)).await;
    let refused = prune::execute_prune(&bench.vault, &bench.cluster, &plan, options(&bench))
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    assert_eq!(bench.catalog().await.backups.len(), 4);
}

#[tokio::test]
async fn a_vault_that_cannot_be_listed_is_not_pruned() {
    let bench = three([Level::L2, Level::L2, Level::L2]).await;
    let plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
    let manifests = bench.folder.path().join("vault/clusters/prod/manifests");
    fs::remove_dir_all(&manifests).unwrap();
    fs::write(&manifests, b"a file where a folder was").unwrap();
    let outcome = prune::execute_prune(&bench.vault, &bench.cluster, &plan, options(&bench)).await;
    assert!(outcome.is_err(), "{outcome:?}");
    let parts = bench.folder.path().join("vault/clusters/prod/parts");
    assert_eq!(
        fs::read_dir(parts).unwrap().count(),
        3,
        "nothing was removed"
    );
}

#[tokio::test]
async fn orphans_are_swept_by_age_and_never_while_a_manifest_is_in_doubt() {
    let bench = three([Level::L2, Level::L2, Level::L2]).await;
    let orphan = bench
        .folder
        .path()
        .join("vault/clusters/prod/parts/0190aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee/000000");
    fs::create_dir_all(orphan.parent().unwrap()).unwrap();
    fs::write(&orphan, b"left behind").unwrap();
    let catalog = bench.catalog().await;
    assert_eq!(catalog.orphans.len(), 1);
    let stored = catalog.orphans[0].modified;
    assert_eq!(
        prune::sweep_orphans(&bench.vault, &catalog, stored)
            .await
            .unwrap(),
        0
    );
    // With the wrong key nothing is believed, and everything looks like an orphan.
    let stranger = Trust::in_keys([Signer::generate().verifier()]);
    let blind = Catalog::load(&bench.vault, &bench.cluster, &stranger, None)
        .await
        .unwrap();
    assert_eq!(blind.backups.len(), 0);
    let later = stored + TimeDelta::days(1);
    let refused = prune::sweep_orphans(&bench.vault, &blind, later)
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::HistoryDamaged { .. }), "{refused}");
    assert_eq!(
        prune::sweep_orphans(&bench.vault, &catalog, later)
            .await
            .unwrap(),
        1
    );
    assert!(!orphan.exists());
    assert_eq!(bench.catalog().await.backups.len(), 3);
}

#[tokio::test]
async fn a_released_backup_that_comes_back_is_not_offered_and_is_removed_again() {
    let bench = three([Level::L2, Level::L2, Level::L2]).await;
    let first = bench.catalog().await.backups[0].clone();
    let path = bench.file(&layout::manifest(&bench.cluster, first.manifest.sequence));
    let kept = fs::read(&path).unwrap();
    let plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
    prune::execute_prune(&bench.vault, &bench.cluster, &plan, options(&bench))
        .await
        .unwrap();
    fs::write(&path, kept).unwrap();
    let catalog = bench.catalog().await;
    assert!(catalog.get(first.id()).is_err());
    let kinds: Vec<FlawKind> = catalog.flaws.iter().map(|flaw| flaw.kind).collect();
    assert_eq!(kinds, [FlawKind::ReleasedPresent]);
    let plan = plan_for(&catalog.facts(minute(30)), 1);
    let pruned = prune::execute_prune(&bench.vault, &bench.cluster, &plan, options(&bench))
        .await
        .unwrap();
    assert_eq!(pruned.removed, [first.id()]);
    assert_eq!(bench.catalog().await.flaws, []);
}

#[tokio::test]
async fn a_delete_that_is_denied_is_told_and_the_others_go_on() {
    let bench = three([Level::L2, Level::L2, Level::L2]).await;
    let plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
    let denied = plan.release[0];
    let parts = bench
        .folder
        .path()
        .join(format!("vault/clusters/prod/parts/{denied}"));
    // A folder that is not empty where a part is expected cannot be removed as an object, not even
    // by root, whom permissions do not stop.
    let part = parts.join("000000");
    fs::remove_file(&part).unwrap();
    fs::create_dir(&part).unwrap();
    fs::write(part.join("x"), b"x").unwrap();
    fs::set_permissions(&part, fs::Permissions::from_mode(0o700)).unwrap();
    let outcome = prune::execute_prune(&bench.vault, &bench.cluster, &plan, options(&bench))
        .await
        .unwrap();
    assert!(outcome.removed.contains(&plan.release[1]), "{outcome:?}");
}

#[tokio::test]
async fn proofs_and_ledger_records_of_a_stranger_name_its_key_and_count_for_nothing() {
    let bench = three([Level::L2, Level::L2, Level::L2]).await;
    let before = bench.catalog().await;
    let stranger = Signer::generate();
    let seen = holdfast_restore::Observation {
        cluster: bench.cluster.clone(),
        revision: before.highest_revision() + 1_000_000_000,
        at: minute(5),
        reason: holdfast_restore::ledger::Reason::Restore,
        head: None,
    };
    holdfast_restore::ledger::record(&bench.vault, &seen, &stranger)
        .await
        .unwrap();
    let mut proof = bench.verify(before.backups[0].id(), Level::L2).await;
    proof.level = Some(Level::L5);
    holdfast_restore::proof::record(&bench.vault, &proof, &stranger)
        .await
        .unwrap();
    let after = bench.catalog().await;
    let kinds: Vec<FlawKind> = after.flaws.iter().map(|flaw| flaw.kind).collect();
    assert_eq!(kinds, [FlawKind::RecordStranger; 2]);
    for flaw in &after.flaws {
        let text = flaw.to_string();
        assert!(text.contains(&stranger.verifier().to_text()), "{text}");
        assert!(text.contains("restore.trusted_signers"), "{text}");
    }
    assert_eq!(after.highest_revision(), before.highest_revision());
    assert_eq!(after.backups[0].level(), Some(Level::L2));
    let trust = Trust::in_keys([bench.signer.verifier(), stranger.verifier()]);
    let trusting = Catalog::load(&bench.vault, &bench.cluster, &trust, None).await;
    let trusting = trusting.unwrap();
    assert_eq!(trusting.flaws, []);
    assert_eq!(trusting.highest_revision(), seen.revision);
}

#[tokio::test]
async fn a_pin_of_a_stranger_stays_a_refused_record() {
    let bench = three([Level::L2, Level::L2, Level::L2]).await;
    let wish = Pin {
        id: bench.catalog().await.backups[0].id(),
        cluster: bench.cluster.clone(),
        number: 0,
        is_pinned: true,
        reason: "mine".to_owned(),
        at: minute(5),
    };
    pin::set(&bench.vault, wish, &Signer::generate())
        .await
        .unwrap();
    let kinds: Vec<FlawKind> = bench.catalog().await.flaws.iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [FlawKind::RecordRefused]);
}

#[tokio::test]
async fn a_catalog_without_the_right_key_says_who_signed() {
    let bench = three([Level::L2, Level::L2, Level::L2]).await;
    let blind = Catalog::load(&bench.vault, &bench.cluster, &Trust::default(), None).await;
    let strangers: Vec<String> = blind.unwrap().strangers.into_iter().collect();
    assert_eq!(strangers, [bench.signer.verifier().to_text()]);
    assert!(bench.catalog().await.strangers.is_empty());
}
