//! Writing a data directory that a real etcd (3.5 to 3.7) starts from.
//!
//! One directory is one member of a new cluster: the database with new members and, if asked for,
//! a bumped and compacted revision; the raft snapshot that names the members; and a write-ahead
//! log whose only entries add them. All of it is built in a staging folder beside the target,
//! synced and renamed at the end.

mod cluster;
mod database;
mod files;
mod wal;

use std::path::{Path, PathBuf};

use holdfast_store::bolt::ReadAt;
use holdfast_store::datadir::identity::{ClusterId, MemberId};
use holdfast_store::etcd_file::EtcdFile;

pub use cluster::{NewCluster, NewMember};
pub(crate) use database::Pass;

use crate::error::{Error, Result};
use crate::plan::REVISION_MAX;
use crate::staging::Staging;
use cluster::Identified;
use database::Content;
use files::NewFile;

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
    stage(source, plan)?.publish()
}

/// Builds the directory beside its target.
pub(crate) fn stage<R: ReadAt>(source: &EtcdFile<R>, plan: &DataDirPlan) -> Result<Staged> {
    let draft = Draft::new(source, plan)?;
    let data = Staging::create(&plan.data_dir)?;
    let log = plan.wal_dir.as_deref().map(Staging::create).transpose()?;
    let written = draft.build(source, data.path(), log.as_ref().map(Staging::path))?;
    Ok(Staged { written, data, log })
}

/// A directory that is built; gone again unless it is published.
pub(crate) struct Staged {
    written: DataDirWritten,
    data: Staging,
    log: Option<Staging>,
}

impl Staged {
    /// Makes everything durable and renames it into place. The data directory comes last: without
    /// it a log of its own is of no use to any member.
    pub(crate) fn publish(self) -> Result<DataDirWritten> {
        if let Some(log) = self.log {
            log.publish()?;
        }
        self.data.publish()?;
        Ok(self.written)
    }
}

/// A data directory as far as it is known before anything is written.
pub(crate) struct Draft {
    local: MemberId,
    cluster: ClusterId,
    members: Vec<Identified>,
    content: Content,
}

impl Draft {
    /// Decides, or refuses.
    pub(crate) fn new<R: ReadAt>(source: &EtcdFile<R>, plan: &DataDirPlan) -> Result<Self> {
        let members = plan.cluster.identified()?;
        let local = members
            .iter()
            .find(|member| member.name == plan.name)
            .ok_or_else(|| Error::Refused {
                reason: format!("the new cluster has no member named {:?}", plan.name),
            })?;
        Ok(Self {
            local: local.id,
            cluster: cluster::id_of(&members),
            content: Content::plan(source, &members, plan)?,
            members,
        })
    }

    /// Writes the files into `folder`, which is empty, and the log into its own folder if it has
    /// one. The files are synced, the names in the folders are not.
    pub(crate) fn build<R: ReadAt>(
        &self,
        source: &EtcdFile<R>,
        folder: &Path,
        log_folder: Option<&Path>,
    ) -> Result<DataDirWritten> {
        let database = NewFile::create(folder, "member/snap/db")?;
        let database_size = self.content.write(source, &database)?;
        let index = u64::try_from(self.members.len()).unwrap_or(u64::MAX);
        NewFile::write(
            folder,
            &format!("member/snap/{TERM:016x}-{index:016x}.snap"),
            &wal::raft_snapshot(&self.members, TERM, index),
            None,
        )?;
        let log = wal::log(self.local, self.cluster, &self.members, TERM)?;
        let (log_folder, name) = match log_folder {
            Some(own) => (own, wal::FIRST_SEGMENT.to_owned()),
            None => (folder, format!("member/wal/{}", wal::FIRST_SEGMENT)),
        };
        NewFile::write(log_folder, &name, &log, Some(wal::SEGMENT_BYTES))?;
        Ok(DataDirWritten {
            member_id: self.local,
            cluster_id: self.cluster,
            revision: self.content.revision(),
            compact_revision: self.content.compact_revision(),
            database_size,
        })
    }
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
