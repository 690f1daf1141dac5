//! How the errors of the crates below become failures: the one place that branches on their kinds.

use holdfast_restore::{Error as RestoreError, ErrorKind};
use holdfast_store::Error as StoreError;

use super::name::ErrorName;
use super::report::Failure;

/// Adds what was being done to an error on its way to a person.
pub(crate) trait OrFail<T> {
    /// `what` says what could not be done and names the object.
    fn or_fail(self, what: impl Into<String>) -> Result<T, Failure>;
}

impl<T> OrFail<T> for Result<T, RestoreError> {
    fn or_fail(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| from_restore(what.into(), &error))
    }
}

impl<T> OrFail<T> for Result<T, holdfast_drills::Error> {
    fn or_fail(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| match &error {
            holdfast_drills::Error::Restore { source } => from_restore(what.into(), source),
            _ => Failure::new(by_kind(error.kind()), what).because(&error),
        })
    }
}

impl<T> OrFail<T> for Result<T, StoreError> {
    fn or_fail(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::from_store(what, &error))
    }
}

impl<T> OrFail<T> for Result<T, std::io::Error> {
    fn or_fail(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::io(what, &error))
    }
}

impl<T> OrFail<T> for Result<T, holdfast_policies::Error> {
    fn or_fail(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(ErrorName::ConfigInvalid, what).because(&error))
    }
}

fn name_of(error: &RestoreError) -> ErrorName {
    match error {
        RestoreError::NotAVault { .. } | RestoreError::NothingToRestore { .. } => {
            ErrorName::NoBackup
        }
        RestoreError::Unreachable { flaw: None, .. } => ErrorName::NoBackup,
        RestoreError::ClusterChanged { .. } => ErrorName::ClusterChanged,
        RestoreError::TargetExists { .. } => ErrorName::TargetExists,
        RestoreError::NoRecipients => ErrorName::EncryptionNotConfigured,
        RestoreError::VaultSettings { .. } => ErrorName::ConfigInvalid,
        _ => by_kind(error.kind()),
    }
}

fn from_restore(what: String, error: &RestoreError) -> Failure {
    let failure = Failure::new(name_of(error), what).because(error);
    match error {
        RestoreError::ClusterChanged { .. } => failure.next(
            "where the cluster was lost, bring it back from the vault with `holdfast restore \
             --data-dir DIR`; see that the endpoints are the right ones; only if the new cluster is \
             meant to take its place, run `holdfast backup now --accept-new-cluster` once",
        ),
        RestoreError::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            failure.next(format!("see that the path {} is right", path.display()))
        }
        RestoreError::NotAVault { location } => failure.next(format!(
            "where this is the first use, take a backup: the daemon (`holdfast run`) takes those of \
             the bundled store, `holdfast backup now` those of an etcd; else correct \
             `restore.vault`: nothing is at {location}"
        )),
        RestoreError::MarkerLost { .. } => failure.next(
            "nothing is written until it has one: put `vault.json` back from a copy of the vault, \
             or let `holdfast vault check --new` write a new one beside the backups; reading and \
             restoring go on without",
        ),
        RestoreError::Source { .. }
        | RestoreError::NoUsableMember { .. }
        | RestoreError::Stalled { .. } => failure.next(
            "see that the source answers at the endpoints in `restore.sources`, with its `tls` and \
             `user` (`etcdctl endpoint status` asks the same)",
        ),
        RestoreError::Vault { .. } | RestoreError::ClockSkewed { .. } => {
            failure.next(vault_advice(error))
        }
        RestoreError::Replaced { .. } => failure.next(
            "stop one of the two appliances; to go on with this one, stop the other and start this \
             one again: at its start it claims a new generation",
        ),
        RestoreError::OfficeLost { .. } => failure.next(
            "the daemon beside the store's new leader goes on; `holdfast status` says who that is",
        ),
        RestoreError::Overtaken { .. } | RestoreError::ObjectExists { .. } => failure.next(
            "run it again, it takes the next place; where two appliances back up one source, stop \
             one of them",
        ),
        RestoreError::IdentityNeeded { .. } | RestoreError::NoMatchingIdentity { .. } => failure
            .next(
                "give the age identity with --identity FILE or `restore.identity_file`; `holdfast \
                 backup show` says for which recipients a backup is sealed",
            ),
        RestoreError::Unreachable {
            nearest: Some(revision),
            ..
        } => failure.next(format!(
            "`--revision {revision}` restores the newest state before it; `holdfast backup list` \
             shows what the vault holds"
        )),
        RestoreError::NotEnoughSpace { .. } => {
            failure.next("free the space, or name a data directory on a larger disk")
        }
        _ => failure,
    }
}

/// What to do about a vault that failed or refused.
fn vault_advice(error: &RestoreError) -> &'static str {
    match error {
        RestoreError::ClockSkewed { .. } => {
            "set this host's clock (NTP), or that of the vault's server, whichever is wrong"
        }
        _ => match error.kind() {
            ErrorKind::Exhausted => {
                "free some space where the vault is, or keep less: `holdfast backup prune` says \
                 what could go"
            }
            ErrorKind::NotFound => {
                "make the bucket, or correct `restore.vault`: holdfast makes no buckets"
            }
            _ => {
                "`holdfast vault check` tries out what a backup needs of the vault; credentials for \
                 S3 come from `credentials_file`, the AWS_* environment or the instance"
            }
        },
    }
}

impl Failure {
    /// An error of the store, with the name that fits its kind.
    pub(crate) fn from_store(what: impl Into<String>, error: &StoreError) -> Self {
        match error {
            StoreError::Io { source, .. } | StoreError::Listen { source, .. } => {
                Failure::io(what, source).because(error)
            }
            _ => Failure::new(by_kind(error.kind()), what).because(error),
        }
    }
}

fn by_kind(kind: ErrorKind) -> ErrorName {
    match kind {
        ErrorKind::Invalid => ErrorName::Usage,
        ErrorKind::NotFound => ErrorName::NotFound,
        ErrorKind::Conflict => ErrorName::InUse,
        ErrorKind::Denied => ErrorName::Denied,
        ErrorKind::Exhausted => ErrorName::Exhausted,
        ErrorKind::Unavailable => ErrorName::Unavailable,
        ErrorKind::Corrupt => ErrorName::Corrupt,
        ErrorKind::Internal => ErrorName::Unexpected,
    }
}
