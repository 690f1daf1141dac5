//! The report as a record. Format: `docs/formats/drill-report.md`.

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, DrillId, Level, Sequence, SnapshotId, Span};
use holdfast_restore::Digest;
use holdfast_restore::proof::{Evidence, Proof};
use holdfast_restore::sign::Record;
use serde::{Deserialize, Serialize};

use crate::checks::{CHECK_NAMES, Outcome};

/// Version of the format.
pub const DRILL_REPORT_VERSION: u64 = 1;

/// Largest report read, in bytes.
pub const REPORT_BYTES_MAX: u64 = 1024 * 1024;

/// One drill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrillReport {
    /// Names the drill.
    pub id: DrillId,
    /// Whose data.
    pub cluster: ClusterName,
    /// How it came out: passed only when every check did and nothing was left behind.
    pub outcome: Outcome,
    /// When it began, by the appliance's clock.
    pub started: DateTime<Utc>,
    /// When it ended.
    pub ended: DateTime<Utc>,
    /// What was restored to.
    pub target: TargetKind,
    /// The backup; absent when none could be chosen.
    pub backup: Option<BackupRecord>,
    /// The changes after it that were restored with it, when there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<ReplayRecord>,
    /// The restored cluster; absent when it did not come that far.
    pub restored: Option<RestoredRecord>,
    /// How long each phase took, in order.
    pub phases: Vec<PhaseRecord>,
    /// From choosing the backup until the restored cluster answered a linearizable read.
    pub rto: Option<Span>,
    /// What was asked for, when it was.
    pub rto_objective: Option<Span>,
    /// What would have been lost.
    pub rpo: Option<RpoRecord>,
    /// Every check that was run, in order.
    pub checks: Vec<CheckRecord>,
    /// Keys counted by prefix, the largest first.
    pub prefixes: Vec<PrefixRecord>,
    /// Why it did not come to its end, when it did not.
    pub fault: Option<String>,
    /// What became of the scratch directory, process and port.
    pub teardown: TeardownRecord,
    /// The program that ran it.
    pub writer: String,
}

/// What a backup was restored to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// The bundled store.
    Holdfast,
    /// A real etcd.
    Etcd,
}

/// The backup that was restored, named beyond doubt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupRecord {
    /// Its id.
    pub id: SnapshotId,
    /// Its place in the chain.
    pub sequence: Sequence,
    /// Digest of its manifest object.
    pub manifest: Digest,
    /// Digest of its content.
    pub content: Digest,
    /// When its content was read.
    pub time: DateTime<Utc>,
    /// Its revision.
    pub revision: i64,
    /// HashKV at that revision, from its manifest.
    pub hash_kv: u32,
    /// Live keys.
    pub keys: u64,
    /// Plain bytes.
    pub bytes: u64,
    /// Bytes it takes in the vault.
    pub stored_bytes: u64,
    /// Level of proof before this drill.
    pub level: Option<Level>,
}

/// Changes that were replayed onto the backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayRecord {
    /// Deltas.
    pub deltas: u64,
    /// The revision they lead to.
    pub revision: i64,
    /// Until when they tell everything.
    pub until: DateTime<Utc>,
    /// The newest revision at which the result's HashKV was compared with the source's.
    pub compared: Option<i64>,
}

/// The restored cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestoredRecord {
    /// The revision it starts at.
    pub revision: i64,
    /// How far that is beyond the backup's.
    pub bump: i64,
    /// The highest revision any client may have seen.
    pub highest_seen: i64,
    /// The version the member says it is.
    pub server_version: Option<String>,
    /// Members booted as one cluster. Absent: one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub members: u32,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_one(members: &u32) -> bool {
    *members == 1
}

/// How long a phase took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseRecord {
    /// `pick`, `restore`, `boot`, `decode`, `check` or `teardown`.
    pub name: String,
    /// How long it took.
    pub took: Span,
}

/// What would have been lost, had the source been gone when the drill began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RpoRecord {
    /// Age of the backup's content.
    pub age: Span,
    /// The newest revision of the source known: what it told, or else what its backups hold.
    pub newest_known: i64,
    /// When the source told it; none when it did not.
    pub newest_known_at: Option<DateTime<Utc>>,
    /// Revisions that were made and that the backup does not hold.
    pub revisions_missing: u64,
    /// What was asked for, when it was.
    pub objective: Option<Span>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRecord {
    /// Its name.
    pub name: String,
    /// How it came out.
    pub outcome: Outcome,
    /// What it found. Never a key or a value.
    pub detail: String,
    /// How long it took.
    pub took: Span,
}

/// Keys under one prefix. The prefix itself is not told: reports are not encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixRecord {
    /// The first eight digits of the SHA-256 of the prefix.
    pub digest: String,
    /// Keys in the backup.
    pub keys: u64,
}

/// What was left behind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TeardownRecord {
    /// Nothing was left.
    pub is_clean: bool,
    /// What was.
    pub left: Vec<String>,
}

impl Record for DrillReport {
    const FORMAT: &'static str = "holdfast.drill-report";
    const VERSION: u64 = DRILL_REPORT_VERSION;
}

impl DrillReport {
    /// Passed: no fault on the way there, every check of a full drill ran and passed, nothing was
    /// left.
    pub(crate) fn judge(&self, way_there: Outcome) -> Outcome {
        let worst = self.checks.iter().map(|check| check.outcome).max();
        let is_complete = CHECK_NAMES
            .iter()
            .all(|name| self.checks.iter().any(|check| check.name == *name));
        let teardown = if self.teardown.is_clean {
            Outcome::Passed
        } else {
            Outcome::Failed
        };
        let completeness = if is_complete {
            Outcome::Passed
        } else {
            Outcome::Inconclusive
        };
        worst
            .into_iter()
            .chain([teardown, way_there, completeness])
            .max()
            .unwrap_or(Outcome::Failed)
    }

    /// Whether the measured RTO is within the objective; `None` without an objective.
    pub fn is_rto_met(&self) -> Option<bool> {
        let objective = self.rto_objective?;
        Some(self.rto.is_some_and(|rto| rto <= objective))
    }

    /// Whether the measured RPO is within the objective; `None` without an objective.
    pub fn is_rpo_met(&self) -> Option<bool> {
        let rpo = self.rpo.as_ref()?;
        let objective = rpo.objective?;
        // Without a word from the source, nothing missing means nothing.
        let is_all_there = rpo.newest_known_at.is_some() && rpo.revisions_missing == 0;
        Some(rpo.age <= objective || is_all_there)
    }

    /// What the drill proves about its backup: level L3 when it passed, else nothing.
    pub fn proof(&self) -> Option<Proof> {
        let backup = self
            .backup
            .as_ref()
            .filter(|_| self.outcome == Outcome::Passed)?;
        let evidence = Evidence {
            is_trailer_valid: true,
            plain_bytes: backup.bytes,
            keys: backup.keys,
            hash_kv: Some(backup.hash_kv),
            source_hash_kv: Some(backup.hash_kv),
            drill: Some(self.id),
            ..Evidence::default()
        };
        Some(Proof {
            id: backup.id,
            cluster: self.cluster.clone(),
            manifest: backup.manifest,
            at: self.ended,
            level: Some(Level::L3),
            evidence,
            flaws: Vec::new(),
        })
    }
}
