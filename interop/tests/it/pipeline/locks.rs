//! Object lock on a real server: set and extended in step with retention, and gone with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chrono::TimeDelta;
use holdfast_interop::peers::Peers;
use holdfast_interop::s3::{ACCESS_KEY, S3, SECRET_KEY};
use holdfast_policies::{
    ClusterName, Level, Listing, RetentionInput, RetentionPlan, RetentionPolicy, SnapshotId,
};
use holdfast_restore::locks::keep_locked;
use holdfast_restore::prune::{PruneOptions, Pruned, execute_prune};
use holdfast_restore::vault::{Folder, LockMode, ObjectLock, S3Credentials, S3Spec, layout};
use holdfast_restore::{
    CaptureOptions, Catalog, ErrorKind, FileSource, Keys, ReadWrite, Sealer, Signer, Trust, Vault,
    VaultSpec, VerifyOptions, capture, proof, verify,
};
use object_store::ClientOptions;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpConnector as _, HttpRequest, HttpRequestBody, ReqwestConnector};
use tempfile::TempDir;

use super::stage::now;

const BUCKET: &str = "locked";
const DAYS: u16 = 4;

/// A vault on a bucket with object lock.
struct Locked {
    s3: S3,
    folder: TempDir,
    vault: Vault<ReadWrite>,
    signer: Signer,
    trust: Trust,
    cluster: ClusterName,
}

/// The one call that no client of ours makes: a bucket with object lock.
async fn create_bucket(endpoint: &str) -> Result<()> {
    let credential = AwsCredential {
        key_id: ACCESS_KEY.to_owned(),
        secret_key: SECRET_KEY.to_owned(),
        token: None,
    };
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.method_mut() = http::Method::PUT;
    *request.uri_mut() = format!("{endpoint}/{BUCKET}").parse()?;
    let enabled = http::HeaderValue::from_static("true");
    let name = http::HeaderName::from_static("x-amz-bucket-object-lock-enabled");
    request.headers_mut().insert(name, enabled);
    AwsAuthorizer::new(&credential, "s3", "us-east-1").try_authorize(&mut request, None)?;
    let options = ClientOptions::new().with_allow_http(true);
    let answer = ReqwestConnector::default()
        .connect(&options)?
        .execute(request)
        .await?;
    let status = answer.status();
    let said = answer.into_body().bytes().await?;
    ensure!(
        status.is_success(),
        "{status}: {}",
        String::from_utf8_lossy(&said)
    );
    Ok(())
}

impl Locked {
    async fn new(peers: &Peers, mode: LockMode) -> Result<Self> {
        let s3 = S3::start_versioned(peers)?;
        create_bucket(&s3.endpoint()).await?;
        let credentials = S3Credentials {
            access_key_id: ACCESS_KEY.to_owned(),
            secret_access_key: SECRET_KEY.to_owned().into(),
            session_token: None,
        };
        let spec = VaultSpec::S3(S3Spec {
            object_lock: Some(ObjectLock { mode, days: DAYS }),
            prefix: "vault".to_owned(),
            ..S3Spec::at(&s3.endpoint(), BUCKET, credentials)
        });
        let signer = Signer::generate();
        let vault = Vault::<ReadWrite>::open_or_create(&spec, now(), &signer.verifier()).await?;
        Ok(Self {
            s3,
            folder: tempfile::tempdir()?,
            vault,
            trust: Trust::in_keys([signer.verifier()]),
            signer,
            cluster: "locked".parse()?,
        })
    }

    async fn catalog(&self) -> Result<Catalog> {
        Ok(Catalog::load(&self.vault, &self.cluster, &self.trust, None).await?)
    }

    async fn back_up(&self) -> Result<SnapshotId> {
        let work_dir = self.folder.path().join("work");
        std::fs::create_dir_all(&work_dir)?;
        let options = CaptureOptions::new(self.cluster.clone(), now(), work_dir.clone());
        let source = FileSource::new(snapshot()).with_cluster_id("cafe");
        let taken = capture(
            &options,
            &source,
            &self.vault,
            &Sealer::none(),
            &self.signer,
            &|_| {},
        )
        .await?;
        let id = taken.manifest.id;
        let keys = Keys {
            trust: self.trust.clone(),
            identities: None,
        };
        let options = VerifyOptions {
            upto: Level::L1,
            now: now(),
            work_dir,
        };
        let catalog = self.catalog().await?;
        let proven = verify(&self.vault, &catalog, id, &keys, &options, &|_| {}).await?;
        proof::record(&self.vault, &proven, &self.signer).await?;
        Ok(id)
    }

    /// Keeps the newest alone, and has no patience with the trash.
    async fn prune(&self) -> Result<Pruned> {
        let catalog = self.catalog().await?;
        let plan = plan(&catalog)?;
        let options = PruneOptions {
            signer: &self.signer,
            trust: &self.trust,
            local: None,
            now: now(),
            vault_now: Some(self.vault.clock(&self.cluster).await?),
            trash_grace: TimeDelta::zero(),
        };
        Ok(execute_prune(&self.vault, &self.cluster, &plan, options).await?)
    }

    async fn objects_of(&self, id: SnapshotId) -> Result<usize> {
        let parts = Folder::Parts.of_backup(&self.cluster, id);
        Ok(self.vault.list(&parts).await?.len())
    }
}

fn plan(catalog: &Catalog) -> Result<RetentionPlan> {
    let policy = RetentionPolicy {
        keep_last: 1,
        keep_hourly: 0,
        keep_daily: 0,
        keep_weekly: 0,
        keep_monthly: 0,
        count_from: Level::L1,
        ..RetentionPolicy::default()
    };
    let facts = catalog.facts(now());
    let newest = facts.last().context("no backup")?;
    let input = RetentionInput {
        occasion: newest.id,
        now: now(),
        vault_now: None,
        listing: Listing::Complete,
        confirmed: None,
    };
    Ok(policy.plan(&facts, &input)?)
}

fn snapshot() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/fixtures/etcd/v3.7.3/small.db")
}

async fn lock_follows_retention(mode: LockMode) -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let place = Locked::new(&peers, mode).await?;
    let first = place.back_up().await?;
    assert_eq!(place.catalog().await?.backups[0].locked_until, None);

    // Set: every object of what is kept.
    let start = place.vault.clock(&place.cluster).await?;
    let locked = keep_locked(&place.vault, &place.catalog().await?, start).await;
    assert_eq!((locked.extended.len(), locked.refused), (1, vec![]));
    let catalog = place.catalog().await?;
    let until = catalog.backups[0].locked_until.context("not locked")?;
    let wanted = start + TimeDelta::days(i64::from(DAYS));
    assert!((until - wanted).abs() < TimeDelta::seconds(2), "{until}");
    let part = layout::part(&place.cluster, first, 0);
    assert_eq!(place.vault.locked_until(&part).await?, Some(until));

    // In force: nobody removes it, and a lock is not shortened by compliance.
    let denied = place.vault.remove(&part).await;
    let denied = denied.err().context("what is locked was removed")?;
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    assert!(denied.to_string().contains("parts/"), "{denied}");
    if mode == LockMode::Compliance {
        let shorter = place
            .vault
            .lock_until(&part, until - TimeDelta::days(1))
            .await;
        assert!(shorter.is_err(), "a lock by compliance was shortened");
    }

    // Extended as long as it is kept, and not before half of it is over.
    let early = start + TimeDelta::days(1);
    let locked = keep_locked(&place.vault, &place.catalog().await?, early).await;
    assert_eq!(locked.extended, []);
    let late = start + TimeDelta::days(3);
    let locked = keep_locked(&place.vault, &place.catalog().await?, late).await;
    assert_eq!((locked.extended.len(), locked.refused), (1, vec![]));
    let extended = place.catalog().await?.backups[0].locked_until;
    assert!(extended > Some(until), "{extended:?}");

    // Let go: deferred with its date, no longer extended, every byte there.
    place.back_up().await?;
    let pruned = place.prune().await?;
    assert_eq!((&pruned.trashed, pruned.removed.len()), (&vec![first], 0));
    assert_eq!(pruned.deferred.first().map(|(id, _)| *id), Some(first));
    assert_eq!(
        pruned.deferred.first().map(|(_, until)| Some(*until)),
        Some(extended)
    );
    assert_eq!(pruned.refused, []);
    assert!(place.objects_of(first).await? > 0);
    let locked = keep_locked(&place.vault, &place.catalog().await?, late).await;
    assert!(
        locked.extended.iter().all(|(id, _)| *id != first),
        "{locked:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_by_governance_is_set_extended_and_defers_removal_in_step_with_retention()
-> Result<()> {
    lock_follows_retention(LockMode::Governance).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_by_compliance_is_set_extended_and_defers_removal_in_step_with_retention()
-> Result<()> {
    lock_follows_retention(LockMode::Compliance).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_goes_with_its_bytes_when_its_lock_has_run_out() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let place = Locked::new(&peers, LockMode::Compliance).await?;
    let first = place.back_up().await?;
    let until = place.vault.clock(&place.cluster).await? + TimeDelta::seconds(6);
    let sequence = place.catalog().await?.backups[0].manifest.sequence;
    for listed in place
        .vault
        .list(&Folder::Parts.of_backup(&place.cluster, first))
        .await?
    {
        place.vault.lock_until(&listed.name, until).await?;
    }
    let manifest = layout::manifest(&place.cluster, sequence);
    place.vault.lock_until(&manifest, until).await?;
    place.back_up().await?;
    let pruned = place.prune().await?;
    assert_eq!((pruned.trashed, pruned.deferred.len()), (vec![first], 1));
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    while !place.prune().await?.removed.contains(&first) {
        ensure!(tokio::time::Instant::now() < deadline, "it never went");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let after = place.catalog().await?;
    assert_eq!((after.backups.len(), after.trash.len()), (1, 0));
    assert_eq!(after.flaws, []);
    assert_eq!(place.objects_of(first).await?, 0);
    // No old version of it is left behind a marker either.
    let id = first.to_string();
    assert!(
        !holds(place.s3.dir(), &id)?,
        "bytes of {first} are still on the server's disk"
    );
    Ok(())
}

/// Whether a file of some size lies below a folder whose path names `id`, release records aside.
fn holds(dir: &Path, id: &str) -> Result<bool> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let text = path.to_string_lossy();
        if path.is_dir() {
            if holds(&path, id)? {
                return Ok(true);
            }
        } else if text.contains("/parts/") && text.contains(id) {
            return Ok(std::fs::metadata(&path)?.len() > 0);
        }
    }
    Ok(false)
}
