//! The process is killed between every two operations on the vault: before one, or after one whose
//! answer never came. What is there afterwards is whole, and the next run goes on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use chrono::TimeDelta;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use holdfast_policies::{
    BackupFact, Level, Listing, RetentionInput, RetentionPlan, RetentionPolicy,
};
use holdfast_restore::prune::{self, PruneOptions};
use holdfast_restore::{ReadBack, ReadWrite, Vault, capture, proof};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::bench::{BASIC, Bench, K8S, SMALL, local_store, minute};

/// Works for a number of operations and is dead from then on.
#[derive(Debug)]
pub(crate) struct Mortal {
    inner: Arc<dyn ObjectStore>,
    left: AtomicUsize,
    /// The last operation is carried out, and its answer lost.
    answer_is_lost: bool,
}

impl Mortal {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, life: usize, answer_is_lost: bool) -> Self {
        Self {
            inner,
            left: AtomicUsize::new(life),
            answer_is_lost,
        }
    }

    fn dead() -> object_store::Error {
        object_store::Error::Generic {
            store: "mortal",
            source: "killed".into(),
        }
    }

    /// Whether this operation is carried out, and whether its answer arrives.
    fn step(&self) -> (bool, bool) {
        let step = |left: usize| left.checked_sub(1);
        match self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, step)
        {
            Ok(1) => (true, !self.answer_is_lost),
            Ok(_) => (true, true),
            Err(_) => (false, false),
        }
    }

    pub(crate) fn used(&self, life: usize) -> usize {
        life - self.left.load(Ordering::SeqCst)
    }
}

impl fmt::Display for Mortal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mortal")
    }
}

#[async_trait]
impl ObjectStore for Mortal {
    async fn put_opts(
        &self,
        path: &Path,
        bytes: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let (is_done, is_answered) = self.step();
        if !is_done {
            return Err(Self::dead());
        }
        let done = self.inner.put_opts(path, bytes, opts).await;
        if is_answered { done } else { Err(Self::dead()) }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, opts).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        match self.step() {
            (true, true) => self.inner.get_opts(path, options).await,
            _ => Err(Self::dead()),
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let (is_done, is_answered) = self.step();
        if !is_done {
            return futures::stream::iter([Err(Self::dead())]).boxed();
        }
        let done = self.inner.delete_stream(locations);
        if is_answered {
            done
        } else {
            done.map(|_| Err(Self::dead())).boxed()
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.step() {
            (true, true) => self.inner.list(prefix),
            _ => futures::stream::iter([Err(Self::dead())]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

pub(crate) const IMMORTAL: usize = 1_000_000;

/// A vault with two backups, the older one proven.
async fn two() -> Bench {
    let bench = Bench::new().await;
    let first = bench.backup(BASIC, minute(0)).await;
    bench.prove(&first, Level::L3).await;
    bench.backup(SMALL, minute(1)).await;
    bench
}

#[tokio::test]
async fn a_backup_killed_between_any_two_operations_is_there_or_not_and_the_next_one_works() {
    let counted = two().await;
    let store = Arc::new(Mortal::new(
        local_store(counted.folder.path()),
        IMMORTAL,
        false,
    ));
    let shared: Arc<dyn ObjectStore> = Arc::<Mortal>::clone(&store);
    let vault = counted.through(shared).await;
    take(&counted, &vault).await.unwrap();
    let operations = store.used(IMMORTAL);
    assert!(operations >= 20, "{operations} operations");
    for answer_is_lost in [false, true] {
        // The first two operations open the vault.
        for life in 2..operations {
            let bench = two().await;
            let local = local_store(bench.folder.path());
            let mortal = Arc::new(Mortal::new(local, life, answer_is_lost));
            let vault = bench.through(mortal).await;
            let outcome = take(&bench, &vault).await;
            let catalog = bench.catalog().await;
            assert_eq!(catalog.flaws, [], "after {life}");
            assert!((2..=3).contains(&catalog.backups.len()), "after {life}");
            if outcome.is_ok() {
                assert_eq!(
                    catalog.backups.len(),
                    3,
                    "after {life}: success means it is there"
                );
            }
            for backup in &catalog.backups {
                assert_eq!(
                    backup.level().max(Some(Level::L0)),
                    backup.level(),
                    "after {life}"
                );
            }
            if catalog.backups.len() == 3 {
                let proof = bench.verify(catalog.backups[2].id(), Level::L2).await;
                assert_eq!(proof.level, Some(Level::L2), "after {life}");
            }
            let next = bench.backup(K8S, minute(9)).await;
            let proof = bench.verify(next.manifest.id, Level::L2).await;
            assert_eq!(proof.level, Some(Level::L2), "after {life}");
            let catalog = bench.catalog().await;
            prune::sweep_orphans(&bench.vault, &catalog, far_future())
                .await
                .unwrap();
            assert_eq!(bench.catalog().await.orphans, [], "after {life}");
        }
    }
}

async fn take(
    bench: &Bench,
    vault: &Vault<ReadWrite>,
) -> holdfast_restore::Result<holdfast_restore::Captured> {
    let mut options = bench.options(minute(2));
    options.read_back = ReadBack::Bytes;
    let source = BASIC.source();
    capture(
        &options,
        &source,
        vault,
        &bench.sealer,
        &bench.signer,
        &|_| {},
    )
    .await
}

fn far_future() -> chrono::DateTime<chrono::Utc> {
    chrono::DateTime::from_timestamp(32_503_680_000, 0).unwrap()
}

/// A policy that keeps the newest of what is there.
pub(crate) fn plan_for(facts: &[BackupFact], keep_last: u32) -> RetentionPlan {
    // The tests' clock stands still, the vault's does not.
    let seen_at_once = |fact: &BackupFact| BackupFact {
        observed: Some(fact.time),
        ..fact.clone()
    };
    let facts: Vec<BackupFact> = facts.iter().map(seen_at_once).collect();
    let newest = facts.last().unwrap();
    let policy = RetentionPolicy {
        keep_last,
        keep_hourly: 0,
        keep_daily: 0,
        keep_weekly: 0,
        keep_monthly: 0,
        keep_yearly: 0,
        keep_within: None,
        count_from: Level::L2,
        max_deletions: 100,
        ..RetentionPolicy::default()
    };
    let input = RetentionInput {
        occasion: newest.id,
        now: newest.time,
        vault_now: None,
        listing: Listing::Complete,
        confirmed: Some(newest.sequence),
    };
    policy.plan(&facts, &input).unwrap()
}

/// Four verified backups, the second one proven by a drill.
async fn four() -> Bench {
    let bench = Bench::new().await;
    for (n, golden) in (0..).zip([BASIC, SMALL, K8S, BASIC]) {
        let captured = bench.backup(golden, minute(n)).await;
        let level = if n == 1 { Level::L3 } else { Level::L2 };
        bench.prove(&captured, level).await;
    }
    bench
}

#[tokio::test]
async fn a_prune_killed_between_any_two_operations_is_finished_by_the_next_one() {
    let counted = four().await;
    let plan = plan_for(&counted.catalog().await.facts(minute(30)), 1);
    assert_eq!(
        plan.release.len(),
        2,
        "the newest and the proven one stay: {plan:?}"
    );
    let store = Arc::new(Mortal::new(
        local_store(counted.folder.path()),
        IMMORTAL,
        false,
    ));
    let shared: Arc<dyn ObjectStore> = Arc::<Mortal>::clone(&store);
    let vault = counted.through(shared).await;
    execute(&counted, &vault, &plan).await.unwrap();
    let operations = store.used(IMMORTAL);
    for answer_is_lost in [false, true] {
        for life in 2..operations {
            let bench = four().await;
            let before = bench.catalog().await;
            let plan = plan_for(&before.facts(minute(30)), 1);
            let local = local_store(bench.folder.path());
            let mortal = Arc::new(Mortal::new(local, life, answer_is_lost));
            let vault = bench.through(mortal).await;
            drop(execute(&bench, &vault, &plan).await);
            let between = bench.catalog().await;
            for backup in &between.backups {
                let proof = bench.verify(backup.id(), Level::L1).await;
                assert_eq!(proof.flaws, [], "after {life}: what is listed is whole");
            }
            assert!(
                between
                    .backups
                    .iter()
                    .any(|one| one.level() == Some(Level::L3))
            );
            let plan = plan_for(&between.facts(minute(30)), 1);
            execute(&bench, &bench.vault, &plan).await.unwrap();
            let after = bench.catalog().await;
            assert_eq!(after.flaws, [], "after {life}");
            assert_eq!(
                (after.backups.len(), after.orphans.len()),
                (2, 0),
                "after {life}"
            );
        }
    }
}

async fn execute(
    bench: &Bench,
    vault: &Vault<ReadWrite>,
    plan: &RetentionPlan,
) -> holdfast_restore::Result<prune::Pruned> {
    let options = PruneOptions {
        signer: &bench.signer,
        trust: &bench.keys.trust,
        local: None,
        now: minute(30),
        vault_now: None,
        trash_grace: TimeDelta::zero(),
    };
    let pruned = prune::execute_prune(vault, &bench.cluster, plan, options).await?;
    if let Some((id, reason)) = pruned.refused.first() {
        return Err(holdfast_restore::Error::Refused {
            reason: format!("{id}: {reason}"),
        });
    }
    Ok(pruned)
}

#[tokio::test]
async fn a_proof_killed_at_any_operation_is_there_or_not() {
    let bench = two().await;
    let catalog = bench.catalog().await;
    let id = catalog.backups[1].id();
    let verified = bench.verify(id, Level::L2).await;
    for answer_is_lost in [false, true] {
        for life in 1..3 {
            let local = local_store(bench.folder.path());
            let vault = bench
                .through(Arc::new(Mortal::new(local, life + 1, answer_is_lost)))
                .await;
            drop(proof::record(&vault, &verified, &bench.signer).await);
            let level = bench.catalog().await.get(id).unwrap().level();
            assert!(matches!(level, Some(Level::L0 | Level::L2)), "{level:?}");
        }
    }
}
