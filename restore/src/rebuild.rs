//! Rebuild: a restore plan becomes data directories, staged beside the target and renamed last.
//!
//! A plan may add the changes after the backup ([`crate::delta`]): they are replayed first.
//!
//! Needs a vault, keys and free space; no daemon. Parts are verified as they are read. While the
//! result is built from them in the staging folder, their content is walked page by page and
//! hashed; what does not hold is never published. Killed at any point, this leaves either no target
//! or the finished one; what it leaves beside it the next run removes.

mod build;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use holdfast_store::etcd_file::EtcdFile;
use holdfast_store::state::HashKv;

use crate::content::Content;
use crate::error::{Error, Result};
use crate::inspect;
use crate::key::Keys;
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest};
use crate::plan::{PlannedMember, Replay, RestorePlan, Target};
use crate::progress::{Phase, Progress, ProgressFn};
use crate::replay::{self, Changes, Replayed};
use crate::sign::Signed;
use crate::spool::{Spool, SpoolReader};
use crate::staging::{Staging, parent_of, refuse_existing, remove_leftovers};
use crate::vault::{Backup, ReadOnly, Vault, layout};
use crate::verify::{Spooled, fetch_parts, open_key};

/// The name of a plain copy in the staging folder.
const PLAIN_COPY: &str = "snapshot.db";

/// What a restore has done.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Restored {
    /// Data directories written.
    pub written: Vec<PlannedMember>,
    /// The new cluster's id.
    pub cluster_id: u64,
    /// The revision it starts at.
    pub revision: i64,
    /// HashKV of the content at the plan's revision, recomputed before the bump.
    pub hash_kv: u32,
    /// Live keys.
    pub keys: u64,
    /// Plain bytes read.
    pub bytes: u64,
    /// What was replayed onto the backup, and what vouches for the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Replayed>,
}

/// Everything that can refuse a plan before the content is fetched: the target, the manifest, and
/// whether `keys` open the backup. A restore that ends here has cost nobody a revision.
pub async fn check_restore(vault: &Vault<ReadOnly>, plan: &RestorePlan, keys: &Keys) -> Result<()> {
    check_target(plan)?;
    let manifest = read_manifest(vault, plan, keys).await?;
    open_key(vault, &manifest, keys).await.map(drop)?;
    match &plan.replay {
        Some(replay) => replay::check(vault, plan, replay, keys).await,
        None => Ok(()),
    }
}

/// Carries out a plan. The target must not exist; leftovers of restores that were killed are
/// removed. For a restore that clients will see, call [`check_restore`] first, then
/// [`crate::ledger::record`] and [`crate::ledger::record_local`] with
/// [`RestorePlan::observation`].
pub async fn rebuild(
    vault: &Vault<ReadOnly>,
    plan: &RestorePlan,
    keys: &Keys,
    progress: ProgressFn<'_>,
) -> Result<Restored> {
    let (restored, _content) = rebuild_with_content(vault, plan, keys, progress).await?;
    Ok(restored)
}

/// As [`rebuild`], and hands on the decoded content, to compare the result with.
pub async fn rebuild_with_content(
    vault: &Vault<ReadOnly>,
    plan: &RestorePlan,
    keys: &Keys,
    progress: ProgressFn<'_>,
) -> Result<(Restored, Content)> {
    // Before anything is staged: the content cannot be had without the key.
    let (data_dir, work_dir) = (plan.data_dir.clone(), plan.work_dir.clone());
    check_restore(vault, plan, keys).await?;
    let (staging, spool) = tokio::task::spawn_blocking(move || {
        let staging = Staging::create(&data_dir)?;
        Ok::<_, Error>((staging, Spool::create(&work_dir)?))
    })
    .await??;
    let Fetched {
        manifest,
        spooled,
        changes,
    } = fetch(vault, plan, (keys, spool), progress).await?;
    let bytes = manifest.content.bytes;
    progress(Progress {
        phase: Phase::Building,
        done: 0,
        total: Some(plan.bytes),
    });
    let plan = plan.clone();
    tokio::task::spawn_blocking(move || {
        let reader = spooled.spool.into_reader(bytes, manifest.part_bytes);
        let base = EtcdFile::open(reader).map_err(|error| inspect::unreadable(&error))?;
        let (file, restored) = match changes {
            None => {
                let check = || check_content(&base, &manifest);
                let restored = check_and_build(&base, &plan, staging, check)?;
                (base, restored)
            }
            Some((changes, spool)) => {
                check_content(&base, &manifest)?;
                let file = changes.onto(&base, spool)?;
                drop(base);
                let check = || check_replayed(&file, &changes);
                let restored = check_and_build(&file, &plan, staging, check)?;
                let replayed = Some(changes.replayed());
                (
                    file,
                    Restored {
                        replayed,
                        ..restored
                    },
                )
            }
        };
        let trailer = spooled.trailer;
        Ok((restored, Content { file, trailer }))
    })
    .await?
}

/// Everything that a plan reads from the vault.
pub(crate) struct Fetched {
    pub(crate) manifest: Manifest,
    pub(crate) spooled: Spooled,
    /// With a spool for what comes out of the replay.
    pub(crate) changes: Option<(Changes, Spool)>,
}

/// Reads the backup of a plan and the changes after it into sealed spools.
pub(crate) async fn fetch(
    vault: &Vault<ReadOnly>,
    plan: &RestorePlan,
    (keys, spool): (&Keys, Spool),
    progress: ProgressFn<'_>,
) -> Result<Fetched> {
    let manifest = read_manifest(vault, plan, keys).await?;
    let key = open_key(vault, &manifest, keys).await?;
    let phase = (Phase::Fetching, progress);
    let fetched = fetch_parts(vault, &manifest, Some(&key), Some(spool), phase).await?;
    let Some(spooled) = fetched.spooled else {
        return Err(Error::Damaged {
            flaws: fetched.flaws,
        });
    };
    let changes = match &plan.replay {
        Some(replay) => Some(fetch_changes(vault, plan, replay, keys, progress).await?),
        None => None,
    };
    Ok(Fetched {
        manifest,
        spooled,
        changes,
    })
}

/// The changes that are replayed onto the backup, and a spool for what comes out of it.
async fn fetch_changes(
    vault: &Vault<ReadOnly>,
    plan: &RestorePlan,
    replay: &Replay,
    keys: &Keys,
    progress: ProgressFn<'_>,
) -> Result<(Changes, Spool)> {
    let work_dir = plan.work_dir.clone();
    let spools = tokio::task::spawn_blocking(move || {
        let deltas = Spool::create(&work_dir)?;
        Ok::<_, Error>((deltas, Spool::create(&work_dir)?))
    });
    let (deltas, result) = spools.await??;
    let changes = replay::fetch(vault, plan, replay, (keys, deltas), progress).await?;
    Ok((changes, result))
}

/// Walks and hashes the content on one thread and builds from it on another.
fn check_and_build(
    file: &EtcdFile<SpoolReader>,
    plan: &RestorePlan,
    staging: Staging,
    check: impl FnOnce() -> Result<Checked> + Send,
) -> Result<Restored> {
    let (checked, built) = thread::scope(|scope| {
        let checked = scope.spawn(check);
        let built = build::build(file, plan, staging.path());
        (checked.join(), built)
    });
    // Damage explains whatever else went wrong.
    let checked = checked.map_err(|_panic| Error::Worker {
        reason: "the checking thread panicked".to_owned(),
    })??;
    let cluster_id = built?;
    staging.publish_only(&build::published(plan))?;
    Ok(Restored {
        written: plan.write.clone(),
        cluster_id,
        revision: plan.revision_after,
        hash_kv: checked.hash_kv,
        keys: checked.keys,
        bytes: plan.bytes,
        replayed: None,
    })
}

/// Writes a backup's bytes as they were: a snapshot file for `etcdutl snapshot restore`, digest
/// trailer included. In clear: that is what it is for. The file must not exist.
pub async fn export(
    vault: &Vault<ReadOnly>,
    backup: &Backup,
    keys: &Keys,
    (file, work_dir): (&Path, &Path),
    progress: ProgressFn<'_>,
) -> Result<()> {
    refuse_existing(file)?;
    let manifest = &backup.manifest;
    let bytes = manifest.content.bytes;
    space(parent_of(file))?.require(file, bytes.saturating_mul(2))?;
    let key = open_key(vault, manifest, keys).await?;
    let (target, work_dir) = (file.to_owned(), work_dir.to_owned());
    let (staging, spool) = tokio::task::spawn_blocking(move || {
        let staging = Staging::create(&target)?;
        Ok::<_, Error>((staging, Spool::create(&work_dir)?))
    })
    .await??;
    let phase = (Phase::Fetching, progress);
    let fetched = fetch_parts(vault, manifest, Some(&key), Some(spool), phase).await?;
    let Some(spooled) = fetched.spooled else {
        return Err(Error::Damaged {
            flaws: fetched.flaws,
        });
    };
    let part_bytes = manifest.part_bytes;
    tokio::task::spawn_blocking(move || {
        let reader = spooled.spool.into_reader(bytes, part_bytes);
        build::copy_plain(&reader, &staging.path().join(PLAIN_COPY))?;
        staging.publish_only(PLAIN_COPY)
    })
    .await?
}

/// Refuses a target that exists, and removes what a run that was killed left beside it: one killed
/// just after its rename leaves the staging folder, and no later run gets beyond this refusal.
pub fn refuse_target(target: &Path) -> Result<()> {
    let refused = refuse_existing(target);
    if let (Err(Error::TargetExists { .. }), Some(name)) = (&refused, target.file_name()) {
        remove_leftovers(parent_of(target), name)?;
    }
    refused
}

/// Everything that can be refused before the first byte is fetched.
fn check_target(plan: &RestorePlan) -> Result<()> {
    refuse_target(&plan.data_dir)?;
    let parent = parent_of(&plan.data_dir);
    let members = u64::try_from(plan.write.len()).unwrap_or(u64::MAX);
    // Each member's copy is about as large as the content, and may be twice as large while the
    // bundled store writes it. A tenth more for what a database needs beside it.
    let copies = match plan.target {
        Target::Holdfast => members.saturating_mul(2),
        Target::Etcd => members,
    };
    let built = plan
        .bytes
        .saturating_mul(copies)
        .saturating_add(plan.bytes / 10);
    // A replay spools the backup, the changes, and both as one.
    let spools = if plan.replay.is_some() { 2 } else { 1 };
    let spooled = plan.bytes.saturating_add(plan.bytes / 1000);
    let spooled = spooled.saturating_mul(spools);
    let (target_space, work_space) = (space(parent)?, space(&plan.work_dir)?);
    if target_space.device == work_space.device {
        return target_space.require(parent, built.saturating_add(spooled));
    }
    target_space.require(parent, built)?;
    work_space.require(&plan.work_dir, spooled)
}

struct Space {
    device: u64,
    free: u64,
}

impl Space {
    fn require(&self, path: &Path, needed: u64) -> Result<()> {
        if self.free < needed {
            return Err(Error::NotEnoughSpace {
                path: path.to_owned(),
                needed,
                free: self.free,
            });
        }
        Ok(())
    }
}

/// Free space where `path` is or will be.
fn space(path: &Path) -> Result<Space> {
    use std::os::unix::fs::MetadataExt as _;
    let absolute = std::path::absolute(path).map_err(Error::io("resolve", path))?;
    let existing: PathBuf = absolute
        .ancestors()
        .find(|ancestor| ancestor.exists())
        .map_or_else(|| PathBuf::from("/"), Path::to_path_buf);
    let device = fs::metadata(&existing)
        .map_err(Error::io("inspect", &existing))?
        .dev();
    let stat = rustix::fs::statvfs(&existing)
        .map_err(|errno| Error::io("measure", &existing)(errno.into()))?;
    Ok(Space {
        device,
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

/// The very manifest the plan was made from.
async fn read_manifest(
    vault: &Vault<ReadOnly>,
    plan: &RestorePlan,
    keys: &Keys,
) -> Result<Manifest> {
    let name = layout::manifest(&plan.cluster, plan.sequence);
    let bytes = vault.get(&name, MANIFEST_BYTES_MAX).await?;
    let signed: Signed<Manifest> = Manifest::decode(name.as_str(), &bytes, &keys.trust)?;
    if signed.digest != plan.manifest {
        return Err(Error::DigestMismatch {
            object: name.to_string(),
            expected: plan.manifest,
            actual: signed.digest,
        });
    }
    Ok(signed.record)
}

/// What a check found.
pub(crate) struct Checked {
    hash_kv: u32,
    keys: u64,
}

/// Every page walked, and the hash of the manifest recomputed.
pub(crate) fn check_content(file: &EtcdFile<SpoolReader>, manifest: &Manifest) -> Result<Checked> {
    let (hash, checked) = walk(file)?;
    let content = &manifest.content;
    let found = (hash.hash, hash.hash_revision, hash.compact_revision);
    let expected = (content.hash_kv, content.revision, content.compact_revision);
    if found != expected {
        return Err(Error::RebuildMismatch {
            reason: format!(
                "hash, revision and compaction are {found:?}, the manifest says {expected:?}"
            ),
        });
    }
    Ok(checked)
}

/// Every page walked, and the result of a replay compared with what the source said.
fn check_replayed(file: &EtcdFile<SpoolReader>, changes: &Changes) -> Result<Checked> {
    let (_, checked) = walk(file)?;
    changes.check(file)?;
    Ok(checked)
}

fn walk(file: &EtcdFile<SpoolReader>) -> Result<(HashKv, Checked)> {
    let survey = file.survey(|_pair| ());
    if let Some(problem) = survey.report.problems.first() {
        return Err(inspect::unreadable(problem));
    }
    let content = survey.content;
    let content = content.map_err(|error| inspect::unreadable(&error))?;
    let checked = Checked {
        hash_kv: content.hash.hash,
        keys: content.status.client_key,
    };
    Ok((content.hash, checked))
}
