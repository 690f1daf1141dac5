//! The words of the command line, top level: what every command shares and the list of commands.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::{
    backup, completion, config, demo, drill, explain, init, key, man, policy, reference, restore,
    run, snapshot, status, vault,
};
use crate::output::Format;
use crate::telemetry::LogFormat;

const ABOUT: &str = "Disaster recovery for etcd data, with an etcd-compatible store of its own";

const LONG_ABOUT: &str = "\
Disaster recovery for etcd data, with an etcd-compatible store of its own.

Holdfast takes sealed backups of its own store and of any etcd cluster, on a schedule, proves from
what is in the vault that they can be restored, and brings a cluster back with one command. At any
moment it can tell you how much you would lose now (RPO), how long coming back would take (RTO) and
when that was last proven.";

const EXAMPLES: &str = "\
Examples:
  holdfast demo                        see the whole story in under a minute
  holdfast run                         a store on 127.0.0.1:2379, backed up hourly, drilled weekly
  holdfast init                        write holdfast.yaml and keys to start from
  holdfast status                      are the objectives met, and what proves it
  holdfast backup now                  take a backup and prove it
  holdfast restore --data-dir new.etcd rebuild the newest proven backup
  holdfast drill run                   rehearse that, measured, in a scratch directory

Exit codes:
  0 done, 1 unexpected, 2 usage, 10 not found, 11 conflict, 12 corrupt, 13 denied,
  14 unavailable, 20 drill failed, 21 objective missed (docs/reference/exit-codes.md)";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, about = ABOUT, long_about = LONG_ABOUT,
    after_help = EXAMPLES, after_long_help = EXAMPLES, subcommand_required = true,
    arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// The configuration file; without it `holdfast.yaml` here, else `/etc/holdfast/holdfast.yaml`,
    /// else the defaults
    #[arg(
        short,
        long,
        global = true,
        env = "HOLDFAST_CONFIG",
        hide_env_values = true,
        value_name = "FILE"
    )]
    pub(crate) config: Option<PathBuf>,
    /// Sets one key over the file, as `policies.backup.schedule=@daily`; may be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// The form of the answer: `text` unless said, in `snapshot status` and `hashkv` `simple`
    #[arg(
        short = 'w',
        long,
        global = true,
        env = "HOLDFAST_WRITE_OUT",
        hide_env_values = true,
        value_enum,
        value_name = "FORM"
    )]
    pub(crate) write_out: Option<Format>,
    /// What to log: error, warn, info, debug, trace, or a filter
    #[arg(
        long,
        global = true,
        env = "HOLDFAST_LOG_LEVEL",
        hide_env_values = true,
        value_name = "LEVEL"
    )]
    pub(crate) log_level: Option<String>,
    /// The form of the log lines
    #[arg(
        long,
        global = true,
        env = "HOLDFAST_LOG_FORMAT",
        hide_env_values = true,
        value_enum,
        value_name = "FORM"
    )]
    pub(crate) log_format: Option<LogFormat>,
}

/// The commands, in the order of a reader's need.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See the whole story in under a minute, in a temporary folder
    Demo(demo::DemoArgs),
    /// Write a commented holdfast.yaml, an age identity and a signing key
    Init(init::InitArgs),
    /// Run the daemon: store, backups, drills, status page
    Run(run::RunArgs),
    /// Say whether the objectives are met, from what is in the vault
    Status(status::StatusArgs),
    /// Take, list, prove, keep and remove backups
    #[command(subcommand)]
    Backup(backup::BackupCommand),
    /// Rebuild a cluster from a backup
    Restore(restore::RestoreArgs),
    /// Rehearse a restore and read the reports
    #[command(subcommand)]
    Drill(drill::DrillCommand),
    /// Look after the vault
    #[command(subcommand)]
    Vault(vault::VaultCommand),
    /// Make and show keys
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Check and explain schedules and retention
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Check and print the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Run only the store, with etcd's own flags
    #[command(disable_help_flag = true)]
    Store(StoreWords),
    /// Work on snapshot files, as etcdutl does, and never modify them
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    /// Say what the name of an error means and what to do
    Explain(explain::ExplainArgs),
    /// Print a completion script for a shell
    Completion(completion::CompletionArgs),
    /// Print or write the manual pages
    Man(man::ManArgs),
    /// Write the reference pages
    #[command(hide = true)]
    Reference(reference::ReferenceArgs),
}

/// The words after `store`, which has etcd's flags and reads them itself.
#[derive(Debug, Args)]
pub(crate) struct StoreWords {
    /// etcd's flags: --name, --data-dir, --listen-client-urls, ...
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ETCD FLAGS"
    )]
    pub(crate) words: Vec<std::ffi::OsString>,
}
