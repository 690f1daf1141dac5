//! The two steps of letting go: what is in the trash is whole and comes back, and only time and a
//! second record make it go.

use std::fmt;
use std::fs;
use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use holdfast_policies::retention::Removal;
use holdfast_policies::{ClusterName, Level, SnapshotId};
use holdfast_restore::manifest::Link;
use holdfast_restore::pin::{self, Pin};
use holdfast_restore::prune::{self, PruneOptions, Pruned};
use holdfast_restore::release::{Release, Step, bring_back};
use holdfast_restore::sign::{self, Record};
use holdfast_restore::vault::layout;
use holdfast_restore::{Error, Flaw, FlawKind, Proof, proof};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::bench::{BASIC, Bench, K8S, SMALL, local_store, minute};
use super::faults::{IMMORTAL, Mortal, plan_for};

const GRACE: TimeDelta = TimeDelta::hours(72);

/// A store that removes nothing, as credentials without that permission.
#[derive(Debug)]
pub(crate) struct NoDelete(pub(crate) Arc<dyn ObjectStore>);

impl fmt::Display for NoDelete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("grudging")
    }
}

#[async_trait]
impl ObjectStore for NoDelete {
    async fn put_opts(&self, to: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.0.put_opts(to, bytes, how).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(to, how).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let refuse = |path: Result<Path>| {
            let path = path?.to_string();
            let source = "403 AccessDenied".into();
            Err(object_store::Error::PermissionDenied { path, source })
        };
        locations.map(refuse).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

/// Three backups at L2 of which one rule keeps the newest alone.
async fn three() -> Bench {
    let bench = Bench::new().await;
    for (n, golden) in (0..).zip([BASIC, SMALL, K8S]) {
        let captured = bench.backup(golden, minute(n)).await;
        bench.prove(&captured, Level::L2).await;
    }
    bench
}

fn options(bench: &Bench, after: TimeDelta, trash_grace: TimeDelta) -> PruneOptions<'_> {
    PruneOptions {
        signer: &bench.signer,
        trust: &bench.keys.trust,
        local: None,
        now: minute(30) + after,
        vault_now: None,
        trash_grace,
    }
}

/// Plans by `keep_last: 1` and prunes so long after the half hour.
async fn prune(bench: &Bench, after: TimeDelta, grace: TimeDelta) -> Pruned {
    let plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
    let options = options(bench, after, grace);
    let pruned = prune::execute_prune(&bench.vault, &bench.cluster, &plan, options).await;
    pruned.unwrap()
}

async fn bring(bench: &Bench, id: SnapshotId) -> holdfast_restore::Result<Release> {
    let wish = ("needed".to_owned(), minute(31), &bench.signer);
    bring_back(&bench.vault, &bench.catalog().await, id, wish).await
}

fn ids(bench: &[holdfast_restore::Backup]) -> Vec<SnapshotId> {
    bench.iter().map(holdfast_restore::Backup::id).collect()
}

#[tokio::test]
async fn a_backup_in_the_trash_is_whole_says_why_and_until_when_and_comes_back() {
    let bench = three().await;
    let all = ids(&bench.catalog().await.backups);
    let pruned = prune(&bench, TimeDelta::zero(), GRACE).await;
    assert_eq!(
        (pruned.trashed, pruned.removed),
        (all[..2].to_vec(), vec![])
    );
    let until = minute(30) + GRACE;
    assert_eq!(pruned.waiting, [(all[0], until), (all[1], until)]);

    let catalog = bench.catalog().await;
    assert_eq!(catalog.flaws, []);
    assert_eq!(ids(&catalog.backups), all[2..]);
    assert_eq!((catalog.trash.len(), catalog.orphans.len()), (2, 0));
    let trashed = catalog.trashed(all[0]).unwrap();
    assert_eq!(trashed.release.why(), "no rule keeps it");
    assert_eq!(trashed.release.until(TimeDelta::zero()), until);
    let unnamed = catalog.get(all[0]).unwrap_err().to_string();
    assert!(unnamed.contains("trash"), "{unnamed}");
    assert_eq!(bench.verify(all[0], Level::L2).await.level, Some(Level::L2));

    bring(&bench, all[0]).await.unwrap();
    let catalog = bench.catalog().await;
    assert_eq!(ids(&catalog.backups), [all[0], all[2]]);
    assert_eq!((catalog.trash.len(), catalog.flaws.len()), (1, 0));
    let again = bring(&bench, all[0]).await.unwrap_err();
    assert!(again.to_string().contains("not in the trash"), "{again}");
}

#[tokio::test]
async fn nothing_goes_before_the_time_its_record_names_whatever_the_policy_says_later() {
    let bench = three().await;
    assert_eq!(
        prune(&bench, TimeDelta::zero(), GRACE).await.trashed.len(),
        2
    );
    let pruned = prune(&bench, GRACE - TimeDelta::seconds(1), TimeDelta::zero()).await;
    assert_eq!((pruned.removed.len(), pruned.waiting.len()), (0, 2));
    let pruned = prune(&bench, GRACE, GRACE).await;
    assert_eq!((pruned.removed.len(), pruned.waiting.len()), (2, 0));
    let catalog = bench.catalog().await;
    assert_eq!((catalog.trash.len(), catalog.released.len()), (0, 2));
    assert_eq!(catalog.flaws, []);
    let gone = catalog.released[0].release.link.id;
    let refused = bring(&bench, gone).await.unwrap_err();
    assert!(refused.to_string().contains("was removed"), "{refused}");
}

#[tokio::test]
async fn a_backup_that_was_brought_back_goes_again_only_through_the_trash() {
    let bench = three().await;
    let id = bench.catalog().await.backups[0].id();
    prune(&bench, TimeDelta::zero(), GRACE).await;
    bring(&bench, id).await.unwrap();
    // The old record's time is over, and counts no more.
    let pruned = prune(&bench, GRACE, GRACE).await;
    assert_eq!(pruned.trashed, [id]);
    assert!(!pruned.removed.contains(&id), "{pruned:?}");
    let trashed = bench.catalog().await.trashed(id).unwrap().clone();
    assert_eq!(trashed.release.number, 2);
    assert_eq!(trashed.release.until(GRACE), minute(30) + GRACE * 2);
    let pruned = prune(&bench, GRACE * 2, GRACE).await;
    assert_eq!(pruned.removed, [id]);
    assert_eq!(bench.catalog().await.flaws, []);
}

#[tokio::test]
async fn a_pinned_backup_stays_in_the_trash_past_its_time() {
    let bench = three().await;
    let id = bench.catalog().await.backups[0].id();
    prune(&bench, TimeDelta::zero(), GRACE).await;
    let wish = Pin {
        id,
        cluster: bench.cluster.clone(),
        number: 0,
        is_pinned: true,
        reason: "wanted after all".to_owned(),
        at: minute(40),
    };
    pin::set(&bench.vault, wish, &bench.signer).await.unwrap();
    let pruned = prune(&bench, GRACE, GRACE).await;
    assert_eq!(pruned.held, [(id, "pinned".to_owned())]);
    assert_eq!(pruned.removed.len(), 1);
    bring(&bench, id).await.unwrap();
    assert!(bench.catalog().await.get(id).unwrap().is_pinned);
}

#[tokio::test]
async fn the_best_proven_backup_is_not_removed_from_the_trash_when_the_others_went_bad() {
    let bench = three().await;
    let newest = bench.catalog().await.backups[2].clone();
    prune(&bench, TimeDelta::zero(), GRACE).await;
    let damage = Flaw {
        kind: FlawKind::PartMissing,
        object: "parts/x".to_owned(),
        detail: "gone".to_owned(),
    };
    let found = Proof {
        level: None,
        at: minute(700),
        flaws: vec![damage],
        ..newest.proofs[0].clone()
    };
    proof::record(&bench.vault, &found, &bench.signer)
        .await
        .unwrap();
    let clocks = (minute(30) + GRACE, None);
    let decided = prune::removals(&bench.catalog().await, clocks, GRACE);
    assert_eq!(decided.len(), 2);
    for (_, removal) in decided {
        assert!(matches!(removal, Removal::Held(_)), "{removal:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_who_brings_back_and_who_removes_at_once_one_succeeds() {
    let (mut back, mut gone) = (0, 0);
    for _ in 0..20 {
        let bench = three().await;
        let id = bench.catalog().await.backups[0].id();
        prune(&bench, TimeDelta::zero(), GRACE).await;
        let plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
        let options = options(&bench, GRACE, GRACE);
        let (pruned, brought) = tokio::join!(
            prune::execute_prune(&bench.vault, &bench.cluster, &plan, options),
            bring(&bench, id)
        );
        // Brought back before the prune looked, it is none that the plan knows.
        let removed = pruned.map_or(Vec::new(), |pruned| pruned.removed);
        let catalog = bench.catalog().await;
        assert_eq!(catalog.flaws, []);
        if brought.is_ok() {
            back += 1;
            assert!(!removed.contains(&id), "{removed:?}");
            assert_eq!(bench.verify(id, Level::L2).await.level, Some(Level::L2));
        } else {
            gone += 1;
            assert!(removed.contains(&id), "{removed:?}");
            assert!(catalog.get_named(id).is_err());
        }
        assert_eq!(catalog.orphans, []);
    }
    assert_eq!(back + gone, 20);
}

#[tokio::test]
async fn a_return_killed_at_any_operation_leaves_it_in_the_trash_or_back_and_whole() {
    let bench = three().await;
    prune(&bench, TimeDelta::zero(), GRACE).await;
    let id = bench.catalog().await.trash[0].backup.id();
    for answer_is_lost in [false, true] {
        let catalog = bench.catalog().await;
        if catalog.trashed(id).is_err() {
            break;
        }
        // The one operation besides the look at the marker.
        let local = local_store(bench.folder.path());
        let mortal = Arc::new(Mortal::new(local, 2, answer_is_lost));
        let vault = bench.through(mortal).await;
        let wish = ("needed".to_owned(), minute(31), &bench.signer);
        drop(bring_back(&vault, &catalog, id, wish).await);
        assert_eq!(bench.verify(id, Level::L2).await.level, Some(Level::L2));
        assert_eq!(bench.catalog().await.flaws, []);
    }
    let wish = ("needed".to_owned(), minute(31), &bench.signer);
    let immortal = Arc::new(Mortal::new(
        local_store(bench.folder.path()),
        IMMORTAL,
        false,
    ));
    let vault = bench.through(immortal).await;
    let catalog = bench.catalog().await;
    if catalog.trashed(id).is_ok() {
        bring_back(&vault, &catalog, id, wish).await.unwrap();
    }
    assert!(bench.catalog().await.get(id).is_ok());
}

#[tokio::test]
async fn removals_that_are_denied_name_their_object_and_are_tried_again() {
    let bench = three().await;
    prune(&bench, TimeDelta::zero(), GRACE).await;
    let denied = bench
        .through(Arc::new(NoDelete(local_store(bench.folder.path()))))
        .await;
    for _ in 0..2 {
        let plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
        let options = options(&bench, GRACE, GRACE);
        let pruned = prune::execute_prune(&denied, &bench.cluster, &plan, options)
            .await
            .unwrap();
        assert_eq!((pruned.removed.len(), pruned.refused.len()), (0, 2));
        let (_, why) = &pruned.refused[0];
        assert!(why.contains("manifests/000000000001.json"), "{why}");
    }
    assert_eq!(prune(&bench, GRACE, GRACE).await.removed.len(), 2);
    let catalog = bench.catalog().await;
    assert_eq!((catalog.flaws.len(), catalog.orphans.len()), (0, 0));
}

#[tokio::test]
async fn a_removal_cut_short_before_its_parts_is_ended_by_the_next_run() {
    let bench = three().await;
    let first = bench.catalog().await.backups[0].clone();
    prune(&bench, TimeDelta::zero(), GRACE).await;
    let part = bench.file(&layout::part(&bench.cluster, first.id(), 0));
    let bytes = fs::read(&part).unwrap();
    assert_eq!(prune(&bench, GRACE, GRACE).await.removed.len(), 2);
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(&part, bytes).unwrap();
    assert_eq!(bench.catalog().await.orphans.len(), 1);
    prune(&bench, GRACE, GRACE).await;
    assert_eq!(bench.catalog().await.orphans, []);
}

/// What version 1 of the format wrote.
#[derive(serde::Serialize, serde::Deserialize)]
struct OldRelease {
    cluster: ClusterName,
    link: Link,
    at: DateTime<Utc>,
}

impl Record for OldRelease {
    const FORMAT: &'static str = "holdfast.release";
    const VERSION: u64 = 1;
}

#[tokio::test]
async fn what_version_1_let_go_and_did_not_remove_yet_is_in_the_trash() {
    let bench = three().await;
    let first = bench.catalog().await.backups[0].clone();
    let old = OldRelease {
        cluster: bench.cluster.clone(),
        link: first.link.clone(),
        at: minute(30),
    };
    let file = bench.file(&layout::manifest(&bench.cluster, first.manifest.sequence));
    let releases = file.parent().unwrap().with_file_name("releases");
    fs::create_dir_all(&releases).unwrap();
    let bytes = sign::sign(&old, &bench.signer).unwrap();
    fs::write(releases.join(format!("{}.json", first.id())), bytes).unwrap();
    let trashed = bench.catalog().await.trashed(first.id()).unwrap().clone();
    assert_eq!(trashed.release.step, Step::LetGo);
    assert_eq!(trashed.release.until(GRACE), minute(30) + GRACE);
    bring(&bench, first.id()).await.unwrap();
    assert!(bench.catalog().await.get(first.id()).is_ok());
}

#[tokio::test]
async fn a_record_that_nobody_trusted_signed_changes_nothing() {
    let bench = three().await;
    let catalog = bench.catalog().await;
    let stranger = holdfast_restore::Signer::generate();
    let id = catalog.backups[2].id();
    let forged = Release {
        cluster: bench.cluster.clone(),
        link: catalog.backups[2].link.clone(),
        at: minute(0),
        number: 0,
        step: Step::Removing,
    };
    let file = bench.file(&layout::manifest(
        &bench.cluster,
        catalog.backups[2].manifest.sequence,
    ));
    let releases = file.parent().unwrap().with_file_name("releases");
    fs::create_dir_all(&releases).unwrap();
    let bytes = sign::sign(&forged, &stranger).unwrap();
    fs::write(releases.join(format!("{id}.json")), bytes).unwrap();
    let after = bench.catalog().await;
    assert_eq!(ids(&after.backups), ids(&catalog.backups));
    assert_eq!(after.flaws[0].kind, FlawKind::RecordRefused);
    let refused = bring(&bench, id).await.unwrap_err();
    assert!(
        matches!(refused, Error::NothingToRestore { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn a_clock_set_forward_empties_no_trash_while_the_vaults_own_says_otherwise() {
    let bench = three().await;
    let all = bench.catalog().await.backups.len();
    let vault_now = bench.vault.clock(&bench.cluster).await.unwrap();
    let run = |after: TimeDelta, vault_after: TimeDelta| PruneOptions {
        vault_now: Some(vault_now + vault_after),
        ..options(&bench, after, GRACE)
    };
    for (after, vault_after, removed) in [
        (TimeDelta::zero(), TimeDelta::zero(), 0),
        (GRACE * 50, TimeDelta::hours(1), 0),
        (TimeDelta::hours(1), GRACE * 50, 0),
        (GRACE * 2, GRACE * 2, all - 1),
    ] {
        let plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
        let options = run(after, vault_after);
        let pruned = prune::execute_prune(&bench.vault, &bench.cluster, &plan, options)
            .await
            .unwrap();
        assert_eq!(pruned.removed.len(), removed, "{after} {vault_after}");
    }
    let probes = bench.files();
    let is_probe = |file: &std::path::PathBuf| file.to_string_lossy().contains("/clock/");
    assert!(!probes.iter().any(is_probe), "the probe was removed again");
}

#[tokio::test]
async fn a_word_about_times_counts_up_to_the_highest_place_it_names() {
    let bench = three().await;
    assert_eq!(bench.catalog().await.confirmed, None);
    for place in [3, 2, 3] {
        let word = holdfast_restore::confirmation::Confirmation {
            cluster: bench.cluster.clone(),
            sequence: holdfast_policies::Sequence(place),
            at: minute(40),
        };
        holdfast_restore::confirmation::record(&bench.vault, &word, &bench.signer)
            .await
            .unwrap();
        let confirmed = bench.catalog().await.confirmed;
        assert_eq!(confirmed, Some(holdfast_policies::Sequence(3)));
    }
}

#[tokio::test]
async fn a_manifest_says_what_its_backup_was_taken_for_and_one_of_version_1_its_schedule() {
    let bench = Bench::new().await;
    let asked = holdfast_restore::CaptureOptions {
        pool: holdfast_policies::Pool::Manual,
        ..bench.options(minute(0))
    };
    bench.try_backup(SMALL, &asked).await.unwrap();
    bench.backup(BASIC, minute(1)).await;
    let facts = bench.catalog().await.facts(minute(2));
    let pools: Vec<holdfast_policies::Pool> = facts.iter().map(|fact| fact.pool).collect();
    assert_eq!(
        pools,
        [
            holdfast_policies::Pool::Manual,
            holdfast_policies::Pool::Scheduled
        ]
    );
}
