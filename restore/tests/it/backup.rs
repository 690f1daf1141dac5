//! Backups of every golden snapshot, and of sources that must not become one.

use std::fs;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use holdfast_policies::{Generation, Level, Sequence};
use holdfast_restore::manifest::SourceHash;
use holdfast_restore::office::Office;
use holdfast_restore::vault::{Folder, layout};
use holdfast_restore::{
    Error, ErrorKind, FileSource, FlawKind, Identities, Keys, ReadBack, Recipient, Sealer, Signer,
    Source as _, capture, claim, key, ledger,
};

use super::bench::{ALARM, AUTH, BASIC, Bench, EMPTY, K8S, SMALL, minute};

#[tokio::test]
async fn every_golden_snapshot_is_captured_and_verified_to_l2() {
    let bench = Bench::new().await;
    for (n, golden) in (0..).zip([EMPTY, BASIC, SMALL, AUTH, ALARM, K8S]) {
        let captured = bench.backup(golden, minute(n)).await;
        let content = &captured.manifest.content;
        assert_eq!(
            (content.hash_kv, content.revision),
            (golden.1, golden.2),
            "{}",
            golden.0
        );
        let proof = bench.verify(captured.manifest.id, Level::L2).await;
        assert_eq!(proof.flaws, [], "{}", golden.0);
        assert_eq!(
            proof.level,
            Some(Level::L2),
            "{}: {:?}",
            golden.0,
            proof.evidence.notes
        );
        assert_eq!(proof.evidence.hash_kv, Some(golden.1));
        assert!(proof.evidence.is_trailer_valid);
    }
    let catalog = bench.catalog().await;
    assert_eq!(catalog.flaws, []);
    assert_eq!(catalog.backups.len(), 6);
    assert_eq!(catalog.orphans, []);
    let sequences: Vec<Sequence> = catalog
        .backups
        .iter()
        .map(|backup| backup.manifest.sequence)
        .collect();
    assert_eq!(sequences, (1..=6).map(Sequence).collect::<Vec<_>>());
    assert_eq!(catalog.ledger.highest, 452);
    assert_eq!(
        fs::read_dir(bench.work_dir()).unwrap().count(),
        0,
        "spools are gone"
    );
}

#[tokio::test]
async fn the_manifest_says_what_the_bytes_say() {
    let bench = Bench::new().await;
    let auth = bench.backup(AUTH, minute(0)).await.manifest;
    assert!(auth.content.is_auth_enabled);
    let alarm = bench.backup(ALARM, minute(1)).await.manifest;
    assert_eq!(alarm.content.alarms.len(), 1);
    assert!(
        alarm.content.alarms[0].starts_with("NOSPACE on "),
        "{:?}",
        alarm.content.alarms
    );
    let small = bench.backup(SMALL, minute(2)).await.manifest;
    assert_eq!(small.content.compact_revision, 416);
    assert_eq!(small.content.keys, 189);
    assert_eq!(small.content.members.len(), 1);
    assert_eq!(small.content.storage_version.as_deref(), Some("3.7.0"));
    assert_eq!(small.parts.len(), 5);
}

#[tokio::test]
async fn nothing_of_the_content_is_readable_in_an_encrypted_vault() {
    let bench = Bench::new().await;
    bench.backup(K8S, minute(0)).await;
    let needles: [&[u8]; 2] = [b"/registry/", b"kubernetes"];
    let plain = K8S.bytes();
    for needle in needles {
        assert!(
            plain.windows(needle.len()).any(|window| window == needle),
            "a fair test"
        );
        for file in bench.files() {
            let stored = fs::read(&file).unwrap();
            let found = stored.windows(needle.len()).any(|window| window == needle);
            assert!(!found, "{needle:?} in {}", file.display());
        }
    }
}

#[tokio::test]
async fn an_explicitly_unencrypted_backup_needs_no_identity() {
    let bench = Bench::new().await;
    let captured = capture(
        &bench.options(minute(0)),
        &BASIC.source(),
        &bench.vault,
        &Sealer::none(),
        &bench.signer,
        &|_| {},
    )
    .await
    .unwrap();
    let keys = Keys {
        trust: bench.keys.trust.clone(),
        identities: None,
    };
    let proof = bench
        .verify_with(captured.manifest.id, Level::L2, &keys)
        .await;
    assert_eq!(proof.level, Some(Level::L2));
}

#[tokio::test]
async fn each_of_several_recipients_opens_the_backup_and_a_stranger_does_not() {
    let bench = Bench::new().await;
    let file = |name: &str| bench.folder.path().join(name);
    let first = key::generate_identity(&file("first")).unwrap();
    let second = key::generate_identity(&file("second")).unwrap();
    key::generate_identity(&file("stranger")).unwrap();
    fs::write(file("ssh"), SSH_KEY).unwrap();
    let ssh = Recipient::parse(SSH_PUBLIC).unwrap();
    let sealer = Sealer::to_recipients(vec![first, second, ssh]).unwrap();
    let options = bench.options(minute(0));
    let captured = capture(
        &options,
        &BASIC.source(),
        &bench.vault,
        &sealer,
        &bench.signer,
        &|_| {},
    )
    .await
    .unwrap();
    let id = captured.manifest.id;
    let keys = |name: &str| Keys {
        trust: bench.keys.trust.clone(),
        identities: Some(Identities::load(&file(name)).unwrap()),
    };
    for name in ["first", "second", "ssh"] {
        let proof = bench.verify_with(id, Level::L2, &keys(name)).await;
        assert_eq!(proof.level, Some(Level::L2), "{name}: {:?}", proof.flaws);
    }
    let proof = bench.verify_with(id, Level::L2, &keys("stranger")).await;
    assert_eq!(proof.level, Some(Level::L0));
    let detail = &proof.flaws[0].detail;
    for recipient in captured.manifest.encryption.recipients() {
        assert!(detail.contains(recipient), "{detail}");
    }
}

#[tokio::test]
async fn without_an_identity_the_stored_digests_are_checked_and_the_verdict_says_so() {
    let bench = Bench::new().await;
    let captured = bench.backup(SMALL, minute(0)).await;
    let keys = Keys {
        trust: bench.keys.trust.clone(),
        identities: None,
    };
    let proof = bench
        .verify_with(captured.manifest.id, Level::L2, &keys)
        .await;
    assert_eq!(proof.level, Some(Level::L0));
    assert_eq!(proof.evidence.parts_read, 5);
    assert_eq!(proof.evidence.parts_opened, 0);
    assert!(
        proof.evidence.notes[0].contains("no identity"),
        "{:?}",
        proof.evidence.notes
    );
}

#[test]
fn a_sealer_without_recipients_or_with_one_twice_is_refused() {
    assert!(matches!(
        Sealer::to_recipients(Vec::new()),
        Err(Error::NoRecipients)
    ));
    let recipient = Recipient::parse(SSH_PUBLIC).unwrap();
    let twice = Sealer::to_recipients(vec![recipient.clone(), recipient]).unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_snapshot_that_is_not_the_sources_data_leaves_no_backup_and_no_parts() {
    let bench = Bench::new().await;
    let wrong = SMALL.source().with_told_hash(SourceHash::Told {
        hash: 1,
        revision: 452,
        compact_revision: 416,
        members: vec!["m".to_owned()],
        divergent: Vec::new(),
    });
    let options = bench.options(minute(0));
    let failed = capture(
        &options,
        &wrong,
        &bench.vault,
        &bench.sealer,
        &bench.signer,
        &|_| {},
    )
    .await
    .unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Corrupt);
    let catalog = bench.catalog().await;
    assert_eq!((catalog.backups.len(), catalog.orphans.len()), (0, 0));
}

#[tokio::test]
async fn a_damaged_or_shortened_snapshot_leaves_no_backup() {
    let bench = Bench::new().await;
    let path = bench.folder.path().join("bad.db");
    let whole = BASIC.bytes();
    let mut flipped = whole.clone();
    flipped[5000] ^= 4;
    for bytes in [
        &flipped,
        &whole[..whole.len() - 32],
        &whole[..4096 + 32],
        &whole[..10],
        b"",
    ] {
        fs::write(&path, bytes).unwrap();
        let source = FileSource::new(&path);
        let options = bench.options(minute(0));
        let failed = capture(
            &options,
            &source,
            &bench.vault,
            &bench.sealer,
            &bench.signer,
            &|_| {},
        )
        .await;
        assert!(matches!(failed, Err(Error::BadStream { .. })), "{failed:?}");
    }
    let catalog = bench.catalog().await;
    assert_eq!((catalog.backups.len(), catalog.orphans.len()), (0, 0));
}

#[tokio::test]
async fn a_hash_the_source_cannot_tell_is_no_proof_of_l2() {
    let bench = Bench::new().await;
    let options = bench.options(minute(0));
    let source = FileSource::new(BASIC.path());
    let captured = capture(
        &options,
        &source,
        &bench.vault,
        &bench.sealer,
        &bench.signer,
        &|_| {},
    )
    .await
    .unwrap();
    assert_eq!(captured.warnings.len(), 1, "{:?}", captured.warnings);
    let proof = bench.verify(captured.manifest.id, Level::L2).await;
    assert_eq!(proof.level, Some(Level::L1));
    assert!(
        proof.evidence.notes[0].contains("no hash"),
        "{:?}",
        proof.evidence.notes
    );
}

#[tokio::test]
async fn another_cluster_is_refused_until_it_is_accepted_and_begins_a_generation() {
    let bench = Bench::new().await;
    let first = bench.backup(BASIC, minute(0)).await;
    let other = SMALL.source().with_cluster_id("beef");
    let mut options = bench.options(minute(1));
    let refused = capture(
        &options,
        &other,
        &bench.vault,
        &bench.sealer,
        &bench.signer,
        &|_| {},
    )
    .await
    .unwrap_err();
    assert!(matches!(refused, Error::ClusterChanged { .. }), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    options.accept_new_cluster = true;
    let second = capture(
        &options,
        &other,
        &bench.vault,
        &bench.sealer,
        &bench.signer,
        &|_| {},
    )
    .await
    .unwrap();
    assert_eq!(
        Some(second.manifest.generation),
        first.manifest.generation.next()
    );
    assert_eq!(second.manifest.predecessor, Some(first.link));
}

#[tokio::test]
async fn a_writer_of_an_older_generation_is_refused() {
    let bench = Bench::new().await;
    let mut options = bench.options(minute(0));
    options.generation = Some(Generation(3));
    let newest = bench.try_backup(BASIC, &options).await.unwrap();
    options.generation = Some(Generation(2));
    let refused = bench.try_backup(BASIC, &options).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    let Error::Replaced {
        ours, successor, ..
    } = refused
    else {
        panic!("{refused}")
    };
    assert_eq!((ours, successor.generation), (Generation(2), Generation(3)));
    assert_eq!(successor.id, Some(newest.manifest.id));
    assert_eq!(successor.key, bench.signer.verifier().fingerprint());
}

/// As two do with the same keys and the same data directory, copied.
#[tokio::test]
async fn of_two_appliances_that_claim_at_once_only_the_later_goes_on() {
    let bench = Bench::new().await;
    bench.backup(BASIC, minute(0)).await;
    let catalog = bench.catalog().await;
    let claim = || claim::claim(&bench.vault, &catalog, minute(1), &bench.signer);
    let (one, two) = tokio::join!(claim(), claim());
    let (mut held, mut lost) = (one.unwrap(), two.unwrap());
    assert_ne!(held, lost, "nobody shares a generation");
    if held < lost {
        std::mem::swap(&mut held, &mut lost);
    }
    let mut options = bench.options(minute(2));
    // The claim alone decides, before any backup of the later one.
    options.generation = Some(lost);
    let refused = bench.try_backup(BASIC, &options).await.unwrap_err();
    let Error::Replaced { successor, .. } = &refused else {
        panic!("{refused}")
    };
    assert_eq!((successor.generation, successor.id), (held, None));
    assert!(refused.to_string().contains("no backup yet"), "{refused}");
    options.generation = Some(held);
    let taken = bench.try_backup(BASIC, &options).await.unwrap();
    assert_eq!(taken.manifest.generation, held);
    assert_eq!(bench.catalog().await.orphans, []);
}

/// An office that was lost while a backup was taken.
#[derive(Debug)]
struct Lost;

impl Office for Lost {
    fn still_held(&self) -> BoxFuture<'_, Result<(), String>> {
        async { Err("term 7 is over".to_owned()) }.boxed()
    }
}

#[tokio::test]
async fn a_writer_whose_office_was_lost_meanwhile_commits_no_manifest_and_leaves_nothing() {
    let bench = Bench::new().await;
    let mut options = bench.options(minute(0));
    options.office = Some(Arc::new(Lost));
    let refused = bench.try_backup(BASIC, &options).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(
        matches!(&refused, Error::OfficeLost { reason, .. } if reason == "term 7 is over"),
        "{refused}"
    );
    let catalog = bench.catalog().await;
    assert!(catalog.backups.is_empty());
    assert_eq!(catalog.orphans, [], "its parts are gone");
    options.office = None;
    bench.try_backup(BASIC, &options).await.unwrap();
}

#[tokio::test]
async fn a_claim_that_nobody_trusted_signed_takes_nothing_over() {
    let bench = Bench::new().await;
    bench.backup(BASIC, minute(0)).await;
    let catalog = bench.catalog().await;
    let mut options = bench.options(minute(1));
    let ours = claim::claim(&bench.vault, &catalog, minute(1), &bench.signer);
    options.generation = Some(ours.await.unwrap());
    let stranger = Signer::generate();
    let theirs = claim::claim(&bench.vault, &catalog, minute(1), &stranger);
    assert!(Some(theirs.await.unwrap()) > options.generation);
    bench.try_backup(BASIC, &options).await.unwrap();
    let catalog = bench.catalog().await;
    assert_eq!(catalog.newest_generation(), options.generation);
    assert_eq!(catalog.flaws[0].kind, FlawKind::RecordStranger);
    // The next claim goes past the place that is taken.
    let next = claim::claim(&bench.vault, &catalog, minute(2), &bench.signer);
    let number = |generation: Option<Generation>| generation.unwrap().0;
    assert_eq!(next.await.unwrap().0, number(options.generation) + 2);
}

#[tokio::test]
async fn only_the_newest_claims_are_kept() {
    let bench = Bench::new().await;
    bench.backup(BASIC, minute(0)).await;
    for _ in 0..20 {
        let catalog = bench.catalog().await;
        let claimed = claim::claim(&bench.vault, &catalog, minute(1), &bench.signer);
        claimed.await.unwrap();
    }
    let kept = bench.vault.list(&Folder::Claims.of(&bench.cluster)).await;
    assert!(kept.unwrap().len() < 12);
    assert_eq!(
        bench.catalog().await.newest_generation(),
        Some(Generation(21))
    );
}

#[tokio::test]
async fn two_appliances_that_take_one_place_do_not_both_succeed() {
    let bench = Bench::new().await;
    bench.backup(BASIC, minute(0)).await;
    let (one, two) = (bench.options(minute(1)), bench.options(minute(2)));
    let (one, two) = tokio::join!(bench.try_backup(BASIC, &one), bench.try_backup(SMALL, &two));
    let refused = match (one, two) {
        (Ok(_), Err(refused)) | (Err(refused), Ok(_)) => refused,
        (Ok(one), Ok(two)) => {
            // One was done before the other had looked: then they follow each other.
            assert_ne!(one.manifest.sequence, two.manifest.sequence);
            return;
        }
        (one, two) => panic!("{one:?} {two:?}"),
    };
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    let catalog = bench.catalog().await;
    assert_eq!((catalog.backups.len(), catalog.orphans.len()), (2, 0));
    assert_eq!(catalog.flaws, []);
}

#[tokio::test]
async fn reading_back_every_byte_is_done_before_the_manifest() {
    let bench = Bench::new().await;
    for (n, read_back) in (0..).zip([ReadBack::None, ReadBack::Sizes, ReadBack::Bytes]) {
        let mut options = bench.options(minute(n));
        options.read_back = read_back;
        bench.try_backup(SMALL, &options).await.unwrap();
    }
}

#[tokio::test]
async fn the_ledger_is_kept_in_the_vault_and_on_the_appliance() {
    let bench = Bench::new().await;
    let path = bench.folder.path().join("ledger.json");
    let mut options = bench.options(minute(0));
    options.ledger = Some(path.clone());
    let captured = bench.try_backup(SMALL, &options).await.unwrap();
    let local = ledger::read_local(&path, &bench.cluster).unwrap();
    assert_eq!(local.highest, 452);
    assert_eq!(local.head, Some(captured.link.clone()));
    let in_vault = ledger::read_vault(&bench.vault, &bench.cluster, &bench.keys.trust)
        .await
        .unwrap();
    assert_eq!((in_vault.ledger, in_vault.flaws), (local, vec![]));
    assert_eq!(in_vault.bumps, [0_i64; 0]);
    bench
        .try_backup(EMPTY, &bench.options(minute(1)))
        .await
        .unwrap();
    assert_eq!(
        bench.catalog().await.highest_revision(),
        452,
        "it never goes down"
    );
}

#[tokio::test]
async fn the_names_of_sources_hold_no_secret_and_no_folder() {
    let source = FileSource::new("/very/private/place/snap.db");
    assert_eq!(source.describe(), "file snap.db");
}

#[tokio::test]
async fn a_part_objects_name_is_bound_to_its_backup() {
    let bench = Bench::new().await;
    let captured = bench.backup(BASIC, minute(0)).await;
    let name = layout::part(&bench.cluster, captured.manifest.id, 2);
    let expected = format!("clusters/prod/parts/{}/000002", captured.manifest.id);
    assert_eq!(name.as_str(), expected);
    assert!(bench.file(&name).is_file());
}

#[tokio::test]
async fn a_stranger_key_can_not_add_to_the_history() {
    let bench = Bench::new().await;
    let stranger = Signer::generate();
    let options = bench.options(minute(0));
    let source = BASIC.source();
    capture(
        &options,
        &source,
        &bench.vault,
        &bench.sealer,
        &stranger,
        &|_| {},
    )
    .await
    .unwrap();
    let catalog = bench.catalog().await;
    assert_eq!(
        catalog.backups.len(),
        0,
        "not trusted, so it does not count"
    );
    assert!(!catalog.flaws.is_empty());
}

const SSH_PUBLIC: &str = include_str!("ssh_key.pub");
const SSH_KEY: &str = include_str!("ssh_key");
