//! Capture: a source's snapshot becomes a backup in the vault, the manifest last.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, Generation};

use crate::error::Result;
use crate::key::{Signer, Trust};
use crate::manifest::{Link, Manifest};
use crate::progress::ProgressFn;
use crate::seal::Sealer;
use crate::source::Source;
use crate::vault::{ReadWrite, Vault};

/// How a backup is taken.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// Whose data.
    pub cluster: ClusterName,
    /// The time, by the appliance's clock.
    pub now: DateTime<Utc>,
    /// Whose signatures count besides the signer's own, when the history is read.
    pub trust: Trust,
    /// The generation to write. `None`: that of the newest backup, or the first. Lower than the
    /// newest backup's: this writer was replaced, and is refused.
    pub generation: Option<Generation>,
    /// Go on when the source is another cluster than before.
    pub accept_new_cluster: bool,
    /// What is read back before the manifest is written.
    pub read_back: ReadBack,
    /// A folder for the sealed spool; as much free space as the snapshot has bytes.
    pub work_dir: PathBuf,
    /// The appliance's ledger file.
    pub ledger: Option<PathBuf>,
    /// Members of the source tried before giving up.
    pub attempts: u32,
}

/// What is read back of what was stored, before the manifest is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadBack {
    /// Nothing.
    None,
    /// Size of each part.
    #[default]
    Sizes,
    /// Every byte of each part.
    Bytes,
}

/// A backup just taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Its commit record.
    pub manifest: Manifest,
    /// Its name.
    pub link: Link,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// Takes one backup.
#[expect(
    clippy::todo,
    clippy::unused_async,
    reason = "signature first, body within the hour"
)]
pub async fn capture(
    _options: &CaptureOptions,
    _source: &dyn Source,
    _vault: &Vault<ReadWrite>,
    _sealer: &Sealer,
    _signer: &Signer,
    _progress: ProgressFn<'_>,
) -> Result<Captured> {
    todo!()
}
