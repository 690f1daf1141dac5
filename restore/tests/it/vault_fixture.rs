//! A vault written by version 1 of the formats, kept as it was. It is never made again.

use std::path::{Path, PathBuf};

use holdfast_policies::Level;
use holdfast_restore::{
    Catalog, Identities, Keys, ReadOnly, Trust, Vault, VaultSpec, Verifier, VerifyOptions, verify,
};

use super::bench::{BASIC, SMALL, minute};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1")
}

#[tokio::test]
async fn a_vault_of_version_1_reads_as_it_did() {
    let spec = VaultSpec::Local { path: fixture().join("vault") };
    let vault = Vault::<ReadOnly>::open(&spec).await.unwrap();
    let keys = Keys {
        trust: Trust::in_keys([Verifier::load(&fixture().join("verifying-key")).unwrap()]),
        identities: Some(Identities::load(&fixture().join("identity")).unwrap()),
    };
    let cluster = "golden".parse().unwrap();
    assert_eq!(vault.clusters().await.unwrap(), [cluster]);
    let cluster = "golden".parse().unwrap();
    let catalog = Catalog::load(&vault, &cluster, &keys.trust, None).await.unwrap();
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
        let proof = verify(&vault, &catalog, id, &keys, &options, &|_| {}).await.unwrap();
        assert_eq!(proof.flaws, []);
        assert_eq!(proof.level, Some(Level::L2));
        assert_eq!(proof.evidence.hash_kv, Some(golden.1));
    }
}
