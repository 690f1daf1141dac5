//! From a vault to data directories, for both targets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_policies::Level;
use holdfast_restore::plan::{BUMP_FLOOR, NewMember};
use holdfast_restore::rebuild::check_restore;
use holdfast_restore::vault::layout;
use holdfast_restore::{
    Bump, CaptureOptions, Captured, Digest, Error, ErrorKind, Identities, Keys, Manifest, Pick,
    Recipient, RestoreOptions, RestorePlan, Restored, Sealer, Target, capture, key, ledger,
    plan_restore, rebuild,
};
use holdfast_store::etcd_file::EtcdFile;

use super::bench::{ALARM, AUTH, BASIC, Bench, EMPTY, Golden, K8S, SMALL, local_store, minute};
use super::faults::Mortal;

fn options(bench: &Bench, target: Target) -> RestoreOptions {
    let data_dir = bench.folder.path().join("out/new");
    RestoreOptions {
        work_dir: Some(bench.work_dir()),
        ..RestoreOptions::single(target, data_dir, "m0", "http://127.0.0.1:2380")
    }
}

async fn plan(bench: &Bench, captured: &Captured, options: &RestoreOptions) -> RestorePlan {
    plan_restore(
        &bench.catalog().await,
        Pick::Id(captured.manifest.id),
        options,
    )
    .unwrap()
}

async fn run(bench: &Bench, plan: &RestorePlan) -> Result<Restored, Error> {
    rebuild(&bench.vault.read_only(), plan, &bench.keys, &|_| {}).await
}

/// What an etcd database on disk holds.
fn read(path: &Path) -> EtcdFile<Vec<u8>> {
    EtcdFile::open(fs::read(path).unwrap()).unwrap()
}

fn database(data_dir: &Path) -> PathBuf {
    data_dir.join("member/snap/db")
}

#[tokio::test]
async fn every_golden_snapshot_comes_back_with_every_key_for_etcd() {
    for golden in [EMPTY, BASIC, SMALL, AUTH, ALARM, K8S] {
        let bench = Bench::new().await;
        let captured = bench.backup(golden, minute(0)).await;
        let plan = plan(&bench, &captured, &options(&bench, Target::Etcd)).await;
        let restored = run(&bench, &plan).await.unwrap();
        assert_eq!(
            (restored.hash_kv, restored.keys),
            (golden.1, captured.manifest.content.keys)
        );
        let before = EtcdFile::open(golden.bytes()).unwrap();
        let after = read(&database(&plan.data_dir));
        assert!(after.check().is_clean(), "{}", golden.0);
        assert_eq!(after.revision().unwrap(), golden.2 + BUMP_FLOOR);
        assert_eq!(after.compact_revision().unwrap(), golden.2 + BUMP_FLOOR);
        assert_eq!(
            after.keys(0).unwrap(),
            before.keys(0).unwrap(),
            "{}",
            golden.0
        );
        assert_eq!(
            after.survey(|_pair| ()).content.unwrap().leases,
            before.survey(|_pair| ()).content.unwrap().leases,
            "{}",
            golden.0
        );
        assert_eq!(fs::read_dir(bench.work_dir()).unwrap().count(), 0);
        let beside: Vec<_> = fs::read_dir(plan.data_dir.parent().unwrap())
            .unwrap()
            .collect();
        assert_eq!(beside.len(), 1, "only the result");
        let mode = fs::metadata(&plan.data_dir).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}

#[tokio::test]
async fn without_a_bump_the_hash_stays_what_the_source_said() {
    let bench = Bench::new().await;
    let captured = bench.backup(SMALL, minute(0)).await;
    let mut wish = options(&bench, Target::Etcd);
    wish.bump = Bump::None;
    let plan = plan(&bench, &captured, &wish).await;
    run(&bench, &plan).await.unwrap();
    let hash = read(&database(&plan.data_dir)).hash_kv(0).unwrap();
    assert_eq!(
        (hash.hash, hash.hash_revision, hash.compact_revision),
        (SMALL.1, SMALL.2, SMALL.3)
    );
}

#[tokio::test]
async fn alarms_are_cleared_when_asked_and_kept_otherwise() {
    for clear_alarms in [true, false] {
        let bench = Bench::new().await;
        let captured = bench.backup(ALARM, minute(0)).await;
        let mut wish = options(&bench, Target::Etcd);
        wish.clear_alarms = clear_alarms;
        let plan = plan(&bench, &captured, &wish).await;
        let is_warned = plan
            .warnings
            .iter()
            .any(|warning| warning.contains("NOSPACE"));
        assert_eq!(is_warned, !clear_alarms);
        run(&bench, &plan).await.unwrap();
        let alarms = read(&database(&plan.data_dir)).alarms().unwrap();
        assert_eq!(alarms.is_empty(), clear_alarms);
    }
}

#[tokio::test]
async fn three_members_come_from_one_backup_with_one_cluster_id() {
    let bench = Bench::new().await;
    let captured = bench.backup(BASIC, minute(0)).await;
    let mut wish = options(&bench, Target::Etcd);
    wish.members = (0..3)
        .map(|n| NewMember {
            name: format!("m{n}"),
            peer_urls: vec![format!("http://h{n}:2380")],
        })
        .collect();
    let plan = plan(&bench, &captured, &wish).await;
    let restored = run(&bench, &plan).await.unwrap();
    assert_eq!(restored.written.len(), 3);
    for member in &restored.written {
        let file = read(&database(&member.data_dir));
        let mut names: Vec<String> = file
            .members()
            .unwrap()
            .into_iter()
            .map(|one| one.name)
            .collect();
        names.sort();
        assert_eq!(names, ["m0", "m1", "m2"]);
    }
}

#[tokio::test]
async fn an_existing_target_of_any_kind_is_refused_and_not_touched() {
    let bench = Bench::new().await;
    let captured = bench.backup(BASIC, minute(0)).await;
    let plan = plan(&bench, &captured, &options(&bench, Target::Etcd)).await;
    let target = plan.data_dir.clone();
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    let refused = async |what: &str| {
        let refused = run(&bench, &plan).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{what}: {refused}");
        let early = check_restore(&bench.vault.read_only(), &plan, &bench.keys).await;
        assert_eq!(early.unwrap_err().kind(), ErrorKind::Conflict, "{what}");
    };
    fs::write(&target, b"mine").unwrap();
    refused("a file").await;
    assert_eq!(fs::read(&target).unwrap(), b"mine");
    fs::remove_file(&target).unwrap();
    fs::create_dir(&target).unwrap();
    refused("an empty folder").await;
    fs::remove_dir(&target).unwrap();
    std::os::unix::fs::symlink("/nowhere", &target).unwrap();
    refused("a dangling link").await;
    fs::remove_file(&target).unwrap();
    run(&bench, &plan).await.unwrap();
    refused("the same restore again").await;
}

#[tokio::test]
async fn an_existing_target_is_refused_before_the_vault_is_read() {
    let bench = Bench::new().await;
    let captured = bench.backup(BASIC, minute(0)).await;
    let plan = plan(&bench, &captured, &options(&bench, Target::Holdfast)).await;
    fs::create_dir_all(&plan.data_dir).unwrap();
    fs::remove_dir_all(bench.folder.path().join("vault/clusters")).unwrap();
    let refused = run(&bench, &plan).await.unwrap_err();
    assert!(matches!(refused, Error::TargetExists { .. }), "{refused}");
    assert_eq!(
        fs::read_dir(plan.data_dir.parent().unwrap())
            .unwrap()
            .count(),
        1
    );
}

#[tokio::test]
async fn a_target_inside_another_data_directory_is_refused() {
    let bench = Bench::new().await;
    let captured = bench.backup(BASIC, minute(0)).await;
    let mut wish = options(&bench, Target::Etcd);
    run(&bench, &plan(&bench, &captured, &wish).await)
        .await
        .unwrap();
    wish.data_dir = wish.data_dir.join("member/inner");
    let refused = run(&bench, &plan(&bench, &captured, &wish).await)
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::BadTarget { .. }), "{refused}");
}

#[tokio::test]
async fn too_little_space_is_noticed_before_anything_is_fetched() {
    let bench = Bench::new().await;
    let captured = bench.backup(BASIC, minute(0)).await;
    let mut plan = plan(&bench, &captured, &options(&bench, Target::Etcd)).await;
    plan.bytes = u64::MAX / 4;
    let refused = run(&bench, &plan).await.unwrap_err();
    assert!(matches!(refused, Error::NotEnoughSpace { .. }), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Exhausted);
    assert!(!plan.data_dir.parent().unwrap().exists());
}

#[tokio::test]
async fn a_damaged_backup_restores_nothing() {
    let bench = Bench::new().await;
    let captured = bench.backup(SMALL, minute(0)).await;
    let plan = plan(&bench, &captured, &options(&bench, Target::Etcd)).await;
    let path = bench.file(&layout::part(&bench.cluster, captured.manifest.id, 2));
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 128;
    fs::write(&path, bytes).unwrap();
    let refused = run(&bench, &plan).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("000002"), "{refused}");
    nothing_is_left(&plan);
}

fn nothing_is_left(plan: &RestorePlan) {
    assert!(!plan.data_dir.exists());
    if let Ok(entries) = fs::read_dir(plan.data_dir.parent().unwrap()) {
        assert_eq!(entries.count(), 0);
    }
    if let Ok(entries) = fs::read_dir(&plan.work_dir) {
        assert_eq!(entries.count(), 0);
    }
}

#[tokio::test]
async fn a_wrong_identity_restores_nothing_and_names_who_can() {
    let bench = Bench::new().await;
    let captured = bench.backup(BASIC, minute(0)).await;
    let plan = plan(&bench, &captured, &options(&bench, Target::Etcd)).await;
    let path = bench.folder.path().join("stranger");
    key::generate_identity(&path).unwrap();
    for identities in [None, Some(Identities::load(&path).unwrap())] {
        let keys = Keys {
            trust: bench.keys.trust.clone(),
            identities,
        };
        let refused = rebuild(&bench.vault.read_only(), &plan, &keys, &|_| {})
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied);
        let recipient = &captured.manifest.encryption.recipients()[0];
        assert!(refused.to_string().contains(recipient), "{refused}");
        let early = check_restore(&bench.vault.read_only(), &plan, &keys).await;
        assert_eq!(early.unwrap_err().to_string(), refused.to_string());
    }
    nothing_is_left(&plan);
    check_restore(&bench.vault.read_only(), &plan, &bench.keys)
        .await
        .unwrap();
    nothing_is_left(&plan);
}

#[tokio::test]
async fn a_manifest_that_changed_since_the_plan_is_refused() {
    let bench = Bench::new().await;
    let captured = bench.backup(BASIC, minute(0)).await;
    let plan = plan(&bench, &captured, &options(&bench, Target::Etcd)).await;
    let mut other = captured.manifest.clone();
    other.writer = "other".to_owned();
    let path = bench.file(&layout::manifest(&bench.cluster, other.sequence));
    fs::write(path, other.encode(&bench.signer).unwrap()).unwrap();
    let refused = run(&bench, &plan).await.unwrap_err();
    assert!(matches!(refused, Error::DigestMismatch { .. }), "{refused}");
    nothing_is_left(&plan);
}

/// Signed by a trusted key, and yet not what the bytes say: a writer was wrong.
#[tokio::test]
async fn content_that_is_not_what_its_manifest_says_is_refused() {
    type Change = fn(&mut Manifest);
    let changes: [Change; 4] = [
        |manifest| manifest.parts[1].plain_digest = Digest::of(b"other"),
        |manifest| manifest.content.hash_kv ^= 1,
        |manifest| manifest.content.revision += 1,
        |manifest| manifest.content.compact_revision -= 1,
    ];
    for target in [Target::Etcd, Target::Holdfast] {
        for change in changes {
            let bench = Bench::new().await;
            let captured = bench.backup(BASIC, minute(0)).await;
            let mut other = captured.manifest.clone();
            change(&mut other);
            let path = bench.file(&layout::manifest(&bench.cluster, other.sequence));
            fs::write(path, other.encode(&bench.signer).unwrap()).unwrap();
            // It remembers the manifest as it was.
            fs::remove_dir_all(bench.folder.path().join("vault/clusters/prod/ledger")).unwrap();
            let plan = plan(&bench, &captured, &options(&bench, target)).await;
            let refused = run(&bench, &plan).await.unwrap_err();
            let is_named = matches!(
                refused,
                Error::RebuildMismatch { .. } | Error::Damaged { .. }
            );
            assert!(is_named, "{refused:?}");
            assert_eq!(refused.kind(), ErrorKind::Corrupt);
            nothing_is_left(&plan);
        }
    }
}

/// `golden` with a page that is not sound, and the same HashKV all the same.
fn unsound(golden: Golden) -> Vec<u8> {
    const PAGE: usize = 4096;
    let whole = golden.bytes();
    let (pages, _digest) = whole.split_at(whole.len() - 32);
    let flipped = (2 * PAGE..pages.len()).step_by(8).map(|at| {
        let mut content = pages.to_vec();
        content[at] ^= 1;
        content
    });
    let is_unsound = |content: &Vec<u8>| {
        let Ok(file) = EtcdFile::open(content.as_slice()) else {
            return false;
        };
        let is_same = file.hash_kv(0).is_ok_and(|hash| hash.hash == golden.1);
        is_same && !file.check().is_clean()
    };
    let mut content = flipped.into_iter().find(is_unsound).expect("such a page");
    let digest = Digest::of(&content);
    content.extend_from_slice(digest.as_bytes());
    content
}

/// Every digest and the hash are right, the structure is not: a source with a damaged file.
#[tokio::test]
async fn content_whose_pages_are_not_sound_is_refused() {
    let bench = Bench::new().await;
    let one_part = CaptureOptions {
        part_bytes: 1 << 20,
        ..bench.options(minute(0))
    };
    let (vault, sealer, signer) = (&bench.vault, Sealer::none(), &bench.signer);
    let source = BASIC.source();
    let captured = capture(&one_part, &source, vault, &sealer, signer, &|_| {})
        .await
        .unwrap();
    let plain = unsound(BASIC);
    let stored = zstd::encode_all(plain.as_slice(), 1).unwrap();
    let mut other = captured.manifest.clone();
    assert_eq!(other.parts.len(), 1);
    other.content.digest = Digest::of(&plain);
    other.parts[0].plain_digest = Digest::of(&plain);
    other.parts[0].stored_digest = Digest::of(&stored);
    other.parts[0].stored_bytes = u64::try_from(stored.len()).unwrap();
    fs::write(
        bench.file(&layout::part(&bench.cluster, other.id, 0)),
        stored,
    )
    .unwrap();
    let path = bench.file(&layout::manifest(&bench.cluster, other.sequence));
    fs::write(path, other.encode(signer).unwrap()).unwrap();
    fs::remove_dir_all(bench.folder.path().join("vault/clusters/prod/ledger")).unwrap();

    let proof = bench.verify(other.id, Level::L2).await;
    assert_eq!(proof.level, Some(Level::L1), "{:?}", proof.flaws);
    assert!(!proof.flaws.is_empty());
    for target in [Target::Etcd, Target::Holdfast] {
        let plan = plan(&bench, &captured, &options(&bench, target)).await;
        let refused = run(&bench, &plan).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused:?}");
        nothing_is_left(&plan);
    }
}

#[tokio::test]
async fn a_vault_that_dies_at_any_operation_leaves_nothing_and_the_next_run_succeeds() {
    let bench = Bench::new().await;
    let captured = bench.backup(SMALL, minute(0)).await;
    let plan = plan(&bench, &captured, &options(&bench, Target::Etcd)).await;
    // Opening the vault, the manifest and each of five parts.
    for life in 1..7 {
        let mortal = Mortal::new(local_store(bench.folder.path()), life, false);
        let vault = bench.through(Arc::new(mortal)).await.read_only();
        let failed = rebuild(&vault, &plan, &bench.keys, &|_| {})
            .await
            .unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unavailable, "{failed}");
        nothing_is_left(&plan);
    }
    run(&bench, &plan).await.unwrap();
}

#[tokio::test]
async fn what_a_killed_restore_left_is_removed_and_one_at_work_is_not() {
    let bench = Bench::new().await;
    let captured = bench.backup(BASIC, minute(0)).await;
    let plan = plan(&bench, &captured, &options(&bench, Target::Etcd)).await;
    let parent = plan.data_dir.parent().unwrap();
    let dead = parent.join("new.partial-dead");
    fs::create_dir_all(dead.join("members/m0")).unwrap();
    let living = parent.join("new.partial-living");
    fs::create_dir_all(&living).unwrap();
    let lock = fs::File::open(&living).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let unrelated = parent.join("newer");
    fs::create_dir(&unrelated).unwrap();
    run(&bench, &plan).await.unwrap();
    assert!(!dead.exists());
    assert!(living.exists() && unrelated.exists());
    drop(lock);
}

#[tokio::test]
async fn a_second_restore_from_an_older_backup_ends_higher_than_everything() {
    let bench = Bench::new().await;
    let local = bench.folder.path().join("ledger.json");
    let old = bench.backup(BASIC, minute(0)).await;
    let new = bench.backup(SMALL, minute(1)).await;
    let wish = options(&bench, Target::Etcd);
    let first = plan(&bench, &new, &wish).await;
    let seen = first.observation(minute(2));
    ledger::record(&bench.vault, &seen, &bench.signer)
        .await
        .unwrap();
    ledger::record_local(&local, &seen).unwrap();
    run(&bench, &first).await.unwrap();
    let second_wish = RestoreOptions {
        data_dir: bench.folder.path().join("out/two"),
        ..wish
    };
    let second = plan(&bench, &old, &second_wish).await;
    run(&bench, &second).await.unwrap();
    let revision = |plan: &RestorePlan| read(&database(&plan.data_dir)).revision().unwrap();
    assert!(revision(&second) > revision(&first));
    assert_eq!(revision(&second), SMALL.2 + 2 * BUMP_FLOOR);
    assert_eq!(
        ledger::read_local(&local, &bench.cluster).unwrap().highest,
        SMALL.2 + BUMP_FLOOR
    );
}

#[tokio::test]
async fn the_newest_proven_backup_is_restored_when_nothing_is_chosen() {
    let bench = Bench::new().await;
    let proven = bench.backup(BASIC, minute(0)).await;
    bench.prove(&proven, Level::L3).await;
    bench.backup(SMALL, minute(1)).await;
    let catalog = bench.catalog().await;
    let wish = options(&bench, Target::Etcd);
    let plan = plan_restore(&catalog, Pick::LatestProven, &wish).unwrap();
    assert_eq!(plan.id, proven.manifest.id);
    let restored = run(&bench, &plan).await.unwrap();
    assert_eq!(
        restored.revision,
        SMALL.2 + BUMP_FLOOR,
        "beyond the newer backup's revision"
    );
}

#[tokio::test]
async fn en3_a_rewrapped_backup_opens_for_the_new_recipient_without_a_new_upload() {
    let bench = Bench::new().await;
    let captured = bench.backup(BASIC, minute(0)).await;
    let id = captured.manifest.id;
    let someone = |name: &str| {
        let path = bench.folder.path().join(name);
        let recipient = key::generate_identity(&path).unwrap();
        let keys = Keys {
            trust: bench.keys.trust.clone(),
            identities: Some(Identities::load(&path).unwrap()),
        };
        (recipient, keys)
    };
    let before: Vec<_> = bench
        .files()
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    let rewrap = async |to: &Recipient| {
        let sealer = Sealer::to_recipients(vec![to.clone()]).unwrap();
        let catalog = bench.catalog().await;
        let backup = catalog.get(id).unwrap();
        let pair = (&sealer, &bench.signer);
        holdfast_restore::rewrap::rewrap(&bench.vault, backup, &bench.keys, pair, minute(9))
            .await
            .unwrap()
    };
    let level = async |keys: &Keys| bench.verify_with(id, Level::L2, keys).await.level;
    let (second, seconds) = someone("second");
    let (third, thirds) = someone("third");

    let told = rewrap(&second).await;
    assert!(told.is_new);
    assert_eq!(told.before, captured.manifest.encryption.recipients());
    assert!(told.after.contains(&second.fingerprint().to_owned()));
    assert_eq!(told.still, told.before, "the manifest's own envelope stays");
    assert_eq!(level(&seconds).await, Some(Level::L2));
    assert!(!rewrap(&second).await.is_new, "done once is done");

    // The envelope of a recipient that is given up goes, and with it what it opened.
    let told = rewrap(&third).await;
    assert!(told.before.contains(&second.fingerprint().to_owned()));
    assert!(!told.after.contains(&second.fingerprint().to_owned()));
    assert_eq!(level(&thirds).await, Some(Level::L2));
    assert_eq!(level(&seconds).await, Some(Level::L0), "no longer opened");

    // What was there is there, byte for byte; one envelope came to it.
    for (path, bytes) in &before {
        assert!(fs::read(path).unwrap() == *bytes, "{}", path.display());
    }
    assert_eq!(bench.files().len(), before.len() + 1);
}

/// Data directories of the bundled store, read back by the store itself.
mod holdfast_target {
    use holdfast_proto::etcd::rpc;
    use holdfast_restore::{BundledSource, Source as _};
    use holdfast_store::apply::{Applier, NoEvents, StateOptions};
    use holdfast_store::datadir::Layout;
    use holdfast_store::state::State;

    use super::*;

    #[tokio::test]
    async fn every_golden_snapshot_comes_back_with_its_hash_before_and_its_bump_after() {
        for golden in [EMPTY, BASIC, SMALL, K8S] {
            for bump in [Bump::None, Bump::Auto] {
                let bench = Bench::new().await;
                let captured = bench.backup(golden, minute(0)).await;
                let mut wish = options(&bench, Target::Holdfast);
                wish.bump = bump;
                let plan = plan(&bench, &captured, &wish).await;
                let restored = run(&bench, &plan).await.unwrap();
                assert_eq!(restored.revision, plan.revision_after);
                check(golden, &plan);
            }
        }
    }

    fn open(plan: &RestorePlan) -> (Applier, Arc<State>) {
        let state_path = Layout::new(&plan.data_dir).state();
        Applier::open(&state_path, &StateOptions::default(), Arc::new(NoEvents)).unwrap()
    }

    fn check(golden: Golden, plan: &RestorePlan) {
        let (_applier, state) = open(plan);
        assert_eq!(state.revision(), plan.revision_after);
        if plan.bump == 0 {
            assert_eq!(state.hash_kv(0).unwrap().hash, golden.1);
        } else {
            assert_eq!(state.compact_revision(), plan.revision_after);
        }
        let everything = rpc::RangeRequest {
            key: vec![0].into(),
            range_end: vec![0].into(),
            ..Default::default()
        };
        let expected = EtcdFile::open(golden.bytes()).unwrap().keys(0).unwrap();
        assert_eq!(
            state.range(&everything).unwrap().kvs,
            expected,
            "{}",
            golden.0
        );
    }

    #[tokio::test]
    async fn the_bundled_store_is_backed_up_and_its_hash_goes_round() {
        let bench = Bench::new().await;
        let from_etcd = bench.backup(SMALL, minute(0)).await;
        let mut wish = options(&bench, Target::Holdfast);
        wish.bump = Bump::None;
        let first = plan(&bench, &from_etcd, &wish).await;
        run(&bench, &first).await.unwrap();
        let (_applier, state) = open(&first);
        let source = BundledSource::new(state, 0xcafe, 7, "3.7.3");
        assert_eq!(source.latest_revision().await.unwrap().revision, SMALL.2);
        let (at, vault) = (bench.options(minute(1)), &bench.vault);
        let captured = capture(&at, &source, vault, &bench.sealer, &bench.signer, &|_| {})
            .await
            .unwrap();
        assert_eq!(captured.warnings, [""; 0]);
        assert_eq!(captured.manifest.content.hash_kv, SMALL.1);
        assert_eq!(captured.manifest.source.kind, "bundled");
        let proof = bench.verify(captured.manifest.id, Level::L2).await;
        assert_eq!(
            proof.level,
            Some(Level::L2),
            "{:?} {:?}",
            proof.flaws,
            proof.evidence
        );
        let mut wish = options(&bench, Target::Etcd);
        wish.data_dir = bench.folder.path().join("out/etcd");
        wish.bump = Bump::None;
        let second = plan(&bench, &captured, &wish).await;
        run(&bench, &second).await.unwrap();
        assert_eq!(
            read(&database(&second.data_dir)).hash_kv(0).unwrap().hash,
            SMALL.1
        );
    }

    #[tokio::test]
    async fn a_backup_of_a_bumped_store_counts_the_keys_that_clients_see() {
        let bench = Bench::new().await;
        let from_etcd = bench.backup(SMALL, minute(0)).await;
        let first = plan(&bench, &from_etcd, &options(&bench, Target::Holdfast)).await;
        run(&bench, &first).await.unwrap();
        let (_applier, state) = open(&first);
        let source = BundledSource::new(state, 0xcafe, 7, "3.7.3");
        let mut at = bench.options(minute(1));
        at.accept_new_cluster = true;
        let captured = capture(
            &at,
            &source,
            &bench.vault,
            &bench.sealer,
            &bench.signer,
            &|_| {},
        )
        .await
        .unwrap();
        assert!(from_etcd.manifest.content.keys > 0);
        assert_eq!(
            captured.manifest.content.keys,
            from_etcd.manifest.content.keys
        );
    }
}

#[tokio::test]
async fn the_long_operations_can_run_on_any_task() {
    let bench = Arc::new(Bench::new().await);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let captured = bench.backup(BASIC, minute(0)).await;
        bench.verify(captured.manifest.id, Level::L2).await;
        let plan = plan(&bench, &captured, &options(&bench, Target::Etcd)).await;
        run(&bench, &plan).await
    });
    tasks.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn an_exported_snapshot_is_the_file_that_was_backed_up() {
    let bench = Bench::new().await;
    let captured = bench.backup(SMALL, minute(0)).await;
    let catalog = bench.catalog().await;
    let backup = catalog.get(captured.manifest.id).unwrap();
    let file = bench.folder.path().join("out/snapshot.db");
    let (vault, work_dir) = (bench.vault.read_only(), bench.work_dir());
    let export = || rebuild::export(&vault, backup, &bench.keys, (&file, &work_dir), &|_| {});
    export().await.unwrap();
    assert_eq!(fs::read(&file).unwrap(), SMALL.bytes());
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    assert_eq!(export().await.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn a_target_inside_a_vault_or_the_data_of_a_member_is_refused() {
    let bench = Bench::new().await;
    let captured = bench.backup(SMALL, minute(0)).await;
    let folder = bench.folder.path();
    let (ours, etcds) = (folder.join("ours"), folder.join("etcds"));
    fs::create_dir_all(etcds.join("member/snap")).unwrap();
    fs::create_dir_all(&ours).unwrap();
    fs::write(ours.join("member.json"), b"{}").unwrap();
    let places = [folder.join("vault/clusters/prod/manifests"), ours, etcds];
    for place in places {
        for target in [Target::Holdfast, Target::Etcd] {
            let mut options = options(&bench, target);
            options.data_dir = place.join("deeper/new");
            let plan = plan(&bench, &captured, &options).await;
            let refused = run(&bench, &plan).await.unwrap_err();
            assert!(
                refused.to_string().contains("is inside"),
                "{place:?}: {refused}"
            );
            assert!(!place.join("deeper").exists());
        }
    }
}
