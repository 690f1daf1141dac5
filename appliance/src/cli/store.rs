//! `holdfast store`: only the store, with etcd's own flags, variables and configuration file.

use crate::exit_code::ExitCode;
use crate::failure::Failure;

/// Runs one member until it is told to stop; `arguments` are the words after `store`, unparsed,
/// because etcd's flag forms (`--f=v`, `--f v`, `-f=v`, bare, repeated) are not clap's.
pub(crate) async fn run(arguments: Vec<std::ffi::OsString>) -> Result<ExitCode, Failure> {
    std::future::ready(()).await;
    Err(Failure::usage(
        format!("store: {} arguments", arguments.len()),
        "this build has no store yet",
    ))
}
