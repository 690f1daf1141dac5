//! Backups that wait on this host for their vault, and what becomes of them.

use std::fs;

use holdfast_policies::{Generation, Sequence};
use holdfast_restore::copy::Copied;
use holdfast_restore::waiting::{Waiting, hand_over, make_room};
use holdfast_restore::{
    Captured, Catalog, Error, ReadWrite, Vault, VaultSpec, capture, claim, ledger,
};

use super::bench::{BASIC, Bench, Golden, K8S, SMALL, local_store, minute};
use super::faults::Mortal;

/// A host that has taken a backup before its vault went away.
struct Host {
    bench: Bench,
    folder: Vault<ReadWrite>,
}

impl Host {
    async fn new() -> Self {
        let bench = Bench::new().await;
        let ledger = bench.folder.path().join("ledger");
        let mut options = bench.options(minute(0));
        options.ledger = Some(ledger);
        bench.try_backup(SMALL, &options).await.unwrap();
        let path = bench.folder.path().join("waiting");
        let spec = VaultSpec::Local { path };
        let verifier = bench.signer.verifier();
        let folder = Vault::open_or_create(&spec, minute(1), &verifier).await;
        Self {
            folder: folder.unwrap(),
            bench,
        }
    }

    /// Takes a backup while the vault is away.
    async fn wait(&self, golden: Golden, n: i64) -> Captured {
        let mut options = self.bench.options(minute(n));
        options.ledger = Some(self.bench.folder.path().join("ledger"));
        options.generation = Some(Generation::FIRST);
        let (sealer, signer) = (&self.bench.sealer, &self.bench.signer);
        let source = golden.source();
        let taken = capture(&options, &source, &self.folder, sealer, signer, &|_| {});
        taken.await.unwrap()
    }

    async fn waiting(&self) -> Catalog {
        let (cluster, trust) = (&self.bench.cluster, &self.bench.keys.trust);
        Catalog::load(&self.folder, cluster, trust, None)
            .await
            .unwrap()
    }

    async fn hand_over_to(&self, vault: &Vault<ReadWrite>) -> Result<Copied, Error> {
        let (cluster, trust) = (&self.bench.cluster, &self.bench.keys.trust);
        hand_over(&self.folder, vault, cluster, trust, &|_| {}).await
    }

    fn known(&self) -> ledger::Ledger {
        let path = self.bench.folder.path().join("ledger");
        ledger::read_local(&path, &self.bench.cluster).unwrap()
    }
}

#[tokio::test]
async fn backups_taken_while_the_vault_is_away_take_their_places_in_its_chain_later() {
    let host = Host::new().await;
    let second = host.wait(BASIC, 1).await;
    let third = host.wait(K8S, 2).await;
    assert_eq!(second.manifest.sequence, Sequence(2));
    assert_eq!(third.manifest.predecessor, Some(second.link.clone()));
    let waiting = Waiting::of(&host.waiting().await);
    assert_eq!(waiting.backups, 2);
    assert_eq!(waiting.since, Some(minute(1)));
    let copied = host.hand_over_to(&host.bench.vault).await.unwrap();
    assert_eq!(copied.backups.len(), 2);
    let catalog = host.bench.catalog().await;
    assert_eq!(catalog.flaws, []);
    assert_eq!(catalog.backups.len(), 3);
    assert_eq!(Waiting::of(&host.waiting().await), Waiting::default());
    assert_eq!(host.waiting().await.orphans, []);
    // The next one follows them.
    let mut options = host.bench.options(minute(3));
    options.ledger = Some(host.bench.folder.path().join("ledger"));
    let fourth = host.bench.try_backup(SMALL, &options).await.unwrap();
    assert_eq!(fourth.manifest.predecessor, Some(third.link));
    assert_eq!(host.bench.catalog().await.flaws, []);
}

#[tokio::test]
async fn up15_a_hand_over_killed_between_any_two_operations_goes_on_and_loses_nothing() {
    let counted = Host::new().await;
    counted.wait(BASIC, 1).await;
    counted.wait(SMALL, 2).await;
    let immortal = 1_000_000;
    let local = local_store(counted.bench.folder.path());
    let mortal = std::sync::Arc::new(Mortal::new(local, immortal, false));
    let shared: std::sync::Arc<dyn object_store::ObjectStore> =
        std::sync::Arc::<Mortal>::clone(&mortal);
    let through = counted.bench.through(shared).await;
    counted.hand_over_to(&through).await.unwrap();
    let operations = mortal.used(immortal);
    for answer_is_lost in [false, true] {
        for life in (2..operations).step_by(3) {
            let host = Host::new().await;
            host.wait(BASIC, 1).await;
            host.wait(SMALL, 2).await;
            let local = local_store(host.bench.folder.path());
            let mortal = std::sync::Arc::new(Mortal::new(local, life, answer_is_lost));
            let through = host.bench.through(mortal).await;
            drop(host.hand_over_to(&through).await);
            let there = host.bench.catalog().await.backups.len();
            let here = host.waiting().await.backups.len();
            assert!(there + here >= 3, "{there} and {here} after {life}");
            host.hand_over_to(&host.bench.vault).await.unwrap();
            let catalog = host.bench.catalog().await;
            assert_eq!(catalog.flaws, [], "after {life}");
            assert_eq!(catalog.backups.len(), 3, "after {life}");
            assert_eq!(host.waiting().await.backups.len(), 0, "after {life}");
        }
    }
}

#[tokio::test]
async fn a_backup_that_had_to_make_room_is_a_gap_that_is_explained() {
    let host = Host::new().await;
    let second = host.wait(BASIC, 1).await;
    host.wait(SMALL, 2).await;
    let catalog = host.waiting().await;
    let limit = Waiting::of(&catalog).bytes;
    let by = (&host.bench.signer, minute(3));
    let gone = make_room(&host.folder, &catalog, (limit, 1), by).await;
    assert_eq!(gone.unwrap(), [second.manifest.id]);
    assert_eq!(host.waiting().await.backups.len(), 1);
    host.hand_over_to(&host.bench.vault).await.unwrap();
    let catalog = host.bench.catalog().await;
    assert_eq!(catalog.flaws, []);
    assert_eq!(catalog.backups.len(), 2);
    assert_eq!(host.known().head.unwrap().sequence, Sequence(3));
}

#[tokio::test]
async fn up14_nothing_is_handed_over_once_another_appliance_took_over() {
    let host = Host::new().await;
    host.wait(BASIC, 1).await;
    let catalog = host.bench.catalog().await;
    let signer = &host.bench.signer;
    claim::claim(&host.bench.vault, &catalog, minute(2), signer)
        .await
        .unwrap();
    let refused = host.hand_over_to(&host.bench.vault).await.unwrap_err();
    assert!(matches!(refused, Error::Replaced { .. }), "{refused}");
    assert_eq!(host.waiting().await.backups.len(), 1, "it stays here");
    assert_eq!(host.bench.catalog().await.backups.len(), 1);
    let parts = host.bench.folder.path().join("waiting");
    assert!(fs::read_dir(parts).unwrap().count() > 0);
}
