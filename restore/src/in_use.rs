//! Marks of backups that are being read, so that no prune takes them away meanwhile.
//!
//! A reader stores a mark and then looks whether the removal of the backup has begun; a prune
//! stores the record of that and then looks for marks. Whoever comes second sees the other, also
//! from another process or host. A mark counts for [`LEASE`] after the vault stored it, so that one
//! left by a reader that was killed does not keep a backup for good; a reader at work renews its
//! own.
//!
//! A reader that may not write into the vault leaves no mark. It relies on the time that a backup
//! spends in the trash (`policies.retention.trash_grace`).
//!
//! Marks are not signed: a host that restores need not hold a signing key, and all that a forged
//! one can do is to keep a backup longer.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use holdfast_policies::{ClusterName, SnapshotId};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::release;
use crate::unique::UniqueId;
use crate::vault::{Folder, Listed, ReadWrite, Vault, layout};

/// Version of the format.
pub const USE_VERSION: u64 = 1;

/// The value of `format` in a mark.
pub const USE_FORMAT: &str = "holdfast.use";

/// How long a mark counts after the vault stored it.
pub const LEASE: TimeDelta = TimeDelta::hours(1);

/// How often a reader at work renews its mark.
const RENEWAL: Duration = Duration::from_mins(15);

/// Who reads a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reader {
    /// A restore.
    Restore,
    /// A drill.
    Drill,
    /// A verification.
    Verification,
    /// An export.
    Export,
}

impl Reader {
    const ALL: [Self; 4] = [Self::Restore, Self::Drill, Self::Verification, Self::Export];

    const fn name(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::Drill => "drill",
            Self::Verification => "verification",
            Self::Export => "export",
        }
    }
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a mark says to people; its name says all that counts.
#[derive(Serialize)]
struct Content {
    format: &'static str,
    version: u64,
    reader: Reader,
}

/// The mark of one reader.
#[derive(Debug)]
pub struct Mark {
    vault: Vault<ReadWrite>,
    cluster: ClusterName,
    id: SnapshotId,
    reader: Reader,
    unique: UniqueId,
    number: usize,
}

impl Mark {
    /// Marks a backup as being read, one in the trash too. Refused when its removal has begun.
    pub async fn set(
        vault: &Vault<ReadWrite>,
        cluster: &ClusterName,
        id: SnapshotId,
        reader: Reader,
    ) -> Result<Self> {
        let mut mark = Self {
            vault: vault.clone(),
            cluster: cluster.clone(),
            id,
            reader,
            unique: UniqueId::generate(),
            number: 0,
        };
        mark.put().await?;
        if release::is_being_removed(vault, cluster, id).await? {
            mark.remove(mark.number).await?;
            let reason = format!("{id} is being removed by a prune; choose another");
            return Err(Error::NothingToRestore { reason });
        }
        Ok(mark)
    }

    /// Waits for `work` and renews the mark as long as it takes; then removes it.
    pub async fn during<T>(mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let outcome = loop {
            tokio::select! {
                outcome = &mut work => break outcome,
                () = tokio::time::sleep(RENEWAL) => self.renew().await,
            }
        };
        if let Err(error) = self.remove(self.number).await {
            tracing::warn!(snapshot_id = %self.id, %error, "a mark of use stays until it runs out");
        }
        outcome
    }

    /// A new object each time: nothing in a vault is written over.
    async fn renew(&mut self) {
        let before = self.number;
        self.number += 1;
        let renewed = match self.put().await {
            Ok(()) => self.remove(before).await,
            Err(error) => Err(error),
        };
        if let Err(error) = renewed {
            tracing::warn!(snapshot_id = %self.id, %error, "a mark of use was not renewed");
        }
    }

    async fn put(&mut self) -> Result<()> {
        let content = Content {
            format: USE_FORMAT,
            version: USE_VERSION,
            reader: self.reader,
        };
        let name = self.name(self.number);
        let json = serde_json::to_vec(&content)
            .map_err(|error| Error::malformed(name.as_str(), error.to_string()))?;
        self.vault.put_new(&name, Bytes::from(json)).await
    }

    async fn remove(&self, number: usize) -> Result<()> {
        self.vault.remove(&self.name(number)).await
    }

    fn name(&self, number: usize) -> crate::vault::ObjectName {
        let label = format!("{}-{}", self.reader.name(), self.unique);
        layout::usage(&self.cluster, self.id, &label, number)
    }
}

/// Whether a mark still counts at `now`. One from the future does: clocks differ.
pub(crate) fn is_live(mark: &Listed, now: DateTime<Utc>) -> bool {
    mark.modified + LEASE > now
}

/// Who left a mark, in a word.
pub(crate) fn reader_of(mark: &Listed) -> &'static str {
    let name = mark.name.file_name();
    Reader::ALL
        .iter()
        .map(|reader| reader.name())
        .find(|reader| name.starts_with(reader))
        .unwrap_or("reader")
}

/// Who reads a backup now, as the vault says at this moment.
pub(crate) async fn reader_now(
    vault: &Vault<ReadWrite>,
    cluster: &ClusterName,
    id: SnapshotId,
    now: DateTime<Utc>,
) -> Result<Option<&'static str>> {
    let marks = vault.list(&Folder::Uses.of_backup(cluster, id)).await?;
    Ok(marks.iter().find(|mark| is_live(mark, now)).map(reader_of))
}
