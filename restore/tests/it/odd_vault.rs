//! Vaults that somebody was careless with: what is whole in them is still to be had.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use holdfast_policies::Level;
use holdfast_restore::{
    Catalog, Error, ErrorKind, FlawKind, ReadOnly, ReadWrite, Vault, VaultSpec, VerifyOptions,
    verify,
};

use super::bench::{Bench, SMALL, minute, noon};

/// A vault with one backup, as a host that has only its folder opens it.
async fn stored() -> (Bench, VaultSpec, PathBuf) {
    let bench = Bench::new().await;
    bench.backup(SMALL, minute(0)).await;
    let marker = bench.file(&holdfast_restore::vault::layout::marker());
    let path = marker.parent().unwrap().to_owned();
    (bench, VaultSpec::Local { path }, marker)
}

async fn catalog(bench: &Bench, vault: &Vault<ReadOnly>) -> Catalog {
    Catalog::load(vault, &bench.cluster, &bench.keys.trust, None)
        .await
        .unwrap()
}

/// Every byte of the backup is read and proven.
async fn prove(bench: &Bench, vault: &Vault<ReadOnly>, catalog: &Catalog) {
    let options = VerifyOptions {
        upto: Level::L2,
        now: minute(1),
        work_dir: bench.work_dir(),
    };
    let id = catalog.newest().unwrap().id();
    let proof = verify(vault, catalog, id, &bench.keys, &options, &|_| {})
        .await
        .unwrap();
    assert_eq!(proof.level, Some(Level::L2), "{:?}", proof.flaws);
}

#[tokio::test]
async fn names_that_are_no_objects_are_told_and_everything_else_goes_on() {
    let (bench, spec, marker) = stored().await;
    let cluster = marker.with_file_name("clusters").join("prod");
    symlink("..", cluster.join("parts/up")).unwrap();
    symlink("loop", cluster.join("manifests/loop")).unwrap();
    fs::create_dir_all(cluster.join("proofs")).unwrap();
    fs::write(cluster.join("proofs/a\u{1}b"), "x").unwrap();
    let vault = Vault::<ReadOnly>::open(&spec).await.unwrap();
    let clusters = vault.clusters().await.unwrap();
    assert_eq!(clusters, std::slice::from_ref(&bench.cluster));
    let catalog = catalog(&bench, &vault).await;
    let told: Vec<(FlawKind, &str)> = catalog
        .flaws
        .iter()
        .map(|flaw| (flaw.kind, flaw.object.as_str()))
        .collect();
    for object in ["parts/up", "manifests/loop", "proofs/a\\u{1}b"] {
        let object = format!("clusters/prod/{object}");
        let flaw = (FlawKind::NameRefused, object.as_str());
        assert!(told.contains(&flaw), "{flaw:?} is not told: {told:?}");
    }
    prove(&bench, &vault, &catalog).await;
}

#[tokio::test]
async fn a_vault_that_lost_its_marker_is_read_and_not_written() {
    for damage in [None, Some("{ not json")] {
        let (bench, spec, marker) = stored().await;
        fs::remove_file(&marker).unwrap();
        if let Some(text) = damage {
            fs::write(&marker, text).unwrap();
        }
        let vault = Vault::<ReadOnly>::open(&spec).await.unwrap();
        assert_eq!(vault.doubt().unwrap().kind, FlawKind::MarkerLost);
        let catalog = catalog(&bench, &vault).await;
        assert_eq!(catalog.flaws[0].kind, FlawKind::MarkerLost);
        prove(&bench, &vault, &catalog).await;

        let made = bench.signer.verifier();
        let opened = Vault::<ReadWrite>::open(&spec).await.unwrap_err();
        let created = Vault::open_or_create(&spec, noon(), &made).await;
        for refused in [opened, created.unwrap_err()] {
            assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
            let is_lost = matches!(refused, Error::MarkerLost { .. });
            assert_eq!(is_lost, damage.is_none(), "{refused}");
        }
        let renewed = Vault::open_or_renew(&spec, noon(), &made).await;
        assert_eq!(renewed.is_ok(), damage.is_none());
        let vault = Vault::<ReadOnly>::open(&spec).await.unwrap();
        assert_eq!(vault.doubt().is_some(), damage.is_some());
    }
}

#[tokio::test]
async fn a_place_without_marker_and_backups_is_no_vault() {
    let (_bench, spec, marker) = stored().await;
    fs::remove_file(&marker).unwrap();
    fs::remove_dir_all(marker.with_file_name("clusters")).unwrap();
    let opened = Vault::<ReadOnly>::open(&spec).await;
    assert!(matches!(opened, Err(Error::NotAVault { .. })));
}
