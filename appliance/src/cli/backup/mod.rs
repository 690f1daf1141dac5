//! `holdfast backup`: take, list, prove, keep and remove backups.

mod args;
mod consolidate;
mod list;
mod now;
mod prove;
mod release;
mod trash;

pub(crate) use args::BackupCommand;

use super::dispatch::Context;
use crate::exit_code::ExitCode;
use crate::failure::Failure;

/// Does one of them.
pub(crate) async fn run(command: &BackupCommand, context: &Context) -> Result<ExitCode, Failure> {
    match command {
        BackupCommand::Now(args) => now::run(args, context).await,
        BackupCommand::List(args) => list::list(args, context).await,
        BackupCommand::Show(args) => list::show(args, context).await,
        BackupCommand::Verify(args) => prove::run(args, context).await,
        BackupCommand::Prune(args) => release::prune(args, context).await,
        BackupCommand::Undelete(args) => trash::undelete(args, context).await,
        BackupCommand::Consolidate(args) => consolidate::run(args, context).await,
        BackupCommand::Pin(args) => release::pin(args, context).await,
    }
}
