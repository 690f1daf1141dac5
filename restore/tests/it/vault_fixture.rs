//! A vault written by version 1 of the formats, kept as it was. It is never made again.

use std::fs;
use std::path::{Path, PathBuf};

use chrono::TimeDelta;
use holdfast_policies::Level;
use holdfast_restore::{
    Catalog, Identities, Keys, ReadOnly, Trust, Vault, VaultSpec, Verifier, VerifyOptions, verify,
};

use holdfast_restore::pin::{self, Pin};
use holdfast_restore::proof;
use holdfast_restore::prune::{self, PruneOptions};

use super::bench::{BASIC, Bench, K8S, SMALL, local_store, minute};
use super::faults::plan_for;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1")
}

#[tokio::test]
async fn a_vault_of_version_1_reads_as_it_did() {
    let spec = VaultSpec::Local {
        path: fixture().join("vault"),
    };
    let vault = Vault::<ReadOnly>::open(&spec).await.unwrap();
    let keys = Keys {
        trust: Trust::in_keys([Verifier::load(&fixture().join("verifying-key")).unwrap()]),
        identities: Some(Identities::load(&fixture().join("identity")).unwrap()),
    };
    let cluster = "golden".parse().unwrap();
    assert_eq!(vault.clusters().await.unwrap(), [cluster]);
    let cluster = "golden".parse().unwrap();
    let catalog = Catalog::load(&vault, &cluster, &keys.trust, None)
        .await
        .unwrap();
    assert_eq!(catalog.flaws, []);
    assert_eq!(catalog.ledger.highest, 452);
    assert_eq!((catalog.backups.len(), catalog.released.len()), (2, 1));
    assert!(catalog.backups[0].is_pinned);
    let work = tempfile::tempdir().unwrap();
    for (backup, golden) in catalog.backups.iter().zip([SMALL, BASIC]) {
        assert_eq!(backup.level(), Some(Level::L2));
        let options = VerifyOptions {
            upto: Level::L2,
            now: minute(0),
            work_dir: work.path().to_owned(),
        };
        let id = backup.id();
        let proof = verify(&vault, &catalog, id, &keys, &options, &|_| {})
            .await
            .unwrap();
        assert_eq!(proof.flaws, []);
        assert_eq!(proof.level, Some(Level::L2));
        assert_eq!(proof.evidence.hash_kv, Some(golden.1));
    }
}

/// How the fixture was made. It refuses to make it again: a fixture that follows the code proves
/// nothing about the vaults that are out there.
#[tokio::test]
#[ignore = "made once, by the first version of the formats"]
async fn make_the_fixture_of_version_1() {
    let folder = fixture();
    assert!(!folder.exists(), "a fixture is never made again");
    fs::create_dir_all(&folder).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let store = local_store(scratch.path());
    let bench = Bench {
        cluster: "golden".parse().unwrap(),
        ..Bench::over(scratch, store).await
    };
    for (n, golden) in (0..).zip([K8S, SMALL, BASIC]) {
        let captured = bench.backup(golden, minute(n)).await;
        let proof = bench.verify(captured.manifest.id, Level::L2).await;
        proof::record(&bench.vault, &proof, &bench.signer)
            .await
            .unwrap();
        if golden.0 == SMALL.0 {
            let wish = Pin {
                id: captured.manifest.id,
                cluster: bench.cluster.clone(),
                number: 0,
                is_pinned: true,
                reason: "part of the fixture".to_owned(),
                at: minute(10),
            };
            pin::set(&bench.vault, wish, &bench.signer).await.unwrap();
        }
    }
    let plan = plan_for(&bench.catalog().await.facts(minute(30)), 1);
    let options = PruneOptions {
        signer: &bench.signer,
        trust: &bench.keys.trust,
        local: None,
        now: minute(30),
        vault_now: None,
        trash_grace: TimeDelta::zero(),
    };
    prune::execute_prune(&bench.vault, &bench.cluster, &plan, options)
        .await
        .unwrap();
    fs::write(
        folder.join("verifying-key"),
        bench.signer.verifier().to_text(),
    )
    .unwrap();
    fs::copy(
        bench.folder.path().join("identity"),
        folder.join("identity"),
    )
    .unwrap();
    let root = bench.folder.path().join("vault");
    for file in bench.files() {
        let target = folder.join("vault").join(file.strip_prefix(&root).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&file, target).unwrap();
    }
}
