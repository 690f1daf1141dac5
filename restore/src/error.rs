//! One error for the crate. Callers branch on [`ErrorKind`]; people read the text, which names the
//! object and what was expected of it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use holdfast_policies::{ClusterName, Generation, Sequence, SnapshotId};
pub use holdfast_store::ErrorKind;

use crate::digest::Digest;
use crate::flaw::Flaw;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A local file or folder could not be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was being done, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The vault refused or failed an operation.
    #[error("vault: cannot {action} {object}")]
    Vault {
        /// What was being done, as a verb.
        action: &'static str,
        /// The object's path within the vault.
        object: String,
        /// The store's reason.
        #[source]
        source: Box<object_store::Error>,
    },
    /// No more backups can wait on this host for their vault.
    #[error(
        "no room for one more backup to wait for the vault: {used} bytes wait, {limit} may; the \
         newest that waits is never removed"
    )]
    NoRoomToWait {
        /// Bytes that wait and stay.
        used: u64,
        /// Bytes that may.
        limit: u64,
    },
    /// The vault refuses requests of another time than its own.
    #[error(
        "vault: {object} is refused for the time of the request: this host's clock is {}",
        match ahead {
            Some(ahead) if *ahead >= TimeDelta::zero() => {
                format!("{} s ahead of the vault's", ahead.num_seconds())
            }
            Some(ahead) => format!("{} s behind the vault's", -ahead.num_seconds()),
            None => "too far from the vault's".to_owned(),
        }
    )]
    ClockSkewed {
        /// The object's path within the vault.
        object: String,
        /// How far our clock is ahead, when the vault tells.
        ahead: Option<TimeDelta>,
    },
    /// The vault's settings cannot be used.
    #[error("vault settings: {reason}")]
    VaultSettings {
        /// Which setting, and why.
        reason: String,
    },
    /// The place holds no vault (no marker object).
    #[error("no holdfast vault at {location}; the first backup makes one")]
    NotAVault {
        /// Where it was looked for.
        location: String,
    },
    /// The place holds backups and no marker.
    #[error("the vault at {location} holds backups and has lost its marker, vault.json")]
    MarkerLost {
        /// Where it is.
        location: String,
    },
    /// An object that must be there is not.
    #[error("missing from the vault: {object}")]
    ObjectMissing {
        /// The object's path within the vault.
        object: String,
    },
    /// An object that must not be there is, with other content: somebody else wrote it.
    #[error(
        "already in the vault with other content: {object}; is a second appliance writing here?"
    )]
    ObjectExists {
        /// The object's path within the vault.
        object: String,
    },
    /// An object, a part or a count is beyond its limit.
    #[error("{object}: larger than the limit of {limit}")]
    TooLarge {
        /// The object.
        object: String,
        /// The limit, in bytes or in items.
        limit: u64,
    },
    /// An object's bytes are not what its format says.
    #[error("malformed {object}: {reason}")]
    Malformed {
        /// The object.
        object: String,
        /// Which rule is broken.
        reason: String,
    },
    /// An object was written by a later version of the format.
    #[error(
        "{object} has format version {version}, this program reads up to {supported}; \
         use a newer holdfast"
    )]
    UnsupportedVersion {
        /// The object.
        object: String,
        /// Its version.
        version: u64,
        /// The newest version known here.
        supported: u64,
    },
    /// A signature does not hold.
    #[error("signature of {object}: {reason}")]
    Signature {
        /// The object.
        object: String,
        /// What does not hold.
        reason: String,
    },
    /// A signature holds, and its key is not trusted here.
    #[error(
        "signature of {object}: made by {key}, which is not trusted here; where it is the key of \
         an appliance of yours, add it to `restore.trusted_signers`"
    )]
    Stranger {
        /// The object.
        object: String,
        /// The key, as `restore.trusted_signers` takes it.
        key: String,
    },
    /// Bytes differ from what a signed manifest says of them.
    #[error("{object} is damaged: digest {actual}, expected {expected}")]
    DigestMismatch {
        /// The object.
        object: String,
        /// The digest in the manifest.
        expected: Digest,
        /// The digest of the bytes found.
        actual: Digest,
    },
    /// A size differs from what a signed manifest says.
    #[error("{object} is damaged: {actual} bytes, expected {expected}")]
    SizeMismatch {
        /// The object.
        object: String,
        /// The size in the manifest, in bytes.
        expected: u64,
        /// The size found, in bytes.
        actual: u64,
    },
    /// None of the identities given opens the backup.
    #[error("no matching identity: the backup was sealed to {}", recipients.join(", "))]
    NoMatchingIdentity {
        /// Fingerprints of the recipients in the manifest.
        recipients: Vec<String>,
    },
    /// An identity is needed and none was given.
    #[error("an age identity is needed to open this backup (sealed to {})", recipients.join(", "))]
    IdentityNeeded {
        /// Fingerprints of the recipients in the manifest.
        recipients: Vec<String>,
    },
    /// The sealed bytes do not decrypt.
    #[error("{object} does not decrypt: {reason}")]
    Decrypt {
        /// The object.
        object: String,
        /// age's reason.
        reason: String,
    },
    /// Sealing failed.
    #[error("cannot seal: {reason}")]
    Seal {
        /// age's or zstd's reason.
        reason: String,
    },
    /// Encryption is neither configured nor switched off explicitly.
    #[error(
        "no recipient to encrypt to; give at least one age or ssh recipient, \
         or say `encryption: none` explicitly"
    )]
    NoRecipients,
    /// A key, a recipient or an identity cannot be used.
    #[error("key {what}: {reason}")]
    Key {
        /// Which key: a file or a recipient (never a secret).
        what: String,
        /// Why it cannot be used.
        reason: String,
    },
    /// The source could not be reached or answered an error.
    #[error("source {endpoint}: {reason}")]
    Source {
        /// Which endpoint.
        endpoint: String,
        /// What it answered.
        reason: String,
    },
    /// No member of the source can be used.
    #[error("no usable member in the source: {}", reasons.join("; "))]
    NoUsableMember {
        /// One reason for each endpoint.
        reasons: Vec<String>,
    },
    /// The source sent no bytes for too long.
    #[error("source {endpoint} sent no bytes for {} s", idle.as_secs())]
    Stalled {
        /// Which endpoint.
        endpoint: String,
        /// How long nothing came.
        idle: Duration,
    },
    /// The snapshot stream broke its own rules (digest, size, remaining bytes).
    #[error("snapshot stream from {endpoint}: {reason}")]
    BadStream {
        /// Which endpoint.
        endpoint: String,
        /// Which rule.
        reason: String,
    },
    /// The content of a snapshot cannot be read.
    #[error("snapshot content: {reason}")]
    Content {
        /// What the reader of etcd files said.
        reason: String,
    },
    /// The source is another cluster than the one whose backups are in the vault.
    #[error(
        "the source is cluster {found}, the vault's newest backup is of cluster {expected}; \
         accept the new cluster explicitly if this is meant"
    )]
    ClusterChanged {
        /// The cluster id in the newest manifest.
        expected: String,
        /// The cluster id of the source now.
        found: String,
    },
    /// Another appliance has taken over the source's backups since this one claimed them.
    #[error("generation {ours} of `{cluster}` was taken over by {successor}")]
    Replaced {
        /// The cluster.
        cluster: ClusterName,
        /// The generation this run writes.
        ours: Generation,
        /// Who took over.
        successor: Box<Successor>,
    },
    /// Another member of the source's cluster has become the one that backs it up.
    #[error("this process is no longer the one that backs up `{cluster}`: {reason}")]
    OfficeLost {
        /// The cluster.
        cluster: ClusterName,
        /// What was found.
        reason: String,
    },
    /// Another appliance committed a backup while this one was being taken.
    #[error(
        "place {sequence} of `{cluster}` was taken meanwhile by {by}; this backup was given up"
    )]
    Overtaken {
        /// The cluster.
        cluster: ClusterName,
        /// The place in the chain.
        sequence: Sequence,
        /// Who took it, as far as the object there says.
        by: String,
    },
    /// The vault's history is not whole, so nothing may be appended or pruned.
    #[error("the vault's history needs attention before this: {reason}")]
    HistoryDamaged {
        /// What is wrong with it.
        reason: String,
    },
    /// No backup fits the choice made.
    #[error("no backup to choose: {reason}")]
    NothingToRestore {
        /// Which backups there are and why none fits.
        reason: String,
    },
    /// No backup and the changes after it lead to the state asked for.
    #[error("{what} cannot be restored: {reason}")]
    Unreachable {
        /// A revision or a time.
        what: String,
        /// The newest revision before it that can be restored.
        nearest: Option<i64>,
        /// The damage that is in the way; none: it was never captured.
        flaw: Option<Box<Flaw>>,
        /// What there is instead.
        reason: String,
    },
    /// The restore target is there already.
    #[error("the target {} exists; a restore never touches an existing path", path.display())]
    TargetExists {
        /// The path.
        path: PathBuf,
    },
    /// The target cannot be used.
    #[error("the target {}: {reason}", path.display())]
    BadTarget {
        /// The path.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Not enough free space for the restore.
    #[error("{} has {free} bytes free, the restore needs {needed}", path.display())]
    NotEnoughSpace {
        /// The folder.
        path: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// The request contradicts itself or a limit.
    #[error("refused: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// The revision after the bump would not fit.
    #[error(
        "revision {revision} plus {bump} is beyond what a cluster can hold; choose a smaller bump"
    )]
    BumpOverflow {
        /// The revision in the backup.
        revision: i64,
        /// The bump asked for.
        bump: i64,
    },
    /// What was rebuilt is not what the backup holds.
    #[error("the rebuilt data differs from the backup: {reason}")]
    RebuildMismatch {
        /// What differs.
        reason: String,
    },
    /// The backup in the vault is damaged.
    #[error(
        "the backup is damaged: {}",
        flaws.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    Damaged {
        /// Everything that was found.
        flaws: Vec<Flaw>,
    },
    /// The changes of a source can no longer be followed without a gap.
    #[error("the run of changes ends at revision {at}: {reason}; only a new backup can follow it")]
    CaptureBroken {
        /// The newest revision captured.
        at: i64,
        /// Why what comes next is lost.
        reason: String,
    },
    /// A worker task was lost.
    #[error("a worker task ended early: {reason}")]
    Worker {
        /// What the runtime said.
        reason: String,
    },
}

/// An appliance that took over, as far as its claim or its newest backup tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Successor {
    /// The generation it writes.
    pub generation: Generation,
    /// Its newest backup, when it has taken one.
    pub id: Option<SnapshotId>,
    /// When that was begun, or else when it took over.
    pub started: DateTime<Utc>,
    /// The program that wrote it.
    pub writer: String,
    /// Fingerprint of the key that signed it.
    pub key: String,
}

impl fmt::Display for Successor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            generation,
            started,
            writer,
            key,
            ..
        } = self;
        write!(f, "generation {generation}: ")?;
        match self.id {
            Some(id) => write!(f, "backup {id} of {started}, written")?,
            None => write!(f, "claimed at {started}, no backup yet,")?,
        }
        write!(f, " by {writer} with the signing key {key}")
    }
}

impl Error {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => ErrorKind::NotFound,
                io::ErrorKind::AlreadyExists => ErrorKind::Conflict,
                kind => by_system(kind),
            },
            Self::Vault { source, .. } => match **source {
                object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. } => ErrorKind::Denied,
                object_store::Error::NotSupported { .. }
                | object_store::Error::NotImplemented { .. }
                | object_store::Error::InvalidPath { .. } => ErrorKind::Invalid,
                // A bucket that is not there; objects that are not there have errors of their own.
                object_store::Error::NotFound { .. } => ErrorKind::NotFound,
                _ => system_reason(source.as_ref()).map_or(ErrorKind::Unavailable, by_system),
            },
            Self::NotAVault { .. }
            | Self::ObjectMissing { .. }
            | Self::NothingToRestore { .. }
            | Self::Unreachable { flaw: None, .. } => ErrorKind::NotFound,
            Self::ObjectExists { .. }
            | Self::TargetExists { .. }
            | Self::ClusterChanged { .. }
            | Self::Replaced { .. }
            | Self::OfficeLost { .. }
            | Self::Overtaken { .. }
            | Self::CaptureBroken { .. } => ErrorKind::Conflict,
            Self::VaultSettings { .. }
            | Self::UnsupportedVersion { .. }
            | Self::NoRecipients
            | Self::Key { .. }
            | Self::BadTarget { .. }
            | Self::Refused { .. }
            | Self::BumpOverflow { .. } => ErrorKind::Invalid,
            Self::ClockSkewed { .. }
            | Self::NoMatchingIdentity { .. }
            | Self::IdentityNeeded { .. } => ErrorKind::Denied,
            Self::TooLarge { .. } | Self::NotEnoughSpace { .. } | Self::NoRoomToWait { .. } => {
                ErrorKind::Exhausted
            }
            Self::MarkerLost { .. }
            | Self::Malformed { .. }
            | Self::Signature { .. }
            | Self::Stranger { .. }
            | Self::DigestMismatch { .. }
            | Self::SizeMismatch { .. }
            | Self::Decrypt { .. }
            | Self::Content { .. }
            | Self::HistoryDamaged { .. }
            | Self::Unreachable { .. }
            | Self::Damaged { .. }
            | Self::RebuildMismatch { .. } => ErrorKind::Corrupt,
            Self::Source { .. }
            | Self::NoUsableMember { .. }
            | Self::Stalled { .. }
            | Self::BadStream { .. } => ErrorKind::Unavailable,
            Self::Seal { .. } | Self::Worker { .. } => ErrorKind::Internal,
        }
    }

    /// For `map_err` on file operations.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    /// A broken rule of a format.
    pub(crate) fn malformed(object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Malformed {
            object: object.into(),
            reason: reason.into(),
        }
    }
}

/// What the operating system's reason means to a caller.
fn by_system(kind: io::ErrorKind) -> ErrorKind {
    match kind {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Exhausted,
        _ => ErrorKind::Unavailable,
    }
}

/// The operating system's reason at the bottom of it, where there is one.
fn system_reason(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let reasons = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
    reasons.last().map(io::Error::kind)
}

impl From<tokio::task::JoinError> for Error {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Worker {
            reason: error.to_string(),
        }
    }
}
