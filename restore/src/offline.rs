//! Offline work on snapshot files, with etcdutl's names: status, hashkv, restore, save.
//!
//! A file is opened for reading only and never modified. Whatever is read has its pages and its
//! digest checked first; etcdutl checks neither at `status`, and its `hashkv` writes to the file.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use futures::StreamExt as _;
use holdfast_store::ErrorKind;
use holdfast_store::bolt::{FileSource, ReadAt, Report};
use holdfast_store::datadir::{bootstrap, durable};
use holdfast_store::etcd_file::{EtcdFile, Status, Trailer, check_trailer};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::etcd_datadir::{self, DataDirPlan, NewCluster, bumped_revision, content_error};
use crate::source::SnapshotStream;
use crate::staging::refuse_existing;
use crate::store_datadir::write_store_datadir;

/// How many of a damaged file's problems an error lists.
const PROBLEMS_SHOWN: usize = 5;

/// What the digest behind a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DigestState {
    /// The file is as the server sent it.
    Valid,
    /// The file has none: a copy of a data directory's database, or a snapshot without its end.
    Missing,
}

impl DigestState {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde hands over a reference"
    )]
    fn is_valid(&self) -> bool {
        *self == Self::Valid
    }
}

/// The answer of `snapshot status`: etcdutl's fields, and that the digest is missing if it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// CRC-32C over all buckets; differs between snapshots of the same data.
    pub hash: u32,
    /// Revision of the newest row; 0 for an empty store.
    pub revision: i64,
    /// Live keys.
    pub total_key: u64,
    /// Size of the database in bytes, without the digest.
    pub total_size: u64,
    /// Storage version; empty before etcd 3.6.
    pub version: String,
    /// What the digest says; an error when it does not match.
    #[serde(skip_serializing_if = "DigestState::is_valid")]
    pub digest: DigestState,
}

/// The answer of `hashkv`: etcdutl's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotHashKv {
    /// The hash, equal to the server's at that revision.
    pub hash: u32,
    /// The revision hashed.
    pub hash_revision: i64,
    /// The compaction it starts at; -1: never compacted.
    pub compact_revision: i64,
}

/// The flags of `snapshot restore`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRestore {
    /// The snapshot file.
    pub snapshot: PathBuf,
    /// `--data-dir`; None: `<name>.etcd`.
    pub data_dir: Option<PathBuf>,
    /// `--wal-dir`; None: inside the data directory.
    pub wal_dir: Option<PathBuf>,
    /// `--name`.
    pub name: String,
    /// `--initial-cluster`, as `name=url,name=url`.
    pub initial_cluster: String,
    /// `--initial-cluster-token`.
    pub initial_cluster_token: String,
    /// `--initial-advertise-peer-urls`: this member's, the same as in the initial cluster.
    pub initial_advertise_peer_urls: Vec<String>,
    /// `--skip-hash-check`: accept a file whose digest is missing or wrong.
    pub skip_hash_check: bool,
    /// `--bump-revision`; 0: none.
    pub bump_revision: u64,
    /// `--mark-compacted`. None: exactly when there is a bump, as etcdutl insists.
    pub mark_compacted: Option<bool>,
    /// `--clear-alarms`, which etcdutl does not have.
    pub clear_alarms: bool,
}

impl Default for SnapshotRestore {
    /// etcdutl's defaults.
    fn default() -> Self {
        Self {
            snapshot: PathBuf::new(),
            data_dir: None,
            wal_dir: None,
            name: "default".into(),
            initial_cluster: "default=http://localhost:2380".into(),
            initial_cluster_token: "etcd-cluster".into(),
            initial_advertise_peer_urls: vec!["http://localhost:2380".into()],
            skip_hash_check: false,
            bump_revision: 0,
            mark_compacted: None,
            clear_alarms: false,
        }
    }
}

/// The answer of `snapshot restore`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotRestored {
    /// The directory written.
    pub data_dir: PathBuf,
    /// The member's id, in hexadecimal.
    pub member_id: String,
    /// The new cluster's id, in hexadecimal.
    pub cluster_id: String,
    /// The revision the member starts at.
    pub revision: i64,
    /// The revision it counts as compacted; -1: none.
    pub compact_revision: i64,
    /// Size of the database in bytes.
    pub database_size: u64,
}

/// The answer of `snapshot save`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotSaved {
    /// The file written.
    pub path: PathBuf,
    /// Its size in bytes, digest included.
    pub size: u64,
    /// What it holds, read back.
    pub status: SnapshotStatus,
}

/// Checks the digest and every page of a file, then reads what it holds.
pub fn status(path: &Path) -> Result<SnapshotStatus> {
    let source = open(path)?;
    let file = EtcdFile::open(&source).map_err(content_error)?;
    let (trailer, status) = thread::scope(|scope| {
        let trailer = scope.spawn(|| check_trailer(&source));
        let status = checked_status(&file);
        (trailer.join(), status)
    });
    let trailer = trailer
        .map_err(|_panic| Error::Worker {
            reason: "the digest thread panicked".into(),
        })?
        .map_err(content_error)?;
    // A digest that does not match explains every other problem.
    let digest = digest_state(trailer, path)?;
    let status = status?;
    Ok(SnapshotStatus {
        hash: status.hash,
        revision: status.revision,
        total_key: status.total_key,
        total_size: status.total_size,
        version: status.version,
        digest,
    })
}

fn checked_status<R: ReadAt>(file: &EtcdFile<R>) -> Result<Status> {
    let survey = file.survey(|_pair| ());
    check_pages(&survey.report)?;
    Ok(survey.content.map_err(content_error)?.status)
}

/// HashKV at `revision` (0: the newest), after checking the digest, if there is one.
pub fn hash_kv(path: &Path, revision: i64) -> Result<SnapshotHashKv> {
    let source = open(path)?;
    let file = EtcdFile::open(&source).map_err(content_error)?;
    let (trailer, hash) = thread::scope(|scope| {
        let trailer = scope.spawn(|| check_trailer(&source));
        let hash = file.hash_kv(revision);
        (trailer.join(), hash)
    });
    let trailer = trailer
        .map_err(|_panic| Error::Worker {
            reason: "the digest thread panicked".into(),
        })?
        .map_err(content_error)?;
    digest_state(trailer, path)?;
    let hash = hash.map_err(|error| match error.kind() {
        ErrorKind::Invalid => Error::Refused {
            reason: error.to_string(),
        },
        _ => content_error(error),
    })?;
    Ok(SnapshotHashKv {
        hash: hash.hash,
        hash_revision: hash.hash_revision,
        compact_revision: hash.compact_revision,
    })
}

/// Writes a data directory that etcd starts from.
pub fn restore(options: &SnapshotRestore) -> Result<SnapshotRestored> {
    let plan = restore_plan(options)?;
    let source = open(&options.snapshot)?;
    let file = EtcdFile::open(&source).map_err(content_error)?;
    // The directory is built while the file is checked, and published when nothing is wrong.
    let (checked, staged) = thread::scope(|scope| {
        let checked = scope.spawn(|| check_to_restore(&source, &file, options));
        let staged = etcd_datadir::stage(&file, &plan);
        (checked.join(), staged)
    });
    checked.map_err(|_panic| Error::Worker {
        reason: "the checking thread panicked".into(),
    })??;
    let written = staged?.publish()?;
    Ok(SnapshotRestored {
        data_dir: plan.data_dir,
        member_id: written.member_id.to_string(),
        cluster_id: written.cluster_id.to_string(),
        revision: written.revision,
        compact_revision: written.compact_revision,
        database_size: written.database_size,
    })
}

/// The same for our own store: a data directory that `holdfast store` starts from.
pub fn restore_for_store(options: &SnapshotRestore) -> Result<SnapshotRestored> {
    let plan = restore_plan(options)?;
    if plan.wal_dir.is_some() {
        let reason = "the bundled store keeps its log in the data directory: no --wal-dir".into();
        return Err(Error::Refused { reason });
    }
    refuse_existing(&plan.data_dir)?;
    let source = open(&options.snapshot)?;
    let file = EtcdFile::open(&source).map_err(content_error)?;
    check_to_restore(&source, &file, options)?;
    let newest = file.newest_revision().map_err(content_error)?;
    let revision = bumped_revision(newest, plan.bump_revision)?;
    let members = plan.cluster.members.iter();
    let cluster = bootstrap::NewCluster {
        name: plan.name,
        initial_cluster: members
            .map(|member| (member.name.clone(), member.peer_urls.clone()))
            .collect(),
        token: plan.cluster.token.clone(),
    };
    let changes = bootstrap::Changes {
        bump: revision.saturating_sub(newest),
        mark_compacted: plan.mark_compacted,
        clear_alarms: plan.clear_alarms,
    };
    let compacted = file.compact_revision().map_err(content_error)?;
    let written = write_store_datadir(&plan.data_dir, &file, &cluster, changes)?;
    Ok(SnapshotRestored {
        data_dir: plan.data_dir,
        member_id: written.ids.member.to_string(),
        cluster_id: written.ids.cluster.to_string(),
        revision: written.revision,
        compact_revision: if plan.mark_compacted {
            written.revision
        } else {
            compacted
        },
        database_size: file.status().map_err(content_error)?.total_size,
    })
}

/// The digest, if it is to be checked, and every page.
fn check_to_restore(
    source: &FileSource,
    file: &EtcdFile<&FileSource>,
    options: &SnapshotRestore,
) -> Result<()> {
    if !options.skip_hash_check
        && let DigestState::Missing = digest_state(
            check_trailer(source).map_err(content_error)?,
            &options.snapshot,
        )?
    {
        return Err(Error::Content {
            reason: format!(
                "{} has no digest at its end; --skip-hash-check accepts it",
                options.snapshot.display()
            ),
        });
    }
    check_pages(&file.check())
}

/// The plan that the flags describe, or which of them contradict each other.
pub fn restore_plan(options: &SnapshotRestore) -> Result<DataDirPlan> {
    let refuse = |reason: String| Err(Error::Refused { reason });
    let is_bumped = options.bump_revision > 0;
    let mark_compacted = options.mark_compacted.unwrap_or(is_bumped);
    if mark_compacted != is_bumped {
        return refuse("--mark-compacted and --bump-revision go together".into());
    }
    let cluster = NewCluster::parse(&options.initial_cluster, &options.initial_cluster_token)?;
    let Some(local) = cluster
        .members
        .iter()
        .find(|member| member.name == options.name)
    else {
        return refuse(format!(
            "--initial-cluster has no member named {:?}",
            options.name
        ));
    };
    let sorted = |urls: &[String]| {
        let mut urls: Vec<String> = urls.iter().map(|url| url.trim().to_owned()).collect();
        urls.sort_unstable();
        urls
    };
    if sorted(&local.peer_urls) != sorted(&options.initial_advertise_peer_urls) {
        return refuse(format!(
            "--initial-cluster has other peer URLs for {:?} than --initial-advertise-peer-urls",
            options.name
        ));
    }
    let data_dir = match &options.data_dir {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{}.etcd", options.name)),
    };
    Ok(DataDirPlan {
        data_dir,
        wal_dir: options.wal_dir.clone(),
        name: options.name.clone(),
        cluster,
        bump_revision: options.bump_revision,
        mark_compacted,
        clear_alarms: options.clear_alarms,
    })
}

/// Writes a snapshot stream to `path`, which must not exist: under another name, synced, read back
/// whole and only then renamed.
pub async fn save(stream: SnapshotStream, path: &Path) -> Result<SnapshotSaved> {
    if path.symlink_metadata().is_ok() {
        return Err(Error::TargetExists {
            path: path.to_path_buf(),
        });
    }
    let partial = durable::with_suffix(path, ".part");
    let result = save_partial(stream, &partial, path).await;
    if result.is_err() {
        // What is left is of no use; a failure to remove it changes nothing.
        drop(std::fs::remove_file(&partial));
    }
    result
}

async fn save_partial(
    mut stream: SnapshotStream,
    partial: &Path,
    path: &Path,
) -> Result<SnapshotSaved> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(partial)
        .map_err(Error::io("create", partial))?;
    let mut size = 0_u64;
    while let Some(chunk) = stream.chunks.next().await {
        let chunk = chunk?;
        file.write_all(&chunk)
            .map_err(Error::io("write", partial))?;
        size = size.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
    }
    let (partial, path) = (partial.to_path_buf(), path.to_path_buf());
    tokio::task::spawn_blocking(move || {
        file.sync_all().map_err(Error::io("sync", &partial))?;
        let status = status(&partial)?;
        if status.digest == DigestState::Missing {
            return Err(Error::Content {
                reason: "the stream ended without a digest".into(),
            });
        }
        durable::rename(&partial, &path).map_err(Error::io("rename to", &path))?;
        Ok(SnapshotSaved { path, size, status })
    })
    .await?
}

fn open(path: &Path) -> Result<FileSource> {
    FileSource::open(path).map_err(Error::io("open", path))
}

fn digest_state(trailer: Trailer, path: &Path) -> Result<DigestState> {
    match trailer {
        Trailer::Valid => Ok(DigestState::Valid),
        Trailer::Missing => Ok(DigestState::Missing),
        Trailer::Mismatch => Err(Error::Content {
            reason: format!(
                "{}: the SHA-256 digest at the end does not match",
                path.display()
            ),
        }),
    }
}

fn check_pages(report: &Report) -> Result<()> {
    if report.is_clean() {
        return Ok(());
    }
    let shown: Vec<String> = report
        .problems
        .iter()
        .take(PROBLEMS_SHOWN)
        .map(ToString::to_string)
        .collect();
    let more = report.problems.len().saturating_sub(shown.len());
    let more = if more > 0 {
        format!("; and {more} more")
    } else {
        String::new()
    };
    Err(Error::Content {
        reason: format!("{}{more}", shown.join("; ")),
    })
}
