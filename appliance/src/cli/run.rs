//! `holdfast run`: the daemon.

use clap::Args;

use super::dispatch::Context;
use crate::daemon::Daemon;
use crate::exit_code::ExitCode;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  holdfast run                                   no configuration: a store on 127.0.0.1:2379, keys
                                                 made at first start, hourly backups, weekly drill
  holdfast run --config /etc/holdfast/holdfast.yaml
  holdfast run --set 'policies.backup.schedule=@every 20m'
  etcdctl --endpoints 127.0.0.1:2379 put hello world     any etcd client talks to the store
  curl 127.0.0.1:2384/healthz                    status page, health and metrics";

/// Run the daemon: store, backups, drills, status page.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// Start an empty store although the vault holds backups of the one before; the backups of the
    /// new cluster go on in the same chain. Without it a lost store is refused, to be restored
    #[arg(long)]
    accept_new_cluster: bool,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) async fn run(args: &RunArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let daemon = Daemon::start(settings, context, args.accept_new_cluster).await?;
    daemon.run_until_told_to_stop().await
}
