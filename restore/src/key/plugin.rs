//! Age plugins: programs `age-plugin-NAME` on the PATH that hold a kind of key age does not know.
//!
//! One is run because a recipient or an identity that the operator wrote down names it, never for
//! what a vault holds. It gets no terminal (one that asks for a secret is refused) and a minute.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use age::plugin::ResolveError;

use super::abridged;
use crate::error::{Error, Result};

/// Longest wait for a plugin: a person may have to touch a token.
const PATIENCE: Duration = Duration::from_mins(1);

/// Answers a plugin's questions: none of them.
#[derive(Debug, Clone)]
pub(super) struct Unattended;

impl age::Callbacks for Unattended {
    fn display_message(&self, message: &str) {
        tracing::warn!(message, "an age plugin says");
    }

    fn confirm(&self, _message: &str, _yes: &str, _no: Option<&str>) -> Option<bool> {
        None
    }

    fn request_public_string(&self, _description: &str) -> Option<String> {
        None
    }

    fn request_passphrase(&self, _description: &str) -> Option<age::secrecy::SecretString> {
        None
    }
}

/// Why a plugin cannot be used. `what` is a public text or the name of a file.
pub(super) fn unresolved(what: &str, error: &ResolveError) -> Error {
    let reason = match error {
        ResolveError::MissingPlugin { binary_name } => format!(
            "it needs the program `{binary_name}`, which is not on the PATH; install it on this host"
        ),
        _ => "the name of its plugin cannot be a program's".to_owned(),
    };
    Error::Key {
        what: abridged(what),
        reason,
    }
}

/// Does work that may wait for a plugin, on a thread of its own, and waits a minute for it. A
/// plugin that hangs keeps its thread; the backup or the restore ends with an error.
pub(crate) fn within_patience<T: Send + 'static>(
    uses_plugins: bool,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if !uses_plugins {
        return work();
    }
    let (done, answer) = mpsc::sync_channel(1);
    // Nobody waits for an answer that comes too late.
    thread::spawn(move || drop(done.send(work())));
    answer.recv_timeout(PATIENCE).unwrap_or_else(|_late| {
        Err(Error::Key {
            what: "age plugin".to_owned(),
            reason: format!("it gave no answer in {} s", PATIENCE.as_secs()),
        })
    })
}
