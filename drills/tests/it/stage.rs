//! What the tests share: a vault with golden backups, and the programs drills boot.

use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, TimeDelta, Utc};
use holdfast_drills::{
    DrillOptions, DrillReport, DrillTarget, MemberCommand, Outcome, run, run_scratch_member,
};
use holdfast_interop::peers::{Peer, Peers};
use holdfast_policies::{ClusterName, SnapshotId};
use holdfast_restore::manifest::SourceHash;
use holdfast_restore::{
    CaptureOptions, Catalog, FileSource, Identities, Keys, ReadOnly, ReadWrite, Sealer, Signer,
    Trust, Vault, VaultSpec, capture, key,
};

/// Tells the test below that it is meant.
pub(crate) const IS_MEMBER: &str = "HOLDFAST_TEST_SCRATCH_MEMBER";

/// A golden snapshot: its name, and HashKV, revision and compaction as etcd told them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Golden(&'static str, pub(crate) u32, i64, i64);

pub(crate) const SMALL: Golden = Golden("small", 549_478_386, 452, 416);
pub(crate) const AUTH: Golden = Golden("auth", 549_478_386, 452, 416);
pub(crate) const ALARM: Golden = Golden("alarm", 2_119_975_217, 30, -1);
pub(crate) const EMPTY: Golden = Golden("empty", 1_084_519_789, 1, -1);
pub(crate) const K8S: Golden = Golden("k8s", 3_150_712_695, 238, -1);

impl Golden {
    pub(crate) fn path(self) -> PathBuf {
        let folder = "../store/tests/fixtures/etcd/v3.7.3";
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(folder)
            .join(format!("{}.db", self.0))
    }

    pub(crate) fn told(self) -> SourceHash {
        SourceHash::Told {
            hash: self.1,
            revision: self.2,
            compact_revision: self.3,
            members: vec!["golden".to_owned()],
            divergent: Vec::new(),
        }
    }
}

/// Not a test when started as one: the scratch member's process.
#[test]
fn member_process() {
    if std::env::var_os(IS_MEMBER).is_some() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(run_scratch_member()).unwrap();
    }
}

/// Starts this program again, as a scratch member.
pub(crate) fn member_command() -> MemberCommand {
    MemberCommand {
        program: std::env::current_exe().unwrap(),
        args: ["stage::member_process", "--exact", "--nocapture"]
            .map(Into::into)
            .to_vec(),
        env: vec![(IS_MEMBER.into(), "1".into())],
    }
}

/// The bundled store and, when it can be built, a real etcd.
pub(crate) fn targets() -> Vec<DrillTarget> {
    let etcd = Peers::get().map(|peers| DrillTarget::Etcd(peers.path(Peer::Etcd).unwrap()));
    [Some(DrillTarget::Holdfast), etcd]
        .into_iter()
        .flatten()
        .collect()
}

pub(crate) fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_780_000_000, 0).unwrap()
}

/// A vault, its keys, and a scratch folder.
pub(crate) struct Stage {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) vault: Vault<ReadWrite>,
    pub(crate) signer: Signer,
    pub(crate) keys: Keys,
    sealer: Sealer,
    pub(crate) cluster: ClusterName,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::open(folder).await
    }

    async fn open(folder: tempfile::TempDir) -> Self {
        let signer = Signer::generate_file(&folder.path().join("signing-key")).unwrap();
        let identity = folder.path().join("identity");
        let recipient = key::generate_identity(&identity).unwrap();
        let spec = VaultSpec::Local {
            path: folder.path().join("vault"),
        };
        let vault = Vault::<ReadWrite>::open_or_create(&spec, noon(), &signer.verifier())
            .await
            .unwrap();
        Self {
            keys: keys_in(folder.path()),
            sealer: Sealer::to_recipients(vec![recipient]).unwrap(),
            cluster: "prod".parse().unwrap(),
            folder,
            vault,
            signer,
        }
    }

    pub(crate) async fn backup(&self, golden: Golden) -> SnapshotId {
        self.backup_of(&golden.path(), golden.told()).await
    }

    /// A backup of any snapshot file, with what its source told.
    pub(crate) async fn backup_of(&self, file: &Path, told: SourceHash) -> SnapshotId {
        let source = FileSource::new(file)
            .with_cluster_id("cafe")
            .with_told_hash(told);
        let work_dir = self.folder.path().join("work");
        let options = CaptureOptions {
            part_bytes: 64 * 1024,
            attempts: 1,
            ..CaptureOptions::new(self.cluster.clone(), noon(), work_dir)
        };
        let silent = &|_| {};
        let captured = capture(
            &options,
            &source,
            &self.vault,
            &self.sealer,
            &self.signer,
            silent,
        )
        .await;
        captured.unwrap().manifest.id
    }

    /// Rewrites the newest manifest with what another content's source told: a backup that no
    /// capture would have let pass, signed all the same.
    pub(crate) async fn retell(&self, told: SourceHash) {
        let trust = &self.keys.trust;
        let catalog = Catalog::load(&self.vault, &self.cluster, trust, None)
            .await
            .unwrap();
        let mut manifest = catalog.newest().unwrap().manifest.clone();
        manifest.source_hash = told;
        let folder = self
            .folder
            .path()
            .join(format!("vault/clusters/{}", self.cluster));
        let object = manifest.encode(&self.signer).unwrap();
        let name = format!("manifests/{:012}.json", manifest.sequence.0);
        fs::write(folder.join(name), object).unwrap();
        // It remembers the manifest as it was.
        fs::remove_dir_all(folder.join("ledger")).unwrap();
    }

    pub(crate) fn scratch(&self) -> PathBuf {
        self.folder.path().join("scratch")
    }

    pub(crate) fn options(&self) -> DrillOptions {
        let now = noon() + TimeDelta::minutes(20);
        DrillOptions::new(self.cluster.clone(), now, self.scratch(), member_command())
    }

    pub(crate) async fn drill(&self, options: &DrillOptions) -> DrillReport {
        let vault = self.vault.read_only();
        let report = run(options, &vault, &self.keys, &|_| {}).await.unwrap();
        self.assert_nothing_is_left(&report).await;
        report
    }

    /// No directory, no process; the port was looked at by the drill itself.
    async fn assert_nothing_is_left(&self, report: &DrillReport) {
        assert!(report.teardown.is_clean, "{report}");
        let left = fs::read_dir(self.scratch()).unwrap().flatten();
        let own = left.filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .contains(&report.id.to_string())
        });
        assert_eq!(own.count(), 0, "a scratch directory is left");
        assert_no_process_in(&self.scratch().join(format!("drill-{}", report.id))).await;
    }

    /// The file of one part of a backup.
    pub(crate) fn part(&self, id: SnapshotId, index: usize) -> PathBuf {
        let parts = format!("vault/clusters/{}/parts/{id}/{index:06}", self.cluster);
        self.folder.path().join(parts)
    }
}

/// The keys a stage has put into its folder.
pub(crate) fn keys_in(folder: &Path) -> Keys {
    let signer = Signer::load(&folder.join("signing-key")).unwrap();
    Keys {
        trust: Trust::in_keys([signer.verifier()]),
        identities: Some(Identities::load(&folder.join("identity")).unwrap()),
    }
}

/// The vault of a stage, from its folder.
pub(crate) async fn vault_in(folder: &Path) -> Vault<ReadOnly> {
    let spec = VaultSpec::Local {
        path: folder.join("vault"),
    };
    Vault::<ReadOnly>::open(&spec).await.unwrap()
}

/// Processes whose working directory is below `path`, alive or not: the name outlives it.
pub(crate) fn processes_in(path: &Path) -> Vec<String> {
    let in_path = |entry: fs::DirEntry| {
        let cwd = fs::read_link(entry.path().join("cwd")).ok()?;
        let name = entry.file_name().into_string().ok()?;
        cwd.starts_with(path).then_some(name)
    };
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| in_path(entry.ok()?))
        .collect()
}

pub(crate) async fn assert_no_process_in(path: &Path) {
    for _ in 0..200 {
        if processes_in(path).is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!(
        "processes are left in {}: {:?}",
        path.display(),
        processes_in(path)
    );
}

/// The outcome of one check.
pub(crate) fn outcome(report: &DrillReport, name: &str) -> Outcome {
    let check = report.checks.iter().find(|check| check.name == name);
    check
        .unwrap_or_else(|| panic!("no check {name}: {report}"))
        .outcome
}
