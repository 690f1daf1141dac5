//! From an [`Error`] to the gRPC code and text that etcd answers with. Clients match on the text,
//! so this table is the only place that holds it; `store/tests/golden/grpc_errors.txt` pins it.

use tonic::{Code, Status};

use crate::error::{Error, ErrorKind};

/// The status a client gets for an error.
pub fn status(error: &Error) -> Status {
    match known(error) {
        Some((code, text)) => Status::new(code, text),
        None => internal(error),
    }
}

/// etcd's code and text, for errors that etcd has.
fn known(error: &Error) -> Option<(Code, &'static str)> {
    request(error)
        .or_else(|| cluster(error))
        .or_else(|| operation(error))
}

/// Errors of a request by itself.
fn request(error: &Error) -> Option<(Code, &'static str)> {
    Some(match error {
        Error::EmptyKey => (Code::InvalidArgument, "etcdserver: key is not provided"),
        Error::KeyNotFound => (Code::InvalidArgument, "etcdserver: key not found"),
        Error::ValueProvided => (Code::InvalidArgument, "etcdserver: value is provided"),
        Error::LeaseProvided => (Code::InvalidArgument, "etcdserver: lease is provided"),
        Error::TooManyOps => (
            Code::InvalidArgument,
            "etcdserver: too many operations in txn request",
        ),
        Error::DuplicateKey => (
            Code::InvalidArgument,
            "etcdserver: duplicate key given in txn request",
        ),
        Error::InvalidClientApiVersion => (
            Code::InvalidArgument,
            "etcdserver: invalid client api version",
        ),
        Error::InvalidSortOption => (Code::InvalidArgument, "etcdserver: invalid sort option"),
        Error::Compacted => (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted",
        ),
        Error::FutureRevision => (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision is a future revision",
        ),
        Error::NoSpace => (
            Code::ResourceExhausted,
            "etcdserver: mvcc: database space exceeded",
        ),
        Error::LeaseNotFound => (Code::NotFound, "etcdserver: requested lease not found"),
        Error::LeaseExists => (Code::FailedPrecondition, "etcdserver: lease already exists"),
        Error::LeaseTtlTooLarge => (Code::OutOfRange, "etcdserver: too large lease TTL"),
        Error::WatchCanceled => (Code::Cancelled, "etcdserver: watch canceled"),
        Error::RequestTooLarge => (Code::InvalidArgument, "etcdserver: request is too large"),
        Error::TooManyRequests => (Code::ResourceExhausted, "etcdserver: too many requests"),
        Error::AuthNotEnabled => (
            Code::FailedPrecondition,
            "etcdserver: authentication is not enabled",
        ),
        Error::InvalidAuthToken => (Code::Unauthenticated, "etcdserver: invalid auth token"),
        Error::PermissionDenied => (Code::PermissionDenied, "etcdserver: permission denied"),
        _ => return None,
    })
}

/// Errors of the membership.
fn cluster(error: &Error) -> Option<(Code, &'static str)> {
    Some(match error {
        Error::MemberExists => (
            Code::FailedPrecondition,
            "etcdserver: member ID already exist",
        ),
        Error::PeerUrlsExist => (
            Code::FailedPrecondition,
            "etcdserver: Peer URLs already exists",
        ),
        Error::NotEnoughStartedMembers => (
            Code::FailedPrecondition,
            "etcdserver: re-configuration failed due to not enough started members",
        ),
        Error::MemberUrlsInvalid => (
            Code::InvalidArgument,
            "etcdserver: given member URLs are invalid",
        ),
        Error::MemberNotFound => (Code::NotFound, "etcdserver: member not found"),
        Error::MemberNotLearner => (
            Code::FailedPrecondition,
            "etcdserver: can only promote a learner member",
        ),
        Error::LearnerNotReady => (
            Code::FailedPrecondition,
            "etcdserver: can only promote a learner member which is in sync with leader",
        ),
        Error::TooManyLearners => (
            Code::FailedPrecondition,
            "etcdserver: too many learner members in cluster",
        ),
        Error::ClusterIdMismatch => (Code::FailedPrecondition, "etcdserver: cluster ID mismatch"),
        Error::NotSupportedForLearner => (
            Code::FailedPrecondition,
            "etcdserver: rpc not supported for learner",
        ),
        Error::BadLeaderTransferee => (
            Code::FailedPrecondition,
            "etcdserver: bad leader transferee",
        ),
        _ => return None,
    })
}

/// Errors of the state a member or the cluster is in.
fn operation(error: &Error) -> Option<(Code, &'static str)> {
    Some(match error {
        Error::NoLeader => (Code::Unavailable, "etcdserver: no leader"),
        Error::NotLeader => (Code::FailedPrecondition, "etcdserver: not leader"),
        Error::LeaderChanged => (Code::Unavailable, "etcdserver: leader changed"),
        Error::NotCapable => (Code::FailedPrecondition, "etcdserver: not capable"),
        Error::Stopped => (Code::Unavailable, "etcdserver: server stopped"),
        Error::Timeout => (Code::Unavailable, "etcdserver: request timed out"),
        Error::TimeoutDueToLeaderFail => (
            Code::Unavailable,
            "etcdserver: request timed out, possibly due to previous leader failure",
        ),
        Error::TimeoutDueToConnectionLost => (
            Code::Unavailable,
            "etcdserver: request timed out, possibly due to connection lost",
        ),
        Error::TimeoutWaitApplied => (
            Code::Unavailable,
            "etcdserver: request timed out, waiting for the applied index took too long",
        ),
        // etcd forgot this one in its table.
        Error::TimeoutLeaderTransfer => (
            Code::Unknown,
            "etcdserver: request timed out, leader transfer took too long",
        ),
        Error::Unhealthy => (Code::Unavailable, "etcdserver: unhealthy cluster"),
        Error::Corrupt => (Code::DataLoss, "etcdserver: corrupt cluster"),
        Error::Canceled => (Code::Cancelled, "etcdserver: request canceled"),
        // etcd leaves this one to gRPC, whose text has no prefix.
        Error::DeadlineExceeded => (Code::DeadlineExceeded, "context deadline exceeded"),
        _ => return None,
    })
}

/// Errors etcd does not have: the disk, the format, what this version does not do.
fn internal(error: &Error) -> Status {
    let code = match error {
        Error::Unimplemented { .. } => Code::Unimplemented,
        Error::AuthUnsupported => Code::FailedPrecondition,
        other => match other.kind() {
            ErrorKind::Corrupt => Code::DataLoss,
            ErrorKind::Exhausted => Code::ResourceExhausted,
            ErrorKind::Unavailable => Code::Unavailable,
            ErrorKind::Invalid => Code::InvalidArgument,
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Conflict => Code::FailedPrecondition,
            ErrorKind::Denied => Code::PermissionDenied,
            ErrorKind::Internal => Code::Internal,
        },
    };
    // A full disk is etcd's "no space" to a client, whatever the system calls it.
    let is_rewrite = matches!(error, Error::NoSpaceToRewrite { .. });
    if code == Code::ResourceExhausted && !is_rewrite {
        return status(&Error::NoSpace);
    }
    Status::new(code, format!("etcdserver: {error}"))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use crate::error::Error;

    #[test]
    fn a_full_disk_is_no_space_and_damage_is_data_loss() {
        let full = Error::Io {
            doing: "append to the log",
            source: std::io::Error::from(std::io::ErrorKind::StorageFull),
        };
        assert_eq!(
            super::status(&full).message(),
            "etcdserver: mvcc: database space exceeded"
        );
        let damage = Error::Record {
            table: "key",
            key: "00".to_owned(),
            reason: "checksum",
        };
        assert_eq!(super::status(&damage).code(), Code::DataLoss);
        let call = Error::Unimplemented { what: "AuthEnable" };
        assert_eq!(super::status(&call).code(), Code::Unimplemented);
    }
}
