//! Writing a data directory that a real etcd (3.5 to 3.7) starts from.
//!
//! One directory is one member of a new cluster: the database with new members and, if asked for,
//! a bumped and compacted revision; the raft snapshot that names the members; and a write-ahead
//! log whose only entries add them. All of it is built in `<dir>.partial-<id>` beside the target,
//! synced and renamed at the end: a target that is there is never touched, and one that appears is
//! complete. What an interrupted run left behind is removed by the next one.

mod cluster;
mod database;
mod staging;
mod wal;

use std::path::PathBuf;

use holdfast_store::bolt::ReadAt;
use holdfast_store::datadir::identity::{ClusterId, MemberId};
use holdfast_store::etcd_file::EtcdFile;

pub use cluster::{NewCluster, NewMember};

use crate::error::{Error, Result};
use crate::plan::REVISION_MAX;
use database::Content;
use staging::Staging;

/// Term and vote of the log that is written: as if the members had just elected the first one.
const TERM: u64 = 1;

/// What to write, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDirPlan {
    /// The target; must not exist.
    pub data_dir: PathBuf,
    /// The write-ahead log's own directory; must not exist. None: inside `data_dir`.
    pub wal_dir: Option<PathBuf>,
    /// Which of the cluster's members the directory is for.
    pub name: String,
    /// The new cluster.
    pub cluster: NewCluster,
    /// How much to raise the revision; 0: not at all.
    pub bump_revision: u64,
    /// Whether everything up to the new revision counts as compacted, so that old watchers learn
    /// that they missed something.
    pub mark_compacted: bool,
    /// Whether alarms that were active are left out. A NOSPACE alarm makes the restored cluster
    /// refuse writes.
    pub clear_alarms: bool,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDirWritten {
    /// The member the directory is for.
    pub member_id: MemberId,
    /// The new cluster.
    pub cluster_id: ClusterId,
    /// The revision the member starts at.
    pub revision: i64,
    /// The revision it counts as compacted; -1: none.
    pub compact_revision: i64,
    /// Size of the database in bytes.
    pub database_size: u64,
}

/// The revision after a bump, or a refusal when it would leave no room for writes.
pub fn bumped_revision(revision: i64, bump: u64) -> Result<i64> {
    let refused = || Error::BumpOverflow {
        revision,
        bump: i64::try_from(bump).unwrap_or(i64::MAX),
    };
    let bump = i64::try_from(bump).map_err(|_wide| refused())?;
    revision
        .checked_add(bump)
        .filter(|bumped| bump == 0 || *bumped <= REVISION_MAX)
        .ok_or_else(refused)
}

/// Writes the directory of one member. The source is not checked here: do that first.
pub fn write_etcd_datadir<R: ReadAt>(
    source: &EtcdFile<R>,
    plan: &DataDirPlan,
) -> Result<DataDirWritten> {
    let members = plan.cluster.identified()?;
    let local = members
        .iter()
        .find(|member| member.name == plan.name)
        .ok_or_else(|| Error::Refused {
            reason: format!("the new cluster has no member named {:?}", plan.name),
        })?;
    let cluster_id = cluster::id_of(&members);
    let content = Content::plan(source, &members, plan)?;

    let staging = Staging::create(&plan.data_dir, plan.wal_dir.as_deref())?;
    let database_size = content.write(source, &staging.file("member/snap/db")?)?;
    let index = u64::try_from(members.len()).unwrap_or(u64::MAX);
    staging.write(
        &format!("member/snap/{TERM:016x}-{index:016x}.snap"),
        &wal::raft_snapshot(&members, TERM, index),
    )?;
    staging.write_log(
        &wal::log(local.id, cluster_id, &members, TERM)?,
        wal::SEGMENT_BYTES,
    )?;
    staging.publish()?;
    Ok(DataDirWritten {
        member_id: local.id,
        cluster_id,
        revision: content.revision(),
        compact_revision: content.compact_revision(),
        database_size,
    })
}

/// What the reader of etcd files said, causes included.
pub(crate) fn content_error(error: impl std::error::Error) -> Error {
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        reason = format!("{reason}: {inner}");
        cause = inner.source();
    }
    Error::Content { reason }
}
