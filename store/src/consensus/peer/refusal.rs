//! The errors that a leader answers a member with, so that its client sees the same.

use holdfast_proto::peer::v1::Refusal;

use crate::error::Error;

/// Each error that crosses, and what it becomes on the other side.
const TABLE: [(Refusal, fn() -> Error); 27] = [
    (Refusal::NotLeader, || Error::NotLeader),
    (Refusal::NoLeader, || Error::NoLeader),
    (Refusal::LeaderChanged, || Error::LeaderChanged),
    (Refusal::Stopped, || Error::Stopped),
    (Refusal::Timeout, || Error::Timeout),
    (Refusal::TimeoutLeaderFail, || Error::TimeoutDueToLeaderFail),
    (Refusal::TimeoutConnectionLost, || {
        Error::TimeoutDueToConnectionLost
    }),
    (Refusal::TimeoutWaitApplied, || Error::TimeoutWaitApplied),
    (Refusal::TooManyRequests, || Error::TooManyRequests),
    (Refusal::NoSpace, || Error::NoSpace),
    (Refusal::Corrupt, || Error::Corrupt),
    (Refusal::Unhealthy, || Error::Unhealthy),
    (Refusal::LeaseNotFound, || Error::LeaseNotFound),
    (Refusal::MemberExists, || Error::MemberExists),
    (Refusal::PeerUrlsExist, || Error::PeerUrlsExist),
    (Refusal::NotEnoughStartedMembers, || {
        Error::NotEnoughStartedMembers
    }),
    (Refusal::MemberUrlsInvalid, || Error::MemberUrlsInvalid),
    (Refusal::MemberNotFound, || Error::MemberNotFound),
    (Refusal::MemberNotLearner, || Error::MemberNotLearner),
    (Refusal::LearnerNotReady, || Error::LearnerNotReady),
    (Refusal::TooManyMembers, || Error::TooManyMembers),
    (Refusal::TooManyLearners, || Error::TooManyLearners),
    (Refusal::BadLeaderTransferee, || Error::BadLeaderTransferee),
    (Refusal::Compacted, || Error::Compacted),
    (Refusal::FutureRevision, || Error::FutureRevision),
    (Refusal::RequestTooLarge, || Error::RequestTooLarge),
    (Refusal::AuthUnsupported, || Error::AuthUnsupported),
];

/// What crosses for `error`; what a peer need not know in detail is logged here.
pub(crate) fn to_refusal(error: &Error) -> Refusal {
    let kind = std::mem::discriminant(error);
    let known = TABLE
        .iter()
        .find(|(_, make)| std::mem::discriminant(&make()) == kind);
    if let Some((refusal, _)) = known {
        return *refusal;
    }
    tracing::warn!(%error, "a call of a peer failed");
    Refusal::Internal
}

/// The error that `refusal` stands for.
pub(crate) fn from_refusal(refusal: Refusal) -> Error {
    let known = TABLE.iter().find(|(known, _)| *known == refusal);
    known.map_or_else(
        || Error::Io {
            doing: "do what the leader was asked for; see its log",
            source: std::io::Error::other("the leader failed"),
        },
        |(_, make)| make(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_crosses_and_stays_what_it_was() {
        for (refusal, make) in TABLE {
            assert_eq!(to_refusal(&make()), refusal);
            assert_eq!(from_refusal(refusal).to_string(), make().to_string());
        }
        assert_eq!(to_refusal(&Error::Poisoned), Refusal::Internal);
    }
}
