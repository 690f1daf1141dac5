//! What a vault may do to a backup, on a real socket: nothing is lost, and nothing is told to be
//! there that is not.

use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_policies::{Level, Sequence};
use holdfast_restore::{
    Captured, Catalog, Error, ErrorKind, ReadBack, ReadWrite, Vault, VaultSpec, VerifyOptions,
    capture, verify,
};

use super::bench::{BASIC, Bench, minute};
use super::fake_s3::{FakeS3, Fault};

/// A vault on a server that can fail.
struct Remote {
    bench: Bench,
    s3: FakeS3,
    vault: Vault<ReadWrite>,
}

impl Remote {
    async fn new() -> Self {
        let (bench, s3) = (Bench::new().await, FakeS3::start().await);
        let verifier = bench.signer.verifier();
        let vault = Vault::open_or_create(&s3.vault_spec(), minute(0), &verifier).await;
        Self {
            vault: vault.unwrap(),
            bench,
            s3,
        }
    }

    async fn backup(&self, n: i64, read_back: ReadBack) -> Result<Captured, Error> {
        self.backup_into(&self.vault, n, read_back).await
    }

    async fn backup_into(
        &self,
        vault: &Vault<ReadWrite>,
        n: i64,
        read_back: ReadBack,
    ) -> Result<Captured, Error> {
        let mut options = self.bench.options(minute(n));
        options.read_back = read_back;
        options.ledger = Some(self.bench.folder.path().join("ledger"));
        let (sealer, signer) = (&self.bench.sealer, &self.bench.signer);
        capture(&options, &BASIC.source(), vault, sealer, signer, &|_| {}).await
    }

    async fn catalog(&self) -> Catalog {
        let (cluster, trust) = (&self.bench.cluster, &self.bench.keys.trust);
        Catalog::load(&self.vault, cluster, trust, None)
            .await
            .unwrap()
    }

    /// Whatever is listed is whole, and `backups` are.
    async fn holds(&self, backups: usize, after: &str) {
        let catalog = self.catalog().await;
        assert_eq!(catalog.flaws, [], "{after}");
        assert_eq!(catalog.backups.len(), backups, "{after}");
        for backup in &catalog.backups {
            let options = VerifyOptions {
                upto: Level::L1,
                now: minute(500),
                work_dir: self.bench.work_dir(),
            };
            let (id, keys) = (backup.id(), &self.bench.keys);
            let proof = verify(&self.vault, &catalog, id, keys, &options, &|_| {}).await;
            assert_eq!(proof.unwrap().level, Some(Level::L1), "{after}");
        }
    }

    fn manifests(&self) -> usize {
        let names = self.s3.names();
        names
            .iter()
            .filter(|one| one.contains("/manifests/"))
            .count()
    }
}

fn is_part(key: &str) -> bool {
    key.contains("/parts/")
}

fn is_manifest(key: &str) -> bool {
    key.contains("/manifests/")
}

#[tokio::test]
async fn up1_a_connection_that_ends_at_any_byte_of_an_upload_leaves_a_whole_backup_or_none() {
    for bytes in [0, 1, 4, 200, 600, 1_500, 3_000, 20_000] {
        let remote = Remote::new().await;
        remote.backup(0, ReadBack::Sizes).await.unwrap();
        remote.s3.cut_next_upload_after(bytes);
        let outcome = remote.backup(1, ReadBack::Sizes).await;
        remote.s3.heal();
        let after = format!("a cut after {bytes} bytes");
        remote.holds(1 + usize::from(outcome.is_ok()), &after).await;
        remote.backup(2, ReadBack::Sizes).await.unwrap();
        remote.holds(2 + usize::from(outcome.is_ok()), &after).await;
    }
}

#[tokio::test]
async fn up1_a_request_that_was_read_whole_and_dropped_is_no_success() {
    for is_dropped in [is_part, is_manifest] {
        let remote = Remote::new().await;
        remote.s3.plan(move |asked| {
            (asked.method == "PUT" && is_dropped(asked.key)).then_some(Fault::Dropped)
        });
        remote.backup(0, ReadBack::Sizes).await.unwrap_err();
        assert_eq!(remote.manifests(), 0);
        remote.s3.heal();
        remote.backup(1, ReadBack::Sizes).await.unwrap();
        remote.holds(1, "a dropped request").await;
    }
}

#[tokio::test]
async fn up2_a_storm_of_slow_down_and_503_is_waited_out() {
    let remote = Remote::new().await;
    let asked = AtomicUsize::new(0);
    remote.s3.plan(move |_| {
        let count = asked.fetch_add(1, Ordering::SeqCst);
        let code = [
            (503, "SlowDown"),
            (500, "InternalError"),
            (503, "ServiceUnavailable"),
        ];
        let (status, code) = code[count % 3];
        (count % 4 != 3).then_some(Fault::Status(status, code))
    });
    remote.backup(0, ReadBack::Sizes).await.unwrap();
    remote.s3.heal();
    remote.holds(1, "a storm").await;
}

#[tokio::test]
async fn up3_a_permission_lost_midway_ends_the_run_as_denied_and_leaves_nothing() {
    let remote = Remote::new().await;
    let parts = AtomicUsize::new(0);
    remote.s3.plan(move |asked| {
        let is_upload = asked.method == "PUT" && is_part(asked.key);
        let is_denied = is_upload && parts.fetch_add(1, Ordering::SeqCst) >= 1;
        (is_denied || (asked.method == "PUT" && is_manifest(asked.key)))
            .then_some(Fault::Status(403, "AccessDenied"))
    });
    let denied = remote.backup(0, ReadBack::Sizes).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    assert_eq!(remote.manifests(), 0);
    let names = remote.s3.names();
    assert!(!names.iter().any(|one| is_part(one)), "{names:?}");
}

#[tokio::test]
async fn up3_credentials_that_are_rotated_midway_are_taken_up_by_the_request_that_is_denied() {
    let remote = Remote::new().await;
    let file = remote.bench.folder.path().join("credentials");
    let text = |key: &str| format!("aws_access_key_id = {key}\naws_secret_access_key = s\n");
    std::fs::write(&file, text("old")).unwrap();
    let mut spec = remote.s3.spec();
    (spec.credentials, spec.credentials_file) = (None, Some(file.clone()));
    let vault = Vault::<ReadWrite>::open(&VaultSpec::S3(spec))
        .await
        .unwrap();
    let new = text("rotated");
    remote.s3.plan(move |asked| {
        let is_late = asked.method == "PUT" && is_part(asked.key);
        if is_late && asked.access_key == "old" {
            // The old ones end at this moment, and the new ones are there.
            std::fs::write(&file, &new).unwrap();
        }
        (is_late && asked.access_key != "rotated").then_some(Fault::Status(403, "ExpiredToken"))
    });
    remote
        .backup_into(&vault, 0, ReadBack::Sizes)
        .await
        .unwrap();
    remote.s3.heal();
    remote.holds(1, "a rotation").await;
}

#[tokio::test]
async fn up4_a_refusal_for_the_time_of_a_request_names_the_skew() {
    let remote = Remote::new().await;
    remote
        .s3
        .plan(|_| Some(Fault::Status(403, "RequestTimeTooSkewed")));
    let refused = remote.backup(0, ReadBack::Sizes).await.unwrap_err();
    assert!(refused.to_string().contains("1800 s ahead"), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn up5_an_upload_whose_answer_got_lost_is_there_once_and_is_no_false_report() {
    for is_lost in [is_part, is_manifest] {
        let remote = Remote::new().await;
        let lost = AtomicUsize::new(0);
        remote.s3.plan(move |asked| {
            let is_due = asked.method == "PUT" && is_lost(asked.key);
            (is_due && lost.fetch_add(1, Ordering::SeqCst) == 0).then_some(Fault::AnswerLost)
        });
        let outcome = remote.backup(0, ReadBack::Sizes).await;
        remote.s3.heal();
        // Without the answer it may be there and not be told of; told of, it is there.
        let there = remote.manifests();
        assert!(outcome.is_err() || there == 1, "{outcome:?}");
        remote.holds(there, "a lost answer").await;
        remote.backup(1, ReadBack::Sizes).await.unwrap();
        remote.holds(there + 1, "a lost answer").await;
    }
}

#[tokio::test]
async fn up7_a_listing_that_lags_behind_neither_forks_the_chain_nor_writes_over_a_manifest() {
    let remote = Remote::new().await;
    let first = remote.backup(0, ReadBack::Sizes).await.unwrap();
    remote.s3.hide("clusters/prod/manifests");
    let second = remote.backup(1, ReadBack::Sizes).await;
    remote.s3.heal();
    if let Ok(second) = &second {
        assert_eq!(second.manifest.sequence, Sequence(2));
        assert_eq!(second.manifest.predecessor, Some(first.link));
    }
    remote
        .holds(1 + usize::from(second.is_ok()), "a lagging list")
        .await;
}

#[tokio::test]
async fn up8_bytes_that_are_stored_otherwise_are_noticed_before_the_manifest() {
    for (fault, read_back) in [
        (Fault::Flipped, ReadBack::Bytes),
        (Fault::Short, ReadBack::Sizes),
        (Fault::Short, ReadBack::Bytes),
    ] {
        let remote = Remote::new().await;
        remote
            .s3
            .plan(move |asked| (asked.method == "PUT" && is_part(asked.key)).then_some(fault));
        let refused = remote.backup(0, read_back).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        assert_eq!(remote.manifests(), 0);
    }
}

#[tokio::test]
async fn up10_a_bucket_that_is_gone_is_told_as_such() {
    let remote = Remote::new().await;
    remote.s3.plan(|_| Some(Fault::Status(404, "NoSuchBucket")));
    let refused = remote.backup(0, ReadBack::Sizes).await.unwrap_err();
    assert_eq!(remote.manifests(), 0, "{refused}");
}
