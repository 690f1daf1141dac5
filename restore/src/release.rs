//! Letting a backup go, and taking that back: signed records, numbered for each backup.
//!
//! ```text
//! trashed (0) -> removing (1)                       its time ran out: gone for good
//!             -> returned (1) -> trashed (2) -> ..  brought back while it was whole
//! ```
//!
//! Each record is created under the number after the last, so what becomes of a trashed backup is
//! decided once: whoever brings it back and whoever removes it want the same name, and one of them
//! gets it. While the last record is `trashed` everything of the backup is there; from `removing`
//! on it may be half gone, and nobody reads it any more.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use holdfast_policies::{ClusterName, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::key::Signer;
use crate::manifest::Link;
use crate::sign::{self, Record};
use crate::vault::{Catalog, ReadWrite, Released, Trashed, Vault, layout};

/// Largest release record read, in bytes.
pub const RELEASE_BYTES_MAX: u64 = 64 * 1024;

/// Version of the format.
pub const RELEASE_VERSION: u64 = 2;

/// Most records of one backup: it was brought back half as often.
const RECORDS_MAX: u64 = 10_000;

/// One step on a backup's way out; the one with the highest number counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Its cluster.
    pub cluster: ClusterName,
    /// Names its manifest.
    pub link: Link,
    /// When, by the appliance's clock.
    pub at: DateTime<Utc>,
    /// Counts up from 0 for each backup.
    #[serde(default)]
    pub number: u64,
    /// What happened.
    #[serde(default)]
    pub step: Step,
}

/// What happens to a backup that no rule keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// It is in the trash: whole, not offered, and can be brought back.
    Trashed {
        /// Why it goes.
        why: String,
        /// Nothing of it is removed before this, by the appliance's clock.
        until: DateTime<Utc>,
    },
    /// It was brought back.
    Returned {
        /// Why, in the operator's words.
        why: String,
    },
    /// Its removal has begun.
    Removing,
    /// Version 1 said no more than that it was let go.
    #[default]
    LetGo,
}

impl Record for Release {
    const FORMAT: &'static str = "holdfast.release";
    const VERSION: u64 = RELEASE_VERSION;
}

impl Release {
    /// The first step of a backup, or the one after `before`.
    pub(crate) fn after(
        before: Option<&Self>,
        (cluster, link): (&ClusterName, &Link),
        step: Step,
        at: DateTime<Utc>,
    ) -> Self {
        Self {
            cluster: cluster.clone(),
            link: link.clone(),
            at,
            number: before.map_or(0, |before| before.number.saturating_add(1)),
            step,
        }
    }

    /// Whether the backup is let go: in the trash or being removed.
    pub fn is_gone(&self) -> bool {
        !matches!(self.step, Step::Returned { .. })
    }

    /// Whether it is whole and can be brought back, as far as the records tell.
    pub fn is_trashed(&self) -> bool {
        matches!(self.step, Step::Trashed { .. } | Step::LetGo)
    }

    /// Until when it can be brought back for certain. `grace` is for records of version 1.
    pub fn until(&self, grace: TimeDelta) -> DateTime<Utc> {
        match self.step {
            Step::Trashed { until, .. } => until,
            _ => self.at + grace,
        }
    }

    /// Why it went, in a few words.
    pub fn why(&self) -> &str {
        match &self.step {
            Step::Trashed { why, .. } | Step::Returned { why } => why,
            Step::Removing | Step::LetGo => "no rule keeps it",
        }
    }

    /// Stores it. Refused when somebody else took the step: the history went another way.
    pub(crate) async fn store(&self, vault: &Vault<ReadWrite>, signer: &Signer) -> Result<()> {
        if self.number > RECORDS_MAX {
            return Err(Error::TooLarge {
                object: format!("records of {}", self.link.id),
                limit: RECORDS_MAX,
            });
        }
        let name = layout::release(&self.cluster, self.link.id, self.number);
        vault.put_new(&name, sign::sign(self, signer)?).await
    }
}

/// Brings a backup back from the trash. `why`: in the operator's words.
pub async fn bring_back(
    vault: &Vault<ReadWrite>,
    catalog: &Catalog,
    id: SnapshotId,
    (why, at, signer): (String, DateTime<Utc>, &Signer),
) -> Result<Release> {
    let Trashed { release, .. } = catalog.trashed(id)?;
    let of = (&catalog.cluster, &release.link);
    let returned = Release::after(Some(release), of, Step::Returned { why }, at);
    match returned.store(vault, signer).await {
        Ok(()) => Ok(returned),
        Err(Error::ObjectExists { .. }) => Err(Error::NothingToRestore {
            reason: format!("{id} was brought back or removed by somebody else just now"),
        }),
        Err(error) => Err(error),
    }
}

/// Whether the removal of a backup has begun, as the vault says at this moment. The signature is
/// not looked at: all that a forged record can do is to keep a reader from marking the backup.
pub(crate) async fn is_being_removed<Mode: Sync>(
    vault: &Vault<Mode>,
    cluster: &ClusterName,
    id: SnapshotId,
) -> Result<bool> {
    let mut last = None;
    for number in 0..=RECORDS_MAX {
        let name = layout::release(cluster, id, number);
        match vault.get(&name, RELEASE_BYTES_MAX).await {
            Ok(bytes) => last = Some((name, bytes)),
            Err(Error::ObjectMissing { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    let Some((name, bytes)) = last else {
        return Ok(false);
    };
    let release: Release = sign::read_unverified(name.as_str(), &bytes)?;
    Ok(release.step == Step::Removing)
}

/// The last record of each backup, and when the vault stored it.
pub(crate) fn last_steps(records: Vec<Released>) -> Vec<Released> {
    let mut last: BTreeMap<SnapshotId, Released> = BTreeMap::new();
    for record in records {
        let id = record.release.link.id;
        let newer = last
            .get(&id)
            .is_none_or(|known| record.release.number > known.release.number);
        if newer {
            last.insert(id, record);
        }
    }
    last.into_values().collect()
}
