//! The one error type of this crate.
//!
//! Variants without data are what a client of etcd sees; their gRPC code and text live in one
//! table (`api/status.rs`). Variants with data are ours: the disk, the format, the peers.

use std::io;
use std::path::PathBuf;

/// An error with what caused it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// What a caller can do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request itself is wrong; repeating it cannot help.
    Invalid,
    /// What the request names does not exist.
    NotFound,
    /// The request contradicts the present state.
    Conflict,
    /// The caller may not do this.
    Denied,
    /// A limit was reached: space, queue, rate.
    Exhausted,
    /// Not now; repeating it later or elsewhere may work.
    Unavailable,
    /// Stored data is damaged. Fatal to the member, never retried.
    Corrupt,
    /// A fault of the disk or of this program. Fatal to the member when it came from a write.
    Internal,
}

/// Everything that can go wrong in the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request without a key.
    #[error("key is not provided")]
    EmptyKey,
    /// `ignore_value` or `ignore_lease` for a key that does not exist.
    #[error("key not found")]
    KeyNotFound,
    /// `ignore_value` together with a value.
    #[error("value is provided")]
    ValueProvided,
    /// `ignore_lease` together with a lease.
    #[error("lease is provided")]
    LeaseProvided,
    /// More operations in a transaction than allowed.
    #[error("too many operations in txn request")]
    TooManyOps,
    /// A transaction that writes one key twice.
    #[error("duplicate key given in txn request")]
    DuplicateKey,
    /// A client of an API version we do not speak.
    #[error("invalid client api version")]
    InvalidClientApiVersion,
    /// A sort order or target that does not exist.
    #[error("invalid sort option")]
    InvalidSortOption,
    /// The revision asked for has been compacted.
    #[error("required revision has been compacted")]
    Compacted,
    /// The revision asked for is not there yet.
    #[error("required revision is a future revision")]
    FutureRevision,
    /// The space quota is used up, or the NOSPACE alarm is on.
    #[error("database space exceeded")]
    NoSpace,
    /// The rewritten state file does not fit on the disk beside the old one.
    #[error(
        "the rewritten file needs up to {needed_bytes} bytes of disk beside the old one, and \
         {free_bytes} are free; nothing was changed: compact first, or make room on the disk"
    )]
    NoSpaceToRewrite {
        /// The most that it may take, in bytes.
        needed_bytes: u64,
        /// What is free for it, in bytes.
        free_bytes: u64,
    },
    /// No lease has this id.
    #[error("requested lease not found")]
    LeaseNotFound,
    /// A lease with this id is there already.
    #[error("lease already exists")]
    LeaseExists,
    /// A time to live over 9,000,000,000 seconds.
    #[error("too large lease TTL")]
    LeaseTtlTooLarge,
    /// The watch was cancelled.
    #[error("watch canceled")]
    WatchCanceled,
    /// A member with this id is there already.
    #[error("member ID already exist")]
    MemberExists,
    /// A member with one of these peer URLs is there already.
    #[error("peer URLs already exists")]
    PeerUrlsExist,
    /// The change would leave too few started members.
    #[error("re-configuration failed due to not enough started members")]
    NotEnoughStartedMembers,
    /// Member URLs that cannot be parsed or used.
    #[error("given member URLs are invalid")]
    MemberUrlsInvalid,
    /// No member has this id.
    #[error("member not found")]
    MemberNotFound,
    /// Only a learner can be promoted.
    #[error("can only promote a learner member")]
    MemberNotLearner,
    /// The learner is too far behind to be promoted.
    #[error("can only promote a learner member which is in sync with leader")]
    LearnerNotReady,
    /// More learners than allowed.
    #[error("too many learner members in cluster")]
    TooManyLearners,
    /// The data directory of a member that has been removed.
    #[error(
        "the member has been permanently removed from the cluster: {} holds what is left of member \
         {member} of cluster {cluster}; to bring it back, add a member (`etcdctl member add`) and \
         start it with an empty --data-dir", path.display()
    )]
    MemberRemoved {
        /// The data directory.
        path: PathBuf,
        /// The member's id, in hexadecimal.
        member: String,
        /// The cluster's id, in hexadecimal.
        cluster: String,
    },
    /// More voting members than a cluster may have.
    #[error("a cluster has at most 7 voting members: remove one first")]
    TooManyMembers,
    /// The peer belongs to another cluster.
    #[error("cluster ID mismatch")]
    ClusterIdMismatch,
    /// The request is larger than the limit.
    #[error("request is too large")]
    RequestTooLarge,
    /// Too many requests wait to be applied.
    #[error("too many requests")]
    TooManyRequests,
    /// Authentication is not enabled.
    #[error("authentication is not enabled")]
    AuthNotEnabled,
    /// The token is unknown or expired.
    #[error("invalid auth token")]
    InvalidAuthToken,
    /// The user may not do this.
    #[error("permission denied")]
    PermissionDenied,
    /// The data has authentication enabled, which this version does not enforce: refuse everything.
    #[error(
        "authentication is enabled in the data, and this version cannot enforce it: serve the data \
         with etcd (`holdfast restore --target etcd`)"
    )]
    AuthUnsupported,
    /// No leader is known.
    #[error("no leader")]
    NoLeader,
    /// This member is not the leader.
    #[error("not leader")]
    NotLeader,
    /// The leader changed while the request was under way.
    #[error("leader changed")]
    LeaderChanged,
    /// The cluster version does not have this ability.
    #[error("not capable")]
    NotCapable,
    /// The member is stopped.
    #[error("server stopped")]
    Stopped,
    /// The request took too long.
    #[error("request timed out")]
    Timeout,
    /// The request took too long, and a leader was lost meanwhile.
    #[error("request timed out, possibly due to previous leader failure")]
    TimeoutDueToLeaderFail,
    /// The request took too long, and a peer was unreachable meanwhile.
    #[error("request timed out, possibly due to connection lost")]
    TimeoutDueToConnectionLost,
    /// The applied position did not reach the read index in time.
    #[error("request timed out, waiting for the applied index took too long")]
    TimeoutWaitApplied,
    /// The leader could not be handed over in time.
    #[error("request timed out, leader transfer took too long")]
    TimeoutLeaderTransfer,
    /// Too few members are healthy.
    #[error("unhealthy cluster")]
    Unhealthy,
    /// The CORRUPT alarm is on.
    #[error("corrupt cluster")]
    Corrupt,
    /// A learner does not answer this call.
    #[error("rpc not supported for learner")]
    NotSupportedForLearner,
    /// The leader cannot be handed to this member.
    #[error("bad leader transferee")]
    BadLeaderTransferee,
    /// The caller gave up.
    #[error("request canceled")]
    Canceled,
    /// The time was over before a leader could be asked: nothing was done.
    #[error("context deadline exceeded")]
    DeadlineExceeded,
    /// A call that this version does not answer.
    #[error("{what} is not implemented")]
    Unimplemented {
        /// The call.
        what: &'static str,
    },
    /// An operation of the operating system failed.
    #[error("cannot {doing}")]
    Io {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// The system's own error.
        #[source]
        source: io::Error,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {url}")]
    Listen {
        /// The address, as it was given.
        url: String,
        /// The system's own error.
        #[source]
        source: io::Error,
    },
    /// The store file answered with an error.
    #[error("cannot {doing} the store file")]
    Backend {
        /// What was being done, as a verb.
        doing: &'static str,
        /// The backend's own error.
        #[source]
        source: Box<redb::Error>,
    },
    /// The backend panicked on what it read: the file is damaged.
    #[error("the store file made its reader panic while it was to {doing}: {message}")]
    BackendPanic {
        /// What was being done, as a verb.
        doing: &'static str,
        /// The panic's message.
        message: String,
    },
    /// An earlier write failed: this handle accepts nothing more, the file must be reopened.
    #[error("the store file is closed after an earlier failure")]
    Poisoned,
    /// A stored record is damaged.
    #[error("damaged record in table {table}, key {key}: {reason}")]
    Record {
        /// The table's name.
        table: &'static str,
        /// The record's key, in hexadecimal.
        key: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A database file in etcd's format is damaged or cannot be read.
    #[error("the database file cannot be used")]
    DatabaseFile(#[from] crate::bolt::Error),
    /// A file that is not what it should be.
    #[error("{what} has a wrong format: {reason}")]
    Format {
        /// The file or the part of it.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process holds the data directory.
    #[error("{} is in use by another process", path.display())]
    Locked {
        /// What is locked.
        path: PathBuf,
        /// The process that holds it, where known.
        holder: Option<u32>,
    },
    /// An option that cannot be used.
    #[error("option {option}: {reason}")]
    Option {
        /// The option's name, as on the command line.
        option: &'static str,
        /// Why it cannot be used.
        reason: String,
    },
}

impl Error {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::EmptyKey
            | Self::KeyNotFound
            | Self::ValueProvided
            | Self::LeaseProvided
            | Self::TooManyOps
            | Self::DuplicateKey
            | Self::InvalidClientApiVersion
            | Self::InvalidSortOption
            | Self::Compacted
            | Self::FutureRevision
            | Self::LeaseTtlTooLarge
            | Self::MemberUrlsInvalid
            | Self::RequestTooLarge
            | Self::NotSupportedForLearner
            | Self::Unimplemented { .. }
            | Self::Option { .. } => ErrorKind::Invalid,
            Self::LeaseNotFound | Self::MemberNotFound => ErrorKind::NotFound,
            Self::LeaseExists
            | Self::MemberExists
            | Self::PeerUrlsExist
            | Self::NotEnoughStartedMembers
            | Self::MemberNotLearner
            | Self::LearnerNotReady
            | Self::TooManyLearners
            | Self::TooManyMembers
            | Self::MemberRemoved { .. }
            | Self::ClusterIdMismatch
            | Self::BadLeaderTransferee
            | Self::NotCapable
            | Self::AuthNotEnabled
            | Self::Locked { .. } => ErrorKind::Conflict,
            Self::InvalidAuthToken | Self::PermissionDenied | Self::AuthUnsupported => {
                ErrorKind::Denied
            }
            Self::NoSpace | Self::NoSpaceToRewrite { .. } | Self::TooManyRequests => {
                ErrorKind::Exhausted
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                ErrorKind::Exhausted
            }
            Self::WatchCanceled
            | Self::NoLeader
            | Self::NotLeader
            | Self::LeaderChanged
            | Self::Stopped
            | Self::Timeout
            | Self::TimeoutDueToLeaderFail
            | Self::TimeoutDueToConnectionLost
            | Self::TimeoutWaitApplied
            | Self::TimeoutLeaderTransfer
            | Self::Unhealthy
            | Self::Canceled
            | Self::DeadlineExceeded => ErrorKind::Unavailable,
            Self::Corrupt
            | Self::BackendPanic { .. }
            | Self::Record { .. }
            | Self::Format { .. } => ErrorKind::Corrupt,
            Self::DatabaseFile(source) if source.is_corrupt() => ErrorKind::Corrupt,
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                ErrorKind::Conflict
            }
            Self::DatabaseFile(_)
            | Self::Backend { .. }
            | Self::Io { .. }
            | Self::Listen { .. }
            | Self::Poisoned => ErrorKind::Internal,
        }
    }
}
