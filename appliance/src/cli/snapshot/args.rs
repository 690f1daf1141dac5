//! The words of `holdfast snapshot`: etcdutl's flags.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::super::connect::ConnectArgs;
use super::super::restore::Target;

const SAVE_EXAMPLES: &str = "\
Examples:
  holdfast snapshot save backup.db
  holdfast snapshot save backup.db --endpoints https://10.0.0.1:2379 --cacert ca.crt \\
      --cert client.crt --key client.key";

const STATUS_EXAMPLES: &str = "\
Examples:
  holdfast snapshot status backup.db           digest, structure, every page
  holdfast snapshot status backup.db -w text   for people; otherwise what etcdutl prints
  holdfast snapshot status backup.db -w json   etcdutl's fields";

const HASHKV_EXAMPLES: &str = "\
Examples:
  holdfast snapshot hashkv backup.db              at the newest revision
  holdfast snapshot hashkv backup.db --rev 1200   comparable with `etcdctl endpoint hashkv --rev 1200`";

const RESTORE_EXAMPLES: &str = "\
Examples:
  holdfast snapshot restore backup.db --data-dir new.etcd
  holdfast snapshot restore backup.db --data-dir m1.etcd --name m1 \\
      --initial-cluster m1=http://10.0.0.1:2380,m2=http://10.0.0.2:2380 \\
      --initial-advertise-peer-urls http://10.0.0.1:2380 \\
      --bump-revision 1000000000 --mark-compacted

  holdfast snapshot restore backup.db --target holdfast --data-dir new.holdfast
      for `holdfast store --data-dir new.holdfast`

From a vault, see `holdfast restore`.";

/// Work on snapshot files.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Save a snapshot of a running member into a file
    Save(SaveArgs),
    /// Check a snapshot file and say what it holds
    Status(StatusArgs),
    /// Compute a snapshot's HashKV, comparable across members
    Hashkv(HashkvArgs),
    /// Make a data directory from a snapshot file
    Restore(RestoreArgs),
}

/// Save a snapshot of a running member into a file.
#[derive(Debug, Args)]
#[command(after_help = SAVE_EXAMPLES)]
pub(crate) struct SaveArgs {
    /// The file to write; an existing one is refused
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) connect: ConnectArgs,
}

/// Check a snapshot file and say what it holds.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {
    /// The snapshot file, or a member's `member/snap/db`
    pub(super) file: PathBuf,
}

/// Compute a snapshot's HashKV.
#[derive(Debug, Args)]
#[command(after_help = HASHKV_EXAMPLES)]
pub(crate) struct HashkvArgs {
    /// The snapshot file, or a member's `member/snap/db`
    pub(super) file: PathBuf,
    /// The revision; 0 is the newest
    #[arg(long, default_value_t = 0, value_name = "REVISION")]
    pub(super) rev: i64,
}

/// Make a data directory that a real etcd, or the bundled store, starts from.
#[derive(Debug, Args)]
#[command(after_help = RESTORE_EXAMPLES)]
pub(crate) struct RestoreArgs {
    /// The snapshot file
    pub(super) file: PathBuf,
    /// What will run from it
    #[arg(long, value_enum, default_value_t = Target::Etcd, value_name = "KIND")]
    pub(super) target: Target,
    /// The data directory to make, which must not exist; `<name>.etcd` when left out
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,
    /// The WAL directory to make; inside the data directory when left out
    #[arg(long, value_name = "DIR")]
    pub(super) wal_dir: Option<PathBuf>,
    /// The member's name
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub(super) name: String,
    /// The members of the new cluster, as name=peer-url pairs
    #[arg(
        long,
        default_value = "default=http://localhost:2380",
        value_name = "MEMBERS"
    )]
    pub(super) initial_cluster: String,
    /// The new cluster's token
    #[arg(long, default_value = "etcd-cluster", value_name = "TOKEN")]
    pub(super) initial_cluster_token: String,
    /// The member's peer URLs
    #[arg(
        long,
        default_value = "http://localhost:2380",
        value_delimiter = ',',
        value_name = "URLS"
    )]
    pub(super) initial_advertise_peer_urls: Vec<String>,
    /// Accept a file whose digest is missing or wrong, such as a copied `member/snap/db`
    #[arg(long)]
    pub(super) skip_hash_check: bool,
    /// How far revisions jump; needs --mark-compacted
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(super) bump_revision: u64,
    /// Compact everything before the bump, so that old watchers are told
    #[arg(long)]
    pub(super) mark_compacted: bool,
    /// Drop alarms: a NOSPACE alarm in the snapshot would make the new cluster refuse writes
    #[arg(long)]
    pub(super) clear_alarms: bool,
    /// Accepted and ignored: nothing is mapped into memory here
    #[arg(long, hide = true, value_name = "BYTES")]
    pub(super) initial_memory_map_size: Option<u64>,
}
