//! A vault with keys, in a local folder or on a real S3 server, and what is done with it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};
use holdfast_interop::peers::Peers;
use holdfast_interop::s3::{ACCESS_KEY, S3, SECRET_KEY};
use holdfast_interop::wait;
use holdfast_policies::{ClusterName, Level, SnapshotId};
use holdfast_restore::delta::run::{self, Runs};
use holdfast_restore::vault::{S3Credentials, S3Spec};
use holdfast_restore::{
    CaptureOptions, Captured, Catalog, Identities, Keys, Pick, Proof, ReadBack, ReadOnly,
    ReadWrite, RestoreOptions, Restored, Sealer, Signer, Source, Trust, Upto, Vault, VaultSpec,
};
use tempfile::TempDir;

/// Bucket of the vaults on S3.
const BUCKET: &str = "backups";
/// Most members of a source tried by a backup.
const ATTEMPTS: u32 = 3;

/// Small, so that a small snapshot has several parts.
const PART_BYTES: usize = 256 * 1024;

/// Where the vault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Local,
    S3,
}

/// A vault and its keys.
pub(crate) struct Stage {
    pub(crate) cluster: ClusterName,
    spec: VaultSpec,
    vault: Vault<ReadWrite>,
    sealer: Sealer,
    signer: Signer,
    folder: TempDir,
    s3: Option<S3>,
}

impl Stage {
    pub(crate) async fn new(peers: &Peers, place: Place) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let s3 = match place {
            Place::Local => None,
            Place::S3 => Some(S3::start(peers, &[BUCKET])?),
        };
        let spec = match &s3 {
            None => VaultSpec::Local {
                path: folder.path().join("vault"),
            },
            Some(s3) => VaultSpec::S3(S3Spec::at(
                &s3.endpoint(),
                BUCKET,
                S3Credentials {
                    access_key_id: ACCESS_KEY.to_owned(),
                    secret_access_key: SECRET_KEY.to_owned().into(),
                    session_token: None,
                },
            )),
        };
        let signer = Signer::generate();
        let vault = Vault::<ReadWrite>::open_or_create(&spec, now(), &signer.verifier()).await?;
        let recipient =
            holdfast_restore::key::generate_identity(&folder.path().join("identity.txt"))?;
        let sealer = Sealer::to_recipients(vec![recipient])?;
        let cluster = "interop".parse()?;
        Ok(Self {
            cluster,
            spec,
            vault,
            sealer,
            signer,
            folder,
            s3,
        })
    }

    /// The folder in which each object of the vault is a file.
    pub(crate) fn objects(&self) -> PathBuf {
        match &self.s3 {
            None => self.folder.path().join("vault"),
            Some(s3) => s3.bucket_dir(BUCKET),
        }
    }

    /// A path for something new.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The right keys.
    pub(crate) fn keys(&self) -> Result<Keys> {
        Ok(Keys {
            trust: self.trust(),
            identities: Some(Identities::load(&self.path("identity.txt"))?),
        })
    }

    /// Keys of somebody else: the signatures count, nothing can be opened.
    pub(crate) fn wrong_keys(&self) -> Result<Keys> {
        let path = self.path("other.txt");
        if !path.exists() {
            holdfast_restore::key::generate_identity(&path)?;
        }
        Ok(Keys {
            trust: self.trust(),
            identities: Some(Identities::load(&path)?),
        })
    }

    /// Who seals and who signs.
    pub(crate) fn writers(&self) -> (&Sealer, &Signer) {
        (&self.sealer, &self.signer)
    }

    /// The vault itself.
    pub(crate) fn vault(&self) -> &Vault<ReadWrite> {
        &self.vault
    }

    /// The changes in the vault.
    pub(crate) async fn runs(&self) -> Result<Runs> {
        let catalog = self.catalog().await?;
        Ok(run::survey(&self.vault, &catalog, &self.trust()).await?)
    }

    /// Plans and carries out a restore with the changes after a backup.
    pub(crate) async fn replay(&self, upto: Upto, options: &RestoreOptions) -> Result<Restored> {
        let (catalog, runs) = (self.catalog().await?, self.runs().await?);
        let plan = holdfast_restore::plan_replay(&catalog, &runs, upto, options)?;
        let vault = self.read_only().await?;
        let silent = &holdfast_restore::progress::silent;
        Ok(holdfast_restore::rebuild(&vault, &plan, &self.keys()?, silent).await?)
    }

    fn trust(&self) -> Trust {
        Trust::in_keys([self.signer.verifier()])
    }

    pub(crate) async fn capture(&self, source: &dyn Source) -> Result<Captured> {
        let options = CaptureOptions {
            trust: self.trust(),
            read_back: ReadBack::Bytes,
            part_bytes: PART_BYTES,
            attempts: ATTEMPTS,
            ..CaptureOptions::new(self.cluster.clone(), now(), self.path("work"))
        };
        std::fs::create_dir_all(self.path("work"))?;
        let silent = &holdfast_restore::progress::silent;
        let captured = holdfast_restore::capture(
            &options,
            source,
            &self.vault,
            &self.sealer,
            &self.signer,
            silent,
        );
        Ok(captured.await?)
    }

    pub(crate) async fn catalog(&self) -> Result<Catalog> {
        Ok(Catalog::load(&self.vault, &self.cluster, &self.trust(), None).await?)
    }

    /// Verifies up to L2, without recording it.
    pub(crate) async fn verify(&self, id: SnapshotId, keys: &Keys) -> Result<Proof> {
        let options = holdfast_restore::VerifyOptions {
            upto: Level::L2,
            now: now(),
            work_dir: self.path("work"),
        };
        let silent = &holdfast_restore::progress::silent;
        let catalog = self.catalog().await?;
        let vault = self.read_only().await?;
        Ok(holdfast_restore::verify(&vault, &catalog, id, keys, &options, silent).await?)
    }

    /// A handle that cannot write, freshly opened.
    async fn read_only(&self) -> Result<Vault<ReadOnly>> {
        Ok(Vault::<ReadOnly>::open(&self.spec).await?)
    }

    /// Plans and carries out a restore.
    pub(crate) async fn restore(
        &self,
        pick: Pick,
        options: &RestoreOptions,
        keys: &Keys,
    ) -> Result<Restored> {
        let catalog = self.catalog().await?;
        let plan = holdfast_restore::plan_restore(&catalog, pick, options)?;
        let vault = self.read_only().await?;
        let silent = &holdfast_restore::progress::silent;
        Ok(holdfast_restore::rebuild(&vault, &plan, keys, silent).await?)
    }
}

/// What is beside a restore target that never came to be: nothing may be.
pub(crate) fn leftovers(target: &Path) -> Result<Vec<String>> {
    let name = target
        .file_name()
        .context("no name")?
        .to_string_lossy()
        .into_owned();
    let parent = target.parent().context("no parent")?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(parent)? {
        let entry = entry?.file_name().to_string_lossy().into_owned();
        if entry.starts_with(&name) {
            found.push(entry);
        }
    }
    Ok(found)
}

pub(crate) fn now() -> DateTime<Utc> {
    DateTime::from(wait::clock())
}
