//! The replicated command: what one log entry asks of every member.
//!
//! Format page: `docs/formats/command.md`. Everything that must not differ between members (ids,
//! times) is decided by the proposer and stands in the command.

pub use holdfast_proto::store::v1::command::Request;
pub use holdfast_proto::store::v1::{
    ClusterVersion, Command, LeaseCheckpoint, LeaseCheckpoints, MemberAttributes,
};

/// A short name of what `request` does, for logs and metrics.
pub fn request_name(request: &Request) -> &'static str {
    match request {
        Request::Put(_) => "put",
        Request::DeleteRange(_) => "delete_range",
        Request::Txn(_) => "txn",
        Request::Compact(_) => "compact",
        Request::LeaseGrant(_) => "lease_grant",
        Request::LeaseRevoke(_) => "lease_revoke",
        Request::LeaseCheckpoint(_) => "lease_checkpoint",
        Request::Alarm(_) => "alarm",
        Request::MemberAttributes(_) => "member_attributes",
        Request::ClusterVersion(_) => "cluster_version",
    }
}

/// Version of the commands in the log: fields may be added, never changed.
pub const COMMAND_VERSION: u32 = 1;
