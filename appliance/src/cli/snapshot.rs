//! `holdfast snapshot`: work on snapshot files with etcdutl's flags and JSON fields. The file that is
//! read is never modified.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::connect::ConnectArgs;

const SAVE_EXAMPLES: &str = "\
Examples:
  holdfast snapshot save backup.db
  holdfast snapshot save backup.db --endpoints https://10.0.0.1:2379 --cacert ca.crt \\
      --cert client.crt --key client.key";

const STATUS_EXAMPLES: &str = "\
Examples:
  holdfast snapshot status backup.db           digest, structure, every page
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
  holdfast snapshot restore backup.db --data-dir new.holdfast --target holdfast";

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
    Restore(StatusArgs),
}

/// Save a snapshot of a running member into a file.
#[derive(Debug, Args)]
#[command(after_help = SAVE_EXAMPLES)]
pub(crate) struct SaveArgs {
    /// The file to write; an existing one is refused
    file: PathBuf,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Check a snapshot file and say what it holds.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {
    /// The snapshot file, or a member's `member/snap/db`
    file: PathBuf,
}

/// Compute a snapshot's HashKV.
#[derive(Debug, Args)]
#[command(after_help = HASHKV_EXAMPLES)]
pub(crate) struct HashkvArgs {
    /// The snapshot file, or a member's `member/snap/db`
    file: PathBuf,
    /// The revision; 0 is the newest
    #[arg(long, default_value_t = 0, value_name = "REVISION")]
    rev: i64,
}

pub(crate) async fn run(
    _command: &SnapshotCommand,
    _context: &super::dispatch::Context,
) -> Result<crate::exit_code::ExitCode, crate::failure::Failure> {
    std::future::ready(()).await;
    Err(crate::failure::Failure::usage("not yet", "wait"))
}
