//! The words of `holdfast backup`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use holdfast_policies::{Level, Sequence};

const NOW_EXAMPLES: &str = "\
Examples:
  holdfast backup now                        every source
  holdfast backup now --source production    one of them
  holdfast backup now -w json

While `holdfast run` is up it does the work; the bundled store can only be read by it. Where the vault
cannot be reached, the backup waits on this host (exit code 14) and goes there when it is back.";

const LIST_EXAMPLES: &str = "\
Examples:
  holdfast backup list                       newest first, with the proof each has reached
  holdfast backup list -w json | jq -r '.backups[0].id'";

const SHOW_EXAMPLES: &str = "\
Examples:
  holdfast backup show                       the newest
  holdfast backup show 01980f3e-...          this one; the beginning of an id is enough";

const VERIFY_EXAMPLES: &str = "\
Examples:
  holdfast backup verify                     the newest, to L2: every byte, structure, HashKV
  holdfast backup verify --all --level L1    read every byte of every backup
  holdfast backup verify 01980f3e-... --identity escrow/identity.age";

const PRUNE_EXAMPLES: &str = "\
Examples:
  holdfast backup prune                      say what would go and why; change nothing
  holdfast backup prune --confirm            do it

What no rule keeps goes to the trash first and is removed `policies.retention.trash_grace` later;
until then `holdfast backup undelete` brings it back. The daemon prunes by itself after each newly
verified backup.";

const UNDELETE_EXAMPLES: &str = "\
Examples:
  holdfast backup undelete 01980f3e-... --reason 'needed for the audit'

It comes back pinned, or the rules would let it go again; `holdfast backup pin ID --remove` hands it
back to them. `holdfast backup list` shows what is in the trash.";

const CONSOLIDATE_EXAMPLES: &str = "\
Examples:
  holdfast backup consolidate --dry-run      what would be merged, and how long a restore takes
  holdfast backup consolidate --if-due       only where a restore would take longer than
                                             `policies.objective.rto` allows
  holdfast backup consolidate

The source is not asked: the newest backup and the deltas after it are read from the vault, replayed
and compared with the HashKV that the source told. What was captured later follows the new backup.
The age identity is needed.";

const PIN_EXAMPLES: &str = "\
Examples:
  holdfast backup pin 01980f3e-... --reason 'before the upgrade'
  holdfast backup pin 01980f3e-... --remove";

/// Take, list, prove, keep and remove backups.
#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Take a backup now, read it back and prove it
    Now(NowArgs),
    /// List the backups in the vault
    List(ListArgs),
    /// Show everything known about one backup
    Show(ShowArgs),
    /// Read backups back and raise their proof level
    Verify(VerifyArgs),
    /// Put what no rule keeps into the trash, and remove what was there long enough
    Prune(PruneArgs),
    /// Bring a backup back from the trash, pinned
    Undelete(UndeleteArgs),
    /// Merge the changes after the newest backup into a new one, from the vault alone
    Consolidate(ConsolidateArgs),
    /// Keep a backup whatever the rules say
    Pin(PinArgs),
}

/// Take a backup now.
#[derive(Debug, Args)]
#[command(after_help = NOW_EXAMPLES)]
pub(crate) struct NowArgs {
    /// Only this source
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
    /// The source has become another cluster on purpose (rebuilt or restored): begin a new
    /// generation
    #[arg(long)]
    pub(super) accept_new_cluster: bool,
}

/// List the backups in the vault.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    /// Only this source
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
    /// Read from this vault: `first` or one of `restore.copies`
    #[arg(long, value_name = "NAME")]
    pub(super) vault: Option<String>,
}

/// Show everything known about one backup.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The backup, by the beginning of its id; the newest when left out
    pub(super) id: Option<String>,
    /// The source, where there are several
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
    /// Read from this vault: `first` or one of `restore.copies`
    #[arg(long, value_name = "NAME")]
    pub(super) vault: Option<String>,
}

/// Read backups back and raise their proof level.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// The backup, by the beginning of its id; the newest when left out
    #[arg(conflicts_with = "all")]
    pub(super) id: Option<String>,
    /// Every backup of the source
    #[arg(long)]
    pub(super) all: bool,
    /// The level to prove: L0, L1 or L2
    #[arg(long, default_value_t = Level::L2)]
    pub(super) level: Level,
    /// The source, where there are several
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
    /// An age identity instead of `restore.identity_file`
    #[arg(long, value_name = "FILE")]
    pub(super) identity: Option<PathBuf>,
    /// Read from this vault: `first` or one of `restore.copies`
    #[arg(long, value_name = "NAME")]
    pub(super) vault: Option<String>,
}

/// Put what no rule keeps into the trash, and remove what was there long enough.
#[derive(Debug, Args)]
#[command(after_help = PRUNE_EXAMPLES)]
pub(crate) struct PruneArgs {
    /// The source, where there are several
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
    /// Do it, rather than say what would be done
    #[arg(long)]
    pub(super) confirm: bool,
    /// Only say what would be done, as without --confirm
    #[arg(long, conflicts_with = "confirm")]
    pub(super) dry_run: bool,
    /// Times of backups up to this place of the chain were looked at and may count; with --confirm
    /// that is remembered in the vault
    #[arg(long, value_name = "SEQUENCE", value_parser = sequence)]
    pub(super) confirm_times: Option<Sequence>,
}

/// Bring a backup back from the trash, pinned.
#[derive(Debug, Args)]
#[command(after_help = UNDELETE_EXAMPLES)]
pub(crate) struct UndeleteArgs {
    /// The backup, by the beginning of its id
    pub(super) id: String,
    /// The source, where there are several
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
    /// Why, for whoever asks later
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub(super) reason: String,
}

/// Merge the changes after the newest backup into a new one.
#[derive(Debug, Args)]
#[command(after_help = CONSOLIDATE_EXAMPLES)]
pub(crate) struct ConsolidateArgs {
    /// The source, where there are several
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
    /// Only where the objective asks for it
    #[arg(long)]
    pub(super) if_due: bool,
    /// Say what would be merged; write nothing
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// Keep a backup whatever the rules say.
#[derive(Debug, Args)]
#[command(after_help = PIN_EXAMPLES)]
pub(crate) struct PinArgs {
    /// The backup, by the beginning of its id
    pub(super) id: String,
    /// The source, where there are several
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
    /// Let it go again
    #[arg(long)]
    pub(super) remove: bool,
    /// Why, for whoever asks later
    #[arg(
        long,
        default_value = "",
        value_name = "TEXT",
        conflicts_with = "remove"
    )]
    pub(super) reason: String,
}

fn sequence(text: &str) -> Result<Sequence, String> {
    text.parse()
        .map(Sequence)
        .map_err(|_unread| format!("`{text}` is not a place in the chain"))
}
