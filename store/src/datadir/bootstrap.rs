//! How a data directory comes to be: founded empty, or written offline from an etcd database.

use std::path::Path;

use super::identity::{ClusterId, MemberId, cluster_id, member_id};
use super::{DirLock, Layout, Marker, durable};
use crate::apply::{LogPosition, Rewrite, build_state};
use crate::bolt::ReadAt;
use crate::consensus::found;
use crate::error::Error;
use crate::etcd_file::EtcdFile;

/// Members of one cluster.
pub const MEMBERS_MAX: usize = 7;

/// The cluster that a new data directory belongs to, and which of its members it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCluster {
    /// This member's name; one of those in `initial_cluster`.
    pub name: String,
    /// All members by name, with their peer URLs.
    pub initial_cluster: Vec<(String, Vec<String>)>,
    /// Tells clusters with the same URLs apart.
    pub token: String,
}

/// The ids that follow from a [`NewCluster`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterIds {
    /// This member.
    pub member: MemberId,
    /// The cluster.
    pub cluster: ClusterId,
    /// All members by id, with their peer URLs.
    pub members: Vec<(MemberId, Vec<String>)>,
}

impl NewCluster {
    /// A cluster of one.
    pub fn single(name: &str, peer_urls: &[String], token: &str) -> Self {
        Self {
            name: name.to_owned(),
            initial_cluster: vec![(name.to_owned(), peer_urls.to_vec())],
            token: token.to_owned(),
        }
    }

    /// Checks the cluster and computes its ids as etcd does.
    pub fn ids(&self) -> Result<ClusterIds, Error> {
        let invalid = |reason: String| Error::Option {
            option: "initial-cluster",
            reason,
        };
        if self.initial_cluster.is_empty() || self.initial_cluster.len() > MEMBERS_MAX {
            let count = self.initial_cluster.len();
            return Err(invalid(format!(
                "a cluster has 1 to {MEMBERS_MAX} members, not {count}"
            )));
        }
        let mut members: Vec<(MemberId, Vec<String>)> = Vec::new();
        let mut own = None;
        for (name, urls) in &self.initial_cluster {
            let id = member_id(urls, &self.token);
            let mut urls = urls.clone();
            urls.sort_unstable();
            if urls.is_empty() {
                return Err(invalid(format!("member {name} has no peer URL")));
            }
            if members.iter().any(|(other, _)| *other == id) {
                return Err(invalid(format!(
                    "member {name} has the peer URLs of another one"
                )));
            }
            if *name == self.name && own.replace(id).is_some() {
                return Err(invalid(format!("two members have the name {name}")));
            }
            members.push((id, urls));
        }
        let Some(member) = own else {
            return Err(invalid(format!(
                "couldn't find local name \"{}\"",
                self.name
            )));
        };
        members.sort_unstable();
        let all: Vec<MemberId> = members.iter().map(|(id, _)| *id).collect();
        Ok(ClusterIds {
            member,
            cluster: cluster_id(&all),
            members,
        })
    }
}

/// How the restored state differs from the file's.
pub type Changes = Rewrite;

/// What [`write_data_dir`] made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenDir {
    /// The ids of the new cluster.
    pub ids: ClusterIds,
    /// The newest revision in it.
    pub revision: i64,
}

/// Where the log of a restored member begins.
const RESTORED_AT: LogPosition = LogPosition {
    term: 1,
    node: 0,
    index: 1,
};

/// Builds a data directory at `target` from an etcd database, for member `cluster.name` of a new
/// cluster. The database is not checked here: do that first.
///
/// An existing target is refused, and what was begun is removed when it fails. A run that is killed
/// leaves a part: build where nobody looks for a directory, sync the names, and rename it.
pub fn write_data_dir<R: ReadAt>(
    target: &Path,
    source: &EtcdFile<R>,
    cluster: &NewCluster,
    changes: Changes,
) -> Result<WrittenDir, Error> {
    let ids = cluster.ids()?;
    refuse_existing(target)?;
    let io = |source| Error::Io {
        doing: "prepare the new data directory",
        source,
    };
    let layout = Layout::new(target);
    durable::private_dir_all(target).map_err(io)?;
    let result = build(&layout, source, cluster, &ids, changes).and_then(|revision| {
        std::fs::remove_file(layout.lock()).map_err(io)?;
        Ok(revision)
    });
    match result {
        Ok(revision) => Ok(WrittenDir { ids, revision }),
        Err(error) => {
            if let Err(source) = std::fs::remove_dir_all(target) {
                let path = target.display();
                tracing::warn!(error = %source, %path, "a partial data directory stays behind");
            }
            Err(error)
        }
    }
}

fn build<R: ReadAt>(
    layout: &Layout,
    source: &EtcdFile<R>,
    cluster: &NewCluster,
    ids: &ClusterIds,
    changes: Changes,
) -> Result<i64, Error> {
    let lock = DirLock::take(layout)?;
    let membership = found::membership(&ids.members, Some(RESTORED_AT))?;
    let revision = build_state(&layout.state(), source, RESTORED_AT, membership, &changes)?;
    found::begin_log(layout, ids, RESTORED_AT)?;
    let peer_urls = cluster
        .initial_cluster
        .iter()
        .find(|(name, _)| *name == cluster.name)
        .map_or(&[][..], |(_, urls)| urls);
    Marker::new(&cluster.name, ids.member, ids.cluster, peer_urls).write(layout)?;
    drop(lock);
    Ok(revision)
}

fn refuse_existing(target: &Path) -> Result<(), Error> {
    match std::fs::symlink_metadata(target) {
        Ok(_) => Err(Error::Option {
            option: "data-dir",
            reason: format!("{} exists; restore into a new directory", target.display()),
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(Error::Io {
            doing: "look for the new data directory",
            source,
        }),
    }
}
