//! The ledger: the highest revision anybody may have seen, and the newest manifest known.
//!
//! A restored cluster must never show a revision that a client has seen with other content, so a
//! restore bumps beyond everything in the ledger. It is kept twice: as signed, create-only records
//! in the vault, and in a file on the appliance. Losing one of them loses nothing; rolling one
//! back is noticed by the other.

use std::fs;
use std::path::Path;

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, Sequence};
use holdfast_store::datadir::durable;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::flaw::{Flaw, FlawKind};
use crate::key::{Signer, Trust};
use crate::manifest::Link;
use crate::sign::{self, Record};
use crate::vault::{Folder, ObjectName, ReadWrite, Vault, layout};

/// Largest ledger record or file read, in bytes.
pub const LEDGER_BYTES_MAX: u64 = 1024 * 1024;

/// Version of the format, of records and of the file.
pub const LEDGER_VERSION: u64 = 1;

/// Most records read from the vault, those with the highest names first. Many more than are kept:
/// junk that somebody adds must not hide what counts.
const RECORDS_READ_MAX: usize = 4096;

/// Records kept when old ones are pruned.
pub(crate) const RECORDS_KEPT: usize = 32;

/// Something that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// Whose.
    pub cluster: ClusterName,
    /// The highest revision a client may have seen.
    pub revision: i64,
    /// When it was seen, by the observer's clock.
    pub at: DateTime<Utc>,
    /// Why it is believed.
    pub reason: Reason,
    /// The newest manifest known then.
    pub head: Option<Link>,
}

/// Why a revision is believed to have been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The source told it.
    Source,
    /// A backup was taken at it.
    Backup,
    /// A restore bumped to it, or was about to.
    Restore,
}

impl Record for Observation {
    const FORMAT: &'static str = "holdfast.ledger";
    const VERSION: u64 = LEDGER_VERSION;
}

/// What the ledger says of one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// The highest revision ever observed; 0 when none was.
    pub highest: i64,
    /// The newest manifest ever known.
    pub head: Option<Link>,
}

impl Ledger {
    /// Takes in what another source says.
    pub fn merge(&mut self, other: &Self) {
        self.highest = self.highest.max(other.highest);
        let ours = self.head.as_ref().map_or(Sequence(0), |head| head.sequence);
        if other.head.as_ref().is_some_and(|head| head.sequence > ours) {
            self.head.clone_from(&other.head);
        }
    }

    fn observe(&mut self, seen: &Observation) {
        self.merge(&Self {
            highest: seen.revision,
            head: seen.head.clone(),
        });
    }
}

/// What the records in a vault say together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InVault {
    /// The highest revision and the newest manifest.
    pub ledger: Ledger,
    /// Revisions that restores bumped to, or were about to.
    pub bumps: Vec<i64>,
    /// Records that cannot be believed; they do not count.
    pub flaws: Vec<Flaw>,
}

/// Reads the ledger in the vault.
pub async fn read_vault<Mode>(
    vault: &Vault<Mode>,
    cluster: &ClusterName,
    trust: &Trust,
) -> Result<InVault> {
    let (records, flaws) = read_records(vault, cluster, trust).await?;
    let mut ledger = Ledger::default();
    let mut bumps = Vec::new();
    for (_, observation) in &records {
        ledger.observe(observation);
        if observation.reason == Reason::Restore {
            bumps.push(observation.revision);
        }
    }
    Ok(InVault {
        ledger,
        bumps,
        flaws,
    })
}

/// The records that count, highest names first.
pub(crate) async fn read_records<Mode>(
    vault: &Vault<Mode>,
    cluster: &ClusterName,
    trust: &Trust,
) -> Result<(Vec<(ObjectName, Observation)>, Vec<Flaw>)> {
    let mut records = Vec::new();
    let listing = vault.list_with_odd(&Folder::Ledger.of(cluster)).await?;
    let mut flaws = listing.odd;
    for entry in listing.objects.iter().rev().take(RECORDS_READ_MAX) {
        let bytes = match vault.get(&entry.name, LEDGER_BYTES_MAX).await {
            Ok(bytes) => bytes,
            Err(error @ Error::TooLarge { .. }) => {
                flaws.push(Flaw::new(FlawKind::RecordRefused, &entry.name, error));
                continue;
            }
            // Pruned since it was listed: newer ones tell more.
            Err(Error::ObjectMissing { .. }) => continue,
            Err(error) => return Err(error),
        };
        match sign::open::<Observation>(entry.name.as_str(), &bytes, trust) {
            Ok(signed) if signed.record.cluster == *cluster => {
                records.push((entry.name.clone(), signed.record));
            }
            Ok(signed) => flaws.push(Flaw::new(
                FlawKind::WrongCluster,
                &entry.name,
                format!("of cluster {}", signed.record.cluster),
            )),
            Err(error @ Error::Stranger { .. }) => {
                flaws.push(Flaw::new(FlawKind::RecordStranger, &entry.name, error));
            }
            Err(error) => flaws.push(Flaw::new(FlawKind::RecordRefused, &entry.name, error)),
        }
    }
    Ok((records, flaws))
}

/// Adds an observation to the vault. Do this *before* what it announces becomes visible.
pub async fn record(
    vault: &Vault<ReadWrite>,
    observation: &Observation,
    signer: &Signer,
) -> Result<()> {
    if observation.revision < 0 {
        return Err(Error::Refused {
            reason: "a negative revision was observed".to_owned(),
        });
    }
    let bytes = sign::sign(observation, signer)?;
    let digest = Digest::of(&bytes).short();
    let name = layout::ledger(&observation.cluster, observation.revision, &digest);
    vault.put_new(&name, bytes).await
}

/// The ledger file of an appliance, for one cluster in one vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerFile {
    format: String,
    version: u64,
    cluster: ClusterName,
    ledger: Ledger,
}

const FILE_FORMAT: &str = "holdfast.ledger-file";

/// Reads an appliance's ledger file; one that does not exist says nothing.
pub fn read_local(path: &Path, cluster: &ClusterName) -> Result<Ledger> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Ledger::default());
        }
        Err(error) => return Err(Error::io("read", path)(error)),
    };
    let name = path.display().to_string();
    let file: LedgerFile = serde_json::from_slice(&bytes)
        .map_err(|error| Error::malformed(&name, error.to_string()))?;
    if file.format != FILE_FORMAT || file.cluster != *cluster {
        return Err(Error::malformed(
            &name,
            format!("not the ledger of cluster {cluster}"),
        ));
    }
    if file.version > LEDGER_VERSION {
        return Err(Error::UnsupportedVersion {
            object: name,
            version: file.version,
            supported: LEDGER_VERSION,
        });
    }
    Ok(file.ledger)
}

/// Adds an observation to an appliance's ledger file: written beside it, synced, renamed.
pub fn record_local(path: &Path, observation: &Observation) -> Result<Ledger> {
    let mut ledger = read_local(path, &observation.cluster)?;
    ledger.observe(observation);
    let file = LedgerFile {
        format: FILE_FORMAT.to_owned(),
        version: LEDGER_VERSION,
        cluster: observation.cluster.clone(),
        ledger: ledger.clone(),
    };
    let mut bytes = serde_json::to_vec_pretty(&file)
        .map_err(|error| Error::malformed(path.display().to_string(), error.to_string()))?;
    bytes.push(b'\n');
    durable::write_file(path, &bytes).map_err(Error::io("write", path))?;
    Ok(ledger)
}
