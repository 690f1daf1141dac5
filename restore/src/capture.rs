//! Capture: a source's snapshot becomes a backup in the vault, the manifest last.
//!
//! The stream is cut into parts; each is compressed, sealed, spooled and stored on its own,
//! several at a time. When the stream has ended well the spooled copy is read for what it says of
//! itself, the source is asked for its hash of the same revision, and only then the manifest is
//! written. Whatever fails before that leaves no backup, only parts that nobody refers to.

mod attempt;
mod cutter;

use std::path::PathBuf;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, Generation, Pool, Sequence};

use crate::error::{Error, Result, Successor};
use crate::key::{Signer, Trust};
use crate::ledger::{self, Ledger, Observation, Reason};
use crate::manifest::{Link, Manifest};
use crate::office::Office;
use crate::part::{self, PART_BYTES};
use crate::progress::{Phase, Progress, ProgressFn};
use crate::seal::Sealer;
use crate::source::Source;
use crate::vault::{Catalog, ReadWrite, Vault};

/// Most attempts of one run.
pub const ATTEMPTS_MAX: u32 = 16;

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
    /// What the backup is taken for.
    pub pool: Pool,
    /// What must still be held when the manifest is written.
    pub office: Option<Arc<dyn Office>>,
    /// Go on when the source is another cluster than before. Begins the next generation.
    pub accept_new_cluster: bool,
    /// What is read back before the manifest is written.
    pub read_back: ReadBack,
    /// A folder for the sealed spool; as much free space as the snapshot has bytes.
    pub work_dir: PathBuf,
    /// The appliance's ledger file.
    pub ledger: Option<PathBuf>,
    /// Plain bytes in each part. Default: [`PART_BYTES`]; smaller ones are for tests.
    pub part_bytes: usize,
    /// Members of the source tried before giving up: 1 to [`ATTEMPTS_MAX`].
    pub attempts: u32,
}

impl CaptureOptions {
    /// Defaults for `cluster` at `now`.
    pub fn new(cluster: ClusterName, now: DateTime<Utc>, work_dir: PathBuf) -> Self {
        Self {
            cluster,
            now,
            trust: Trust::default(),
            generation: None,
            pool: Pool::default(),
            office: None,
            accept_new_cluster: false,
            read_back: ReadBack::default(),
            work_dir,
            ledger: None,
            part_bytes: PART_BYTES,
            attempts: 3,
        }
    }
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

/// Takes one backup. A member of the source that fails is left for another; the vault failing,
/// or anything in doubt about the history, ends the run.
pub async fn capture(
    options: &CaptureOptions,
    source: &dyn Source,
    vault: &Vault<ReadWrite>,
    sealer: &Sealer,
    signer: &Signer,
    progress: ProgressFn<'_>,
) -> Result<Captured> {
    if !part::is_part_size(part::length_of(options.part_bytes)) {
        return Err(Error::Refused {
            reason: format!("part size {}", options.part_bytes),
        });
    }
    let trust = Trust::in_keys(
        options
            .trust
            .keys()
            .iter()
            .cloned()
            .chain([signer.verifier()]),
    );
    let local = match &options.ledger {
        Some(path) => ledger::read_local(path, &options.cluster)?,
        None => Ledger::default(),
    };
    let catalog = Catalog::load(vault, &options.cluster, &trust, Some(&local)).await?;
    let place = Position::after(&catalog, options)?;
    let run = attempt::Run {
        options,
        trust: &trust,
        source,
        vault,
        sealer,
        signer,
        progress,
    };
    let mut avoid = Vec::new();
    let mut left = options.attempts.clamp(1, ATTEMPTS_MAX);
    loop {
        left -= 1;
        progress(Progress {
            phase: Phase::Connecting,
            done: 0,
            total: None,
        });
        match run.attempt(&catalog, &place, &avoid).await {
            Ok(mut captured) => {
                run.observe(&mut captured).await;
                captured
                    .warnings
                    .extend(catalog.flaws.iter().map(ToString::to_string));
                return Ok(captured);
            }
            Err(error) => match failed_member(&error) {
                Some(endpoint) if left > 0 => {
                    tracing::warn!(endpoint, %error, "snapshot failed, trying another member");
                    avoid.push(endpoint.to_owned());
                }
                _ => return Err(error),
            },
        }
    }
}

/// The member to blame, when another may do better.
fn failed_member(error: &Error) -> Option<&str> {
    match error {
        Error::Source { endpoint, .. }
        | Error::Stalled { endpoint, .. }
        | Error::BadStream { endpoint, .. } => Some(endpoint),
        _ => None,
    }
}

/// The place in the chain that the new backup takes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Position {
    sequence: Sequence,
    predecessor: Option<Link>,
    generation: Generation,
}

impl Position {
    fn after(catalog: &Catalog, options: &CaptureOptions) -> Result<Self> {
        let newest = catalog.chain.newest();
        let sequence = newest.next().ok_or_else(|| Error::HistoryDamaged {
            reason: "the chain has no place left".to_owned(),
        })?;
        let predecessor = catalog.chain.link_at(newest).cloned();
        let known = catalog.newest_generation().unwrap_or(Generation::FIRST);
        let generation = options.generation.unwrap_or(known);
        if let Some(successor) = successor(catalog, generation) {
            return Err(Error::Replaced {
                cluster: catalog.cluster.clone(),
                ours: generation,
                successor: Box::new(successor),
            });
        }
        Ok(Self {
            sequence,
            predecessor,
            generation,
        })
    }
}

/// Who took over from the writer of `ours`: with a backup, or with a claim and none yet.
fn successor(catalog: &Catalog, ours: Generation) -> Option<Successor> {
    let newest = catalog.newest();
    let claim = catalog.claim.as_ref();
    let generation = catalog.newest_generation().filter(|one| *one > ours)?;
    let by_backup = newest.filter(|backup| backup.manifest.generation == generation);
    if let Some(newest) = by_backup {
        return Some(Successor {
            generation,
            id: Some(newest.id()),
            started: newest.manifest.started,
            writer: newest.manifest.writer.clone(),
            key: newest.by.fingerprint(),
        });
    }
    claim.map(|(claim, by)| claim.successor(by))
}

impl attempt::Run<'_> {
    /// Enters the new backup and the source's newest revision into both ledgers. The backup
    /// exists already, so a failure here is told and not returned.
    async fn observe(&self, captured: &mut Captured) {
        let newest = self
            .source
            .latest_revision()
            .await
            .map(|seen| seen.revision);
        let revision = captured.manifest.content.revision;
        let observation = Observation {
            cluster: self.options.cluster.clone(),
            revision: newest.map_or(revision, |newest| newest.max(revision)),
            at: captured.manifest.finished,
            reason: Reason::Backup,
            head: Some(captured.link.clone()),
        };
        if let Err(error) = ledger::record(self.vault, &observation, self.signer).await {
            captured
                .warnings
                .push(format!("ledger in the vault not updated: {error}"));
        }
        if let Some(path) = &self.options.ledger
            && let Err(error) = ledger::record_local(path, &observation)
        {
            captured
                .warnings
                .push(format!("ledger on the appliance not updated: {error}"));
        }
    }
}
