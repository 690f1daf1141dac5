//! The error table against etcd's own list.

use holdfast_store::Error;
use holdfast_store::api::status;

/// etcd's codes and texts, one a line, as `Code: text`.
const ETCD: &str = include_str!("../golden/grpc_errors.txt");

/// Errors of calls this version does not answer; everything else of the list must be there.
const NOT_ANSWERED: &[&str] = &[
    // In the list, and never sent: `a_write_that_no_leader_took_is_told_as_etcd_tells_it`.
    "context deadline exceeded",
    "root user",
    "user name",
    "role name",
    "authentication failed",
    "permission not given",
    "role is not granted",
    "permission is not granted",
    "invalid auth management",
    "revision of auth store",
    "downgrade",
];

fn every_error_etcd_has() -> Vec<Error> {
    vec![
        Error::EmptyKey,
        Error::KeyNotFound,
        Error::ValueProvided,
        Error::LeaseProvided,
        Error::TooManyOps,
        Error::DuplicateKey,
        Error::InvalidClientApiVersion,
        Error::InvalidSortOption,
        Error::Compacted,
        Error::FutureRevision,
        Error::NoSpace,
        Error::LeaseNotFound,
        Error::LeaseExists,
        Error::LeaseTtlTooLarge,
        Error::WatchCanceled,
        Error::MemberExists,
        Error::PeerUrlsExist,
        Error::NotEnoughStartedMembers,
        Error::MemberUrlsInvalid,
        Error::MemberNotFound,
        Error::MemberNotLearner,
        Error::LearnerNotReady,
        Error::TooManyLearners,
        Error::ClusterIdMismatch,
        Error::RequestTooLarge,
        Error::TooManyRequests,
        Error::PermissionDenied,
        Error::AuthNotEnabled,
        Error::InvalidAuthToken,
        Error::NoLeader,
        Error::NotLeader,
        Error::LeaderChanged,
        Error::NotCapable,
        Error::Stopped,
        Error::Timeout,
        Error::TimeoutDueToLeaderFail,
        Error::TimeoutDueToConnectionLost,
        Error::TimeoutWaitApplied,
        Error::Unhealthy,
        Error::Corrupt,
        Error::NotSupportedForLearner,
        Error::BadLeaderTransferee,
        Error::Canceled,
    ]
}

#[test]
fn every_error_has_etcds_code_and_text() {
    let mut wanted: Vec<&str> = ETCD
        .lines()
        .filter(|line| !NOT_ANSWERED.iter().any(|text| line.contains(text)))
        .collect();
    wanted.sort_unstable();
    let mut found: Vec<String> = every_error_etcd_has()
        .iter()
        .map(|error| {
            let status = status(error);
            // Go spells this code with one "l".
            let code = format!("{:?}", status.code()).replace("Cancelled", "Canceled");
            format!("{code}: {}", status.message())
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, wanted);
}

#[test]
fn a_write_that_no_leader_took_is_told_as_etcd_tells_it() {
    let told = status(&Error::DeadlineExceeded);
    assert_eq!(told.code(), tonic::Code::DeadlineExceeded);
    assert_eq!(told.message(), "context deadline exceeded");
}
