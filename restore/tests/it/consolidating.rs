//! Backups that are made of a backup and the changes after it.

use holdfast_policies::Level;
use holdfast_proto::store::v1::command::Request;
use holdfast_restore::consolidate::{KIND, consolidate, plan_consolidation};
use holdfast_restore::delta::release::{plan_release, release};
use holdfast_restore::{CaptureOptions, Captured, Pick, Upto, VerifyOptions, capture, verify};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::bench::minute;
use super::deltas::{Following, assert_same, put};

async fn consolidated(following: &Following) -> Option<Captured> {
    let (bench, catalog) = (&following.bench, following.bench.catalog().await);
    let runs = following.runs().await;
    let plan = plan_consolidation(&catalog, &runs, &bench.work_dir()).unwrap()?;
    let options = CaptureOptions {
        generation: Some(plan.generation),
        ..bench.options(plan.time)
    };
    let vault = bench.vault.read_only();
    let source = consolidate(&vault, plan, &bench.keys, &|_| {})
        .await
        .unwrap();
    let captured = capture(
        &options,
        &source,
        &bench.vault,
        &bench.sealer,
        &bench.signer,
        &|_| {},
    );
    Some(captured.await.unwrap())
}

#[tokio::test]
async fn a_consolidated_backup_has_the_hash_of_its_source_and_is_followed_by_what_comes() {
    for seed in 10..14 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut following = Following::begin(3).await;
        for n in 0..40 {
            following.live.step(&mut random);
            if n % 3 == 2 {
                following.cut().await;
            }
        }
        following.live.apply(Request::Put(put(1, "last", 0)));
        following.cut().await;
        let at = following.live.state.revision();
        let told = following.live.hashes[&at];
        let captured = consolidated(&following).await.unwrap();
        assert_eq!(captured.warnings, [""; 0], "seed {seed}");
        let manifest = &captured.manifest;
        let first = &following.captured.manifest;
        assert_eq!(manifest.source.kind, KIND);
        assert!(manifest.source.endpoint.contains(&first.id.to_string()));
        assert_eq!(manifest.generation, first.generation);
        assert_eq!(manifest.started, following.clock, "its state is that old");
        let content = &manifest.content;
        assert_eq!(
            (content.revision, content.hash_kv, content.compact_revision),
            (at, told.hash, told.compact_revision),
            "seed {seed}"
        );
        let (bench, catalog) = (&following.bench, following.bench.catalog().await);
        let options = VerifyOptions {
            upto: Level::L2,
            now: minute(60),
            work_dir: bench.work_dir(),
        };
        let proof = verify(
            &bench.vault,
            &catalog,
            manifest.id,
            &bench.keys,
            &options,
            &|_| {},
        );
        assert_eq!(proof.await.unwrap().level, Some(Level::L2));
        assert!(
            consolidated(&following).await.is_none(),
            "nothing is left to do"
        );

        // It stands for itself: without the first backup and the deltas before it.
        let mut left = following.bench.catalog().await;
        left.backups.retain(|one| one.id() == captured.manifest.id);
        let plan = plan_release(&left, &following.runs().await);
        following.live.apply(Request::Put(put(2, "later", 0)));
        following.cut().await;
        let by = (minute(61), &following.bench.signer);
        let (vault, cluster) = (&following.bench.vault, &following.bench.cluster);
        release(vault, cluster, &plan, by).await.unwrap();
        for revision in [at, at + 1] {
            let name = format!("{revision}");
            let restored = following.restored(Upto::Revision(revision), &name).await;
            assert_same(&following.live, &restored.unwrap(), revision);
        }
        let newest = following
            .restored(Upto::Newest(Pick::Latest), "newest")
            .await;
        assert_same(&following.live, &newest.unwrap(), at + 1);
    }
}
