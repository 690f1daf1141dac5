//! What the tests share: a vault in a temporary folder, keys, golden snapshots as sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use holdfast_policies::{ClusterName, Level, SnapshotId};
use holdfast_restore::manifest::SourceHash;
use holdfast_restore::vault::ObjectName;
use holdfast_restore::{
    CaptureOptions, Captured, Catalog, Error, FileSource, Identities, Keys, Proof, ReadWrite,
    Sealer, Signer, Trust, Vault, VerifyOptions, capture, key, proof, verify,
};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;

/// Small parts, so that small snapshots have several.
pub(crate) const PART_BYTES: usize = 64 * 1024;

/// Golden snapshots: path below the fixtures, HashKV, revision and compaction as etcd told them.
pub(crate) const SMALL: Golden = Golden("v3.7.3/small", 549_478_386, 452, 416);
pub(crate) const BASIC: Golden = Golden("v3.7.3/basic", 280_015_280, 160, 87);
pub(crate) const K8S: Golden = Golden("v3.7.3/k8s", 3_150_712_695, 238, -1);
pub(crate) const AUTH: Golden = Golden("v3.7.3/auth", 549_478_386, 452, 416);
pub(crate) const ALARM: Golden = Golden("v3.7.3/alarm", 2_119_975_217, 30, -1);
pub(crate) const EMPTY: Golden = Golden("v3.7.3/empty", 1_084_519_789, 1, -1);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Golden(
    pub(crate) &'static str,
    pub(crate) u32,
    pub(crate) i64,
    pub(crate) i64,
);

impl Golden {
    pub(crate) fn path(self) -> PathBuf {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/fixtures/etcd");
        fixtures.join(format!("{}.db", self.0))
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    /// The file with what etcd said of it.
    pub(crate) fn source(self) -> FileSource {
        FileSource::new(self.path())
            .with_cluster_id("cafe")
            .with_told_hash(SourceHash::Told {
                hash: self.1,
                revision: self.2,
                compact_revision: self.3,
                members: vec!["golden".to_owned()],
                divergent: Vec::new(),
            })
    }
}

pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) vault: Vault<ReadWrite>,
    pub(crate) signer: Signer,
    pub(crate) sealer: Sealer,
    pub(crate) keys: Keys,
    pub(crate) cluster: ClusterName,
}

pub(crate) fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_780_000_000, 0).unwrap()
}

pub(crate) fn minute(n: i64) -> DateTime<Utc> {
    noon() + TimeDelta::minutes(n)
}

pub(crate) fn local_store(folder: &Path) -> Arc<dyn ObjectStore> {
    let root = folder.join("vault");
    fs::create_dir_all(&root).unwrap();
    Arc::new(LocalFileSystem::new_with_prefix(root).unwrap())
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = local_store(folder.path());
        Self::over(folder, store).await
    }

    pub(crate) async fn over(folder: tempfile::TempDir, store: Arc<dyn ObjectStore>) -> Self {
        let signer = Signer::generate();
        let identity = folder.path().join("identity");
        let recipient = key::generate_identity(&identity).unwrap();
        let keys = Keys {
            trust: Trust::in_keys([signer.verifier()]),
            identities: Some(Identities::load(&identity).unwrap()),
        };
        let made = (noon(), &signer.verifier());
        let vault = Vault::create_in_store(store, "", "test".to_owned(), made)
            .await
            .unwrap();
        Self {
            vault,
            signer,
            sealer: Sealer::to_recipients(vec![recipient]).unwrap(),
            keys,
            cluster: "prod".parse().unwrap(),
            folder,
        }
    }

    /// The same vault seen through another object store.
    pub(crate) async fn through(&self, store: Arc<dyn ObjectStore>) -> Vault<ReadWrite> {
        self.try_through(store).await.unwrap()
    }

    /// The same, where that store may fail.
    pub(crate) async fn try_through(
        &self,
        store: Arc<dyn ObjectStore>,
    ) -> Result<Vault<ReadWrite>, Error> {
        Vault::from_store(store, "", "test".to_owned()).await
    }

    pub(crate) fn work_dir(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn options(&self, at: DateTime<Utc>) -> CaptureOptions {
        CaptureOptions {
            part_bytes: PART_BYTES,
            attempts: 1,
            ..CaptureOptions::new(self.cluster.clone(), at, self.work_dir())
        }
    }

    pub(crate) async fn backup(&self, golden: Golden, at: DateTime<Utc>) -> Captured {
        self.try_backup(golden, &self.options(at)).await.unwrap()
    }

    pub(crate) async fn try_backup(
        &self,
        golden: Golden,
        options: &CaptureOptions,
    ) -> Result<Captured, Error> {
        let source = golden.source();
        capture(
            options,
            &source,
            &self.vault,
            &self.sealer,
            &self.signer,
            &|_| {},
        )
        .await
    }

    pub(crate) async fn catalog(&self) -> Catalog {
        Catalog::load(&self.vault, &self.cluster, &self.keys.trust, None)
            .await
            .unwrap()
    }

    pub(crate) async fn verify(&self, id: SnapshotId, upto: Level) -> Proof {
        self.verify_with(id, upto, &self.keys).await
    }

    pub(crate) async fn verify_with(&self, id: SnapshotId, upto: Level, keys: &Keys) -> Proof {
        let catalog = self.catalog().await;
        let options = VerifyOptions {
            upto,
            now: minute(500),
            work_dir: self.work_dir(),
        };
        verify(&self.vault, &catalog, id, keys, &options, &|_| {})
            .await
            .unwrap()
    }

    /// Records a proof at `level`, as a verification or a drill would.
    pub(crate) async fn prove(&self, captured: &Captured, level: Level) {
        let proof = Proof {
            id: captured.manifest.id,
            cluster: self.cluster.clone(),
            manifest: captured.link.digest,
            at: minute(600),
            level: Some(level),
            evidence: holdfast_restore::Evidence::default(),
            flaws: Vec::new(),
        };
        proof::record(&self.vault, &proof, &self.signer)
            .await
            .unwrap();
    }

    /// Where an object lies on disk, for those who tamper.
    pub(crate) fn file(&self, name: &ObjectName) -> PathBuf {
        self.folder.path().join("vault").join(name.as_str())
    }

    /// Every file below the vault's folder, sorted.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![self.folder.path().join("vault")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path);
                }
            }
        }
        files.sort();
        files
    }
}
