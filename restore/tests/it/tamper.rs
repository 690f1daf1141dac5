//! Each way of tampering is detected and called by its name.

use std::fs;

use holdfast_policies::Level;
use holdfast_restore::vault::layout;
use holdfast_restore::{
    Captured, Catalog, FlawKind, Identities, Keys, Ledger, Manifest, Pick, RestoreOptions,
    RestorePlan, Signer, Target, Trust, key, plan_restore,
};

use super::bench::{BASIC, Bench, K8S, SMALL, minute};

async fn three() -> (Bench, [Captured; 3]) {
    let bench = Bench::new().await;
    let captured = [
        bench.backup(BASIC, minute(0)).await,
        bench.backup(SMALL, minute(1)).await,
        bench.backup(K8S, minute(2)).await,
    ];
    (bench, captured)
}

/// What verification finds, by kind.
async fn found(bench: &Bench, captured: &Captured) -> Vec<FlawKind> {
    let proof = bench.verify(captured.manifest.id, Level::L2).await;
    assert!(proof.level < Some(Level::L1), "{:?}", proof.flaws);
    proof.flaws.iter().map(|flaw| flaw.kind).collect()
}

fn manifest_path(bench: &Bench, captured: &Captured) -> std::path::PathBuf {
    bench.file(&layout::manifest(
        &bench.cluster,
        captured.manifest.sequence,
    ))
}

fn part_path(bench: &Bench, captured: &Captured, index: usize) -> std::path::PathBuf {
    bench.file(&layout::part(&bench.cluster, captured.manifest.id, index))
}

fn kinds(catalog: &Catalog) -> Vec<FlawKind> {
    catalog.flaws.iter().map(|flaw| flaw.kind).collect()
}

#[tokio::test]
async fn en5_a_flipped_byte_in_a_part() {
    let (bench, [_, target, _]) = three().await;
    let path = part_path(&bench, &target, 3);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(found(&bench, &target).await, [FlawKind::PartChanged]);
    let proof = bench.verify(target.manifest.id, Level::L2).await;
    assert!(
        proof.flaws[0].object.ends_with("/000003"),
        "{}",
        proof.flaws[0]
    );
}

#[tokio::test]
async fn en7_a_missing_part() {
    let (bench, [_, target, _]) = three().await;
    fs::remove_file(part_path(&bench, &target, 0)).unwrap();
    assert_eq!(found(&bench, &target).await, [FlawKind::PartMissing]);
    let catalog = bench.catalog().await;
    let backup = catalog.get(target.manifest.id).unwrap();
    assert_eq!((backup.level(), backup.is_damaged()), (None, true));
}

#[tokio::test]
async fn en5_a_shortened_and_a_lengthened_part() {
    let (bench, [_, target, _]) = three().await;
    let path = part_path(&bench, &target, 1);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(found(&bench, &target).await, [FlawKind::PartSize]);
    fs::write(&path, [&bytes[..], b"x"].concat()).unwrap();
    assert_eq!(found(&bench, &target).await, [FlawKind::PartSize]);
}

#[tokio::test]
async fn en6_swapped_parts() {
    let bench = Bench::new().await;
    // Parts of equal stored size can be exchanged without changing any size.
    let mut options = bench.options(minute(0));
    options.part_bytes = 64 * 1024;
    let target = bench.try_backup(SMALL, &options).await.unwrap();
    let (first, second) = (part_path(&bench, &target, 1), part_path(&bench, &target, 2));
    let (one, two) = (fs::read(&first).unwrap(), fs::read(&second).unwrap());
    fs::write(&first, &two).unwrap();
    fs::write(&second, &one).unwrap();
    let kinds = found(&bench, &target).await;
    let expected = if one.len() == two.len() {
        FlawKind::PartSwapped
    } else {
        FlawKind::PartSize
    };
    assert_eq!(kinds, [expected, expected]);
}

#[tokio::test]
async fn en6_swapped_parts_of_equal_size() {
    let bench = Bench::new().await;
    let path = bench.folder.path().join("even.db");
    fs::write(&path, super::flips::even_snapshot()).unwrap();
    let source = holdfast_restore::FileSource::new(&path);
    let sealer = holdfast_restore::Sealer::none();
    let target = holdfast_restore::capture(
        &bench.options(minute(0)),
        &source,
        &bench.vault,
        &sealer,
        &bench.signer,
        &|_| {},
    )
    .await
    .unwrap();
    let parts = &target.manifest.parts;
    let (a, b) = super::flips::equal_sized_pair(parts).expect("two parts of one size");
    let (first, second) = (part_path(&bench, &target, a), part_path(&bench, &target, b));
    let (one, two) = (fs::read(&first).unwrap(), fs::read(&second).unwrap());
    fs::write(&first, &two).unwrap();
    fs::write(&second, &one).unwrap();
    assert_eq!(
        found(&bench, &target).await,
        [FlawKind::PartSwapped, FlawKind::PartSwapped]
    );
}

#[tokio::test]
async fn en4_an_edited_manifest() {
    let (bench, [_, target, _]) = three().await;
    let path = manifest_path(&bench, &target);
    let text = fs::read_to_string(&path).unwrap();
    let edited = text.replace("\"revision\":452", "\"revision\":999");
    assert_ne!(text, edited);
    fs::write(&path, edited).unwrap();
    let catalog = bench.catalog().await;
    assert_eq!(kinds(&catalog), [FlawKind::ManifestEdited]);
    assert_eq!(catalog.backups.len(), 2, "an edited manifest is no backup");
    assert!(catalog.get(target.manifest.id).is_err());
}

#[tokio::test]
async fn a_manifest_edited_between_catalog_and_verification() {
    let (bench, [_, target, _]) = three().await;
    let catalog = bench.catalog().await;
    fs::write(manifest_path(&bench, &target), b"{}").unwrap();
    let options = holdfast_restore::VerifyOptions {
        upto: Level::L2,
        now: minute(9),
        work_dir: bench.work_dir(),
    };
    let id = target.manifest.id;
    let proof =
        holdfast_restore::verify(&bench.vault, &catalog, id, &bench.keys, &options, &|_| {})
            .await
            .unwrap();
    assert_eq!(proof.level, None);
    assert_eq!(proof.flaws[0].kind, FlawKind::ManifestEdited);
}

#[tokio::test]
async fn en6_an_older_manifest_put_in_the_place_of_a_newer_one() {
    let (bench, [older, newer, _]) = three().await;
    fs::copy(manifest_path(&bench, &older), manifest_path(&bench, &newer)).unwrap();
    let catalog = bench.catalog().await;
    assert_eq!(kinds(&catalog), [FlawKind::ManifestReplaced]);
    assert!(catalog.flaws[0].object.ends_with("000000000002.json"));
    assert!(catalog.get(newer.manifest.id).is_err());
}

#[tokio::test]
async fn a_genuine_but_other_manifest_in_a_place_is_contradicted_by_its_successor() {
    let (bench, [_, middle, _]) = three().await;
    // The same key signs another story for place 2: only the chain can tell.
    let other = Manifest {
        writer: "other".to_owned(),
        ..middle.manifest.clone()
    };
    fs::write(
        manifest_path(&bench, &middle),
        other.encode(&bench.signer).unwrap(),
    )
    .unwrap();
    let catalog = bench.catalog().await;
    assert_eq!(kinds(&catalog), [FlawKind::ManifestReplaced]);
    assert!(catalog.flaws[0].object.ends_with("000000000002.json"));
    assert_eq!(found(&bench, &middle).await, [FlawKind::ManifestReplaced]);
}

#[tokio::test]
async fn en7_a_deleted_middle_manifest() {
    let (bench, [_, middle, last]) = three().await;
    fs::remove_file(manifest_path(&bench, &middle)).unwrap();
    let catalog = bench.catalog().await;
    assert_eq!(kinds(&catalog), [FlawKind::ManifestMissing]);
    assert!(catalog.flaws[0].object.ends_with("000000000002.json"));
    assert_eq!(
        bench.verify(last.manifest.id, Level::L2).await.level,
        Some(Level::L2)
    );
    assert_eq!(catalog.orphans.len(), middle.manifest.parts.len());
}

#[tokio::test]
async fn en7_the_newest_backups_deleted() {
    let (bench, [_, _, last]) = three().await;
    fs::remove_file(manifest_path(&bench, &last)).unwrap();
    let catalog = bench.catalog().await;
    assert_eq!(
        kinds(&catalog),
        [FlawKind::HeadMissing],
        "the ledger in the vault knows it"
    );
    // Somebody thorough removes the ledger in the vault too; the appliance has its own.
    for record in fs::read_dir(bench.folder.path().join("vault/clusters/prod/ledger")).unwrap() {
        fs::remove_file(record.unwrap().path()).unwrap();
    }
    assert_eq!(kinds(&bench.catalog().await), []);
    let local = Ledger {
        highest: 452,
        head: Some(last.link.clone()),
    };
    let trust = &bench.keys.trust;
    let catalog = Catalog::load(&bench.vault, &bench.cluster, trust, Some(&local))
        .await
        .unwrap();
    assert_eq!(kinds(&catalog), [FlawKind::HeadMissing]);
    // The next backup does not take the deleted one's place.
    let ledger_path = bench.folder.path().join("ledger.json");
    let mut options = bench.options(minute(5));
    options.ledger = Some(ledger_path.clone());
    let observation = holdfast_restore::Observation {
        cluster: bench.cluster.clone(),
        revision: 452,
        at: minute(3),
        reason: holdfast_restore::ledger::Reason::Backup,
        head: Some(last.link.clone()),
    };
    holdfast_restore::ledger::record_local(&ledger_path, &observation).unwrap();
    let next = bench.try_backup(BASIC, &options).await.unwrap();
    assert_eq!(next.manifest.sequence.0, 4);
    assert_eq!(next.manifest.predecessor, Some(last.link));
}

/// Nothing is wrong with the backup that is left; what is missing after it has to be said.
#[tokio::test]
async fn a_restore_of_the_newest_after_a_roll_back_warns_of_what_is_gone() {
    let (bench, [_, left, last]) = three().await;
    let folder = bench.folder.path().join("new");
    let options = RestoreOptions {
        work_dir: Some(bench.work_dir()),
        ..RestoreOptions::single(Target::Etcd, folder, "m0", "http://127.0.0.1:2380")
    };
    let named = |plan: &RestorePlan| {
        let mut warnings = plan.warnings.iter();
        warnings.any(|warning| warning.contains("manifests/000000000003.json"))
    };
    let whole = plan_restore(&bench.catalog().await, Pick::Latest, &options).unwrap();
    assert_eq!(whole.id, last.manifest.id);
    assert!(!named(&whole), "{:?}", whole.warnings);

    fs::remove_file(manifest_path(&bench, &last)).unwrap();
    let rolled_back = plan_restore(&bench.catalog().await, Pick::Latest, &options).unwrap();
    assert_eq!(rolled_back.id, left.manifest.id);
    assert!(named(&rolled_back), "{:?}", rolled_back.warnings);
    // The revision still passes everything that the lost backup knew of.
    assert!(rolled_back.revision_after > last.manifest.content.revision);
}

#[tokio::test]
async fn en1_a_wrong_identity() {
    let (bench, [_, target, _]) = three().await;
    let path = bench.folder.path().join("other-identity");
    key::generate_identity(&path).unwrap();
    let keys = Keys {
        trust: bench.keys.trust.clone(),
        identities: Some(Identities::load(&path).unwrap()),
    };
    let proof = bench
        .verify_with(target.manifest.id, Level::L2, &keys)
        .await;
    assert_eq!(proof.level, Some(Level::L0));
    assert_eq!(proof.flaws[0].kind, FlawKind::WrongIdentity);
    assert!(
        proof.flaws[0].detail.contains("x25519:"),
        "{}",
        proof.flaws[0]
    );
    holdfast_restore::proof::record(&bench.vault, &proof, &bench.signer)
        .await
        .unwrap();
    let catalog = bench.catalog().await;
    let backup = catalog.get(target.manifest.id).unwrap();
    assert!(
        !backup.is_damaged(),
        "a wrong key at hand is not damage to the backup"
    );
}

#[tokio::test]
async fn en6_another_clusters_manifest_in_this_clusters_folder() {
    let (bench, [_, target, _]) = three().await;
    let mut other = Bench {
        cluster: "staging".parse().unwrap(),
        ..bench
    };
    let foreign = other.backup(BASIC, minute(3)).await;
    let from = manifest_path(&other, &foreign);
    other.cluster = "prod".parse().unwrap();
    fs::copy(from, manifest_path(&other, &target)).unwrap();
    let catalog = other.catalog().await;
    assert_eq!(kinds(&catalog), [FlawKind::WrongCluster]);
}

#[tokio::test]
async fn en6_parts_of_one_backup_in_another() {
    let (bench, [first, second, _]) = three().await;
    fs::copy(part_path(&bench, &first, 1), part_path(&bench, &second, 1)).unwrap();
    let kinds = found(&bench, &second).await;
    assert!(
        matches!(kinds[..], [FlawKind::PartSize | FlawKind::PartChanged]),
        "{kinds:?}"
    );
}

#[tokio::test]
async fn a_forged_proof_does_not_count() {
    let (bench, [target, other, _]) = three().await;
    bench.prove(&other, Level::L5).await;
    let proofs = |captured: &Captured| {
        bench.folder.path().join(format!(
            "vault/clusters/prod/proofs/{}",
            captured.manifest.id
        ))
    };
    let genuine = fs::read_dir(proofs(&other))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::create_dir_all(proofs(&target)).unwrap();
    // A genuine proof of another backup, and an edited one.
    fs::copy(&genuine, proofs(&target).join("copied.json")).unwrap();
    let text = fs::read_to_string(&genuine).unwrap();
    let edited = text.replace(
        &other.link.digest.to_string(),
        &target.link.digest.to_string(),
    );
    fs::write(proofs(&target).join("edited.json"), edited).unwrap();
    let catalog = bench.catalog().await;
    assert_eq!(
        catalog.get(target.manifest.id).unwrap().level(),
        Some(Level::L0)
    );
    assert_eq!(
        catalog.get(other.manifest.id).unwrap().level(),
        Some(Level::L5)
    );
    assert_eq!(kinds(&catalog), [FlawKind::RecordRefused]);
}

/// On the worst day a stray file must not stand between an operator and the backups.
#[tokio::test]
async fn objects_too_large_to_be_what_they_claim_are_named_and_the_rest_is_still_there() {
    let (bench, [first, second, third]) = three().await;
    let clusters = bench.folder.path().join("vault/clusters/prod");
    let (id, big) = (first.manifest.id, 64 << 20);
    for name in [
        "manifests/junk".to_owned(),
        "manifests/000000000004.json".to_owned(),
        "ledger/junk.json".to_owned(),
        "releases/junk.json".to_owned(),
        format!("proofs/{id}/junk.json"),
        format!("pins/{id}/junk.json"),
    ] {
        let path = clusters.join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = fs::File::create(&path).unwrap();
        file.set_len(big).unwrap();
    }
    let catalog = bench.catalog().await;
    assert_eq!(catalog.flaws.len(), 6, "{:?}", catalog.flaws);
    let backups: Vec<_> = catalog
        .backups
        .iter()
        .map(holdfast_restore::Backup::id)
        .collect();
    let wanted = [&first, &second, &third].map(|captured| captured.manifest.id);
    assert_eq!(backups, wanted);
    let target = bench.folder.path().join("out/new");
    let options = RestoreOptions {
        work_dir: Some(bench.work_dir()),
        ..RestoreOptions::single(Target::Holdfast, target, "m0", "http://127.0.0.1:2380")
    };
    let plan = plan_restore(&catalog, Pick::Id(third.manifest.id), &options).unwrap();
    holdfast_restore::rebuild(&bench.vault.read_only(), &plan, &bench.keys, &|_| {})
        .await
        .unwrap();
}

/// What a thief of the bucket can do without a key: put back the whole of it as it was.
#[tokio::test]
async fn en6_the_whole_vault_put_back_as_it_was_is_noticed_by_a_host_that_saw_more() {
    let (bench, [_, middle, last]) = three().await;
    let kept = bench.files();
    fs::remove_file(manifest_path(&bench, &last)).unwrap();
    let newest_of = |captured: &Captured| Ledger {
        highest: captured.manifest.content.revision,
        head: Some(captured.link.clone()),
    };
    // The ledger in the vault goes back with it: every record that knows the newest backup.
    let ledger = bench.folder.path().join("vault/clusters/prod/ledger");
    for path in kept.iter().filter(|path| path.starts_with(&ledger)) {
        let text = fs::read_to_string(path).unwrap();
        if text.contains(&last.manifest.id.to_string()) {
            fs::remove_file(path).unwrap();
        }
    }
    let trust = &bench.keys.trust;
    let read = async |local: &Ledger| {
        let catalog = Catalog::load(&bench.vault, &bench.cluster, trust, Some(local)).await;
        kinds(&catalog.unwrap())
    };
    assert_eq!(
        read(&Ledger::default()).await,
        [],
        "nothing inside tells it"
    );
    assert_eq!(read(&newest_of(&middle)).await, []);
    assert_eq!(read(&newest_of(&last)).await, [FlawKind::HeadMissing]);
}

#[tokio::test]
async fn en6_two_manifests_that_changed_places() {
    let (bench, [first, second, _]) = three().await;
    let (one, two) = (
        manifest_path(&bench, &first),
        manifest_path(&bench, &second),
    );
    let (a, b) = (fs::read(&one).unwrap(), fs::read(&two).unwrap());
    fs::write(&one, b).unwrap();
    fs::write(&two, a).unwrap();
    let catalog = bench.catalog().await;
    let replaced = FlawKind::ManifestReplaced;
    assert_eq!(kinds(&catalog), [replaced, replaced]);
    assert_eq!(catalog.backups.len(), 1);
}

/// The same name of a cluster, the same signing key, another vault: a genuine manifest, and not
/// this history's.
#[tokio::test]
async fn en6_a_manifest_of_the_same_cluster_in_another_vault() {
    let (bench, [_, target, _]) = three().await;
    let other = Bench {
        signer: Signer::load(&key_file(&bench)).unwrap(),
        ..Bench::new().await
    };
    let _first = other.backup(SMALL, minute(0)).await;
    let foreign = other.backup(BASIC, minute(1)).await;
    let trust = Trust::in_keys([bench.signer.verifier(), other.signer.verifier()]);
    fs::copy(
        manifest_path(&other, &foreign),
        manifest_path(&bench, &target),
    )
    .unwrap();
    let catalog = Catalog::load(&bench.vault, &bench.cluster, &trust, None)
        .await
        .unwrap();
    // It names another predecessor, and its successor another manifest in its place.
    let replaced = FlawKind::ManifestReplaced;
    assert_eq!(kinds(&catalog), [replaced, replaced]);
    assert!(catalog.flaws[1].object.ends_with("000000000002.json"));
}

fn key_file(bench: &Bench) -> std::path::PathBuf {
    let path = bench.folder.path().join("another-signing-key");
    Signer::generate_file(&path).unwrap();
    path
}

#[tokio::test]
async fn en3_a_backup_that_no_identity_here_opens_is_named_and_the_others_are_not() {
    let mut bench = Bench::new().await;
    let ours = bench.backup(BASIC, minute(0)).await;
    let path = bench.folder.path().join("lost-identity");
    let lost = key::generate_identity(&path).unwrap();
    bench.sealer = holdfast_restore::Sealer::to_recipients(vec![lost]).unwrap();
    let closed = bench.backup(SMALL, minute(1)).await;
    let catalog = bench.catalog().await;
    let named = async |identities: &Identities| {
        let all = holdfast_restore::unopenable(&bench.vault, &catalog, identities).await;
        let ids = all.unwrap().into_iter().map(holdfast_restore::Backup::id);
        ids.collect::<Vec<_>>()
    };
    let own = bench.keys.identities.as_ref().unwrap();
    assert_eq!(named(own).await, [closed.manifest.id]);
    let other = Identities::load(&path).unwrap();
    assert_eq!(named(&other).await, [ours.manifest.id]);
    // A rewrap to ours brings it back.
    let keys = Keys {
        trust: bench.keys.trust.clone(),
        identities: Some(other),
    };
    let to_ours = holdfast_restore::Sealer::to_recipients(own.recipients().to_vec()).unwrap();
    let backup = catalog.get(closed.manifest.id).unwrap();
    let pair = (&to_ours, &bench.signer);
    holdfast_restore::rewrap::rewrap(&bench.vault, backup, &keys, pair, minute(5))
        .await
        .unwrap();
    assert_eq!(named(own).await, []);
}
