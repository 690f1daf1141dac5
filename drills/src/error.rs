//! Why there was no drill. What a drill finds is in its report and not an error.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_restore::Error as Restore;

use crate::checks::Outcome;

/// What a caller can do about an error.
pub use holdfast_restore::ErrorKind;

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a drill, or a step of one, did not come about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The vault or the backup in it.
    #[error("the backup cannot be used")]
    Restore {
        /// What was wrong.
        #[from]
        source: holdfast_restore::Error,
    },
    /// The decoded content.
    #[error("the content of the backup cannot be read")]
    Content {
        /// What was wrong.
        source: holdfast_store::error::Error,
    },
    /// The scratch directory.
    #[error("cannot {what} {path}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another drill works in the same place.
    #[error("a drill is running in {path}")]
    Busy {
        /// Its scratch directory.
        path: PathBuf,
    },
    /// The scratch member did not come up, or went away.
    #[error("the scratch member {reason}")]
    Member {
        /// What it did.
        reason: String,
    },
    /// The deadline has passed.
    #[error("not done after {seconds} s")]
    Deadline {
        /// The deadline.
        seconds: u64,
    },
    /// The scratch directory has grown beyond its budget.
    #[error("the scratch directory holds more than {budget} bytes")]
    Budget {
        /// The budget.
        budget: u64,
    },
}

impl Error {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Restore { source } => source.kind(),
            Self::Content { .. } => ErrorKind::Corrupt,
            Self::Io { .. } | Self::Member { .. } => ErrorKind::Internal,
            Self::Busy { .. } => ErrorKind::Conflict,
            Self::Deadline { .. } => ErrorKind::Unavailable,
            Self::Budget { .. } => ErrorKind::Exhausted,
        }
    }

    /// What a drill that breaks off with it says of its backup: nothing, when the identity at hand
    /// is another one, or when the vault could not be read.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Restore { source } => match source {
                Restore::NoMatchingIdentity { .. } | Restore::IdentityNeeded { .. } => {
                    Outcome::Inconclusive
                }
                Restore::Vault { .. } => match source.kind() {
                    ErrorKind::Unavailable | ErrorKind::Denied => Outcome::Inconclusive,
                    _ => Outcome::Failed,
                },
                _ => Outcome::Failed,
            },
            _ => Outcome::Failed,
        }
    }

    /// The error with everything behind it, in one line.
    pub fn line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            line.push_str(": ");
            line.push_str(&error.to_string());
            cause = error.source();
        }
        line
    }

    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }

    pub(crate) fn member(reason: impl Into<String>) -> Self {
        Self::Member {
            reason: reason.into(),
        }
    }
}
