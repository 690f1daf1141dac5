//! `holdfast store`: only the store, with etcd's own flags, variables and configuration file.

mod log;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use holdfast_store::api::StoreServer;
use holdfast_store::error::{Error as StoreError, ErrorKind as StoreErrorKind};
use holdfast_store::options::{Invocation, StoreOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::panic;

/// Runs one member until it is told to stop; `arguments` are the words after `store`, unparsed,
/// because etcd's flag forms (`--f=v`, `--f v`, `-f=v`, bare, repeated) are not clap's.
pub(crate) async fn run(arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let invocation = StoreOptions::from_args(arguments, &environment).map_err(|error| {
        Failure::usage(error.to_string(), "`holdfast store --help` lists the flags")
    })?;
    match invocation {
        Invocation::Version(text) | Invocation::Help(text) => {
            let written = std::io::stdout().write_all(text.as_bytes());
            written
                .map_err(|error| Failure::unexpected("the answer could not be printed", &error))?;
            Ok(ExitCode::Done)
        }
        Invocation::Run { options, warnings } => serve(*options, &warnings).await,
    }
}

/// Serves until a signal arrives or the member fails.
async fn serve(options: StoreOptions, warnings: &[String]) -> Result<ExitCode, Failure> {
    log::start(options.log_level)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    // Before anything is started, so that no signal is missed.
    let mut terminate = listen_for(SignalKind::terminate())?;
    let mut interrupt = listen_for(SignalKind::interrupt())?;
    tracing::info!(
        name = options.name,
        data_dir = %options.data_dir.display(),
        version = options.claimed_version,
        "starting a store member"
    );
    let data_dir = options.data_dir.clone();
    let server = tokio::select! {
        server = StoreServer::start(options) => {
            server.map_err(|error| not_started(&error, &data_dir))?
        }
        _ = terminate.recv() => return Ok(ExitCode::Done),
        _ = interrupt.recv() => return Ok(ExitCode::Done),
    };
    if server.member().state().is_auth_enabled() {
        tracing::warn!("{}; every call is refused", StoreError::AuthUnsupported);
    }
    let failed = tokio::select! {
        reason = server.failed() => Some(reason),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    if failed.is_some() && server.member().is_removed() {
        // As etcd: nothing is wrong, and starting it again would change nothing.
        drop(server.stop().await);
        return Ok(ExitCode::Done);
    }
    if let Some(reason) = failed {
        let damage = server.member().state().damage();
        tracing::error!(reason, "the member cannot go on");
        drop(server.stop().await);
        return Err(gave_up(&reason, damage, &data_dir));
    }
    tracing::info!("received a signal, shutting down");
    server
        .stop()
        .await
        .or_fail("the store could not be stopped in order")?;
    tracing::info!("the store is stopped");
    Ok(ExitCode::Done)
}

/// Why a start failed; for damage, with the directory and the way back.
fn not_started(error: &StoreError, data_dir: &Path) -> Failure {
    let what = format!("the store in {} could not be started", data_dir.display());
    let failure = Failure::from_store(what, error);
    if error.kind() == StoreErrorKind::Corrupt {
        return failure.next(panic::NEXT_STEP);
    }
    failure
}

/// Why a running member gave up.
fn gave_up(reason: &str, damage: Option<String>, data_dir: &Path) -> Failure {
    let what = format!("the store in {} cannot go on", data_dir.display());
    match damage {
        Some(damage) => Failure::new(ErrorName::Corrupt, what)
            .because_of(damage)
            .next(panic::NEXT_STEP),
        None => Failure::new(ErrorName::Unexpected, what)
            .because_of(reason)
            .next(
                "look at the disk and at the lines above, then start it again: everything \
                   acknowledged is in its directory",
            ),
    }
}

fn listen_for(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::unexpected("signals cannot be received", &error))
}
