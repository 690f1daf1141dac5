//! From checked content to data directories.

use std::io::Write as _;
use std::path::Path;

use holdfast_store::bolt::ReadAt;
use holdfast_store::datadir::bootstrap::{self, Changes};
use holdfast_store::etcd_file::EtcdFile;

use crate::error::{Error, Result};
use crate::etcd_datadir::{self, DataDirPlan, Draft};
use crate::inspect;
use crate::plan::{RestorePlan, Target};
use crate::staging::{private_dir, private_file};
use crate::store_datadir;

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Where members' data directories are built in the staging folder.
const MEMBERS: &str = "members";

/// Builds every planned member below `staging`; answers the new cluster's id.
pub(super) fn build<R: ReadAt>(
    file: &EtcdFile<R>,
    plan: &RestorePlan,
    staging: &Path,
) -> Result<u64> {
    let members = staging.join(MEMBERS);
    private_dir(&members)?;
    match plan.target {
        Target::Holdfast => build_holdfast(file, plan, &members),
        Target::Etcd => build_etcd(file, plan, &members),
    }
}

/// What of the staging folder becomes the target: one member's folder, or that of several.
pub(super) fn published(plan: &RestorePlan) -> String {
    match plan.write.as_slice() {
        [only] if only.data_dir == plan.data_dir => format!("{MEMBERS}/{}", only.name),
        _ => MEMBERS.to_owned(),
    }
}

fn build_holdfast<R: ReadAt>(
    file: &EtcdFile<R>,
    plan: &RestorePlan,
    members: &Path,
) -> Result<u64> {
    let initial_cluster: Vec<(String, Vec<String>)> = plan
        .members
        .iter()
        .map(|member| (member.name.clone(), member.peer_urls.clone()))
        .collect();
    let changes = Changes {
        bump: i64::try_from(bump_of_newest_row(file, plan)?).unwrap_or(i64::MAX),
        mark_compacted: plan.mark_compacted && plan.bump > 0,
        clear_alarms: plan.clear_alarms,
    };
    let mut cluster_id = 0;
    for member in &plan.write {
        let cluster = bootstrap::NewCluster {
            name: member.name.clone(),
            initial_cluster: initial_cluster.clone(),
            token: plan.token.clone(),
        };
        let target = members.join(&member.name);
        let written = store_datadir::build(&target, file, &cluster, changes)?;
        check_revision(written.revision, plan)?;
        cluster_id = written.ids.cluster.0;
    }
    Ok(cluster_id)
}

fn build_etcd<R: ReadAt>(file: &EtcdFile<R>, plan: &RestorePlan, members: &Path) -> Result<u64> {
    let cluster = etcd_datadir::NewCluster {
        members: plan
            .members
            .iter()
            .map(|member| etcd_datadir::NewMember {
                name: member.name.clone(),
                peer_urls: member.peer_urls.clone(),
            })
            .collect(),
        token: plan.token.clone(),
    };
    let bump = bump_of_newest_row(file, plan)?;
    let mut cluster_id = 0;
    for member in &plan.write {
        let folder = members.join(&member.name);
        private_dir(&folder)?;
        let draft = Draft::new(
            file,
            &DataDirPlan {
                data_dir: folder.clone(),
                wal_dir: None,
                name: member.name.clone(),
                cluster: cluster.clone(),
                bump_revision: bump,
                mark_compacted: plan.mark_compacted && plan.bump > 0,
                clear_alarms: plan.clear_alarms,
            },
        )?;
        let written = draft.build(file, &folder, None)?;
        check_revision(written.revision, plan)?;
        cluster_id = written.cluster_id.0;
    }
    Ok(cluster_id)
}

/// What both writers have to add. They count from the newest row, as etcdutl does: 0 for an empty
/// store, which a server shows as revision 1. The plan counts from what the server showed.
fn bump_of_newest_row<R: ReadAt>(file: &EtcdFile<R>, plan: &RestorePlan) -> Result<u64> {
    if plan.bump == 0 {
        return Ok(0);
    }
    let newest = file
        .newest_revision()
        .map_err(|error| inspect::unreadable(&error))?;
    Ok(plan.revision_after.abs_diff(newest))
}

fn check_revision(found: i64, plan: &RestorePlan) -> Result<()> {
    if found != plan.revision_after {
        return Err(Error::RebuildMismatch {
            reason: format!("revision is {found}, the plan says {}", plan.revision_after),
        });
    }
    Ok(())
}

/// A copy in clear, synced.
pub(super) fn copy_plain<R: ReadAt>(source: &R, path: &Path) -> Result<()> {
    let mut copy = private_file(path)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0_u64;
    while offset < source.len() {
        let left = usize::try_from(source.len() - offset).unwrap_or(COPY_BYTES);
        let Some(piece) = buffer.get_mut(..left.min(COPY_BYTES)) else {
            break;
        };
        source
            .read_exact_at(offset, piece)
            .map_err(Error::io("read the spool for", path))?;
        copy.write_all(piece).map_err(Error::io("write", path))?;
        offset = offset.saturating_add(crate::part::length(piece));
    }
    copy.sync_all().map_err(Error::io("sync", path))
}
