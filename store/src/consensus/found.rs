//! How a group comes to be: the membership of a new one, and its log when the state came first.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use openraft::storage::RaftLogStorage as _;

use super::log::{LogIdentity, LogOptions, RaftLog};
use super::machine::{to_log_id, to_membership};
use super::types::{Membership, PeerNode, StoredMembership, Vote};
use crate::apply::{self, LogPosition};
use crate::datadir::Layout;
use crate::datadir::bootstrap::ClusterIds;
use crate::datadir::identity::MemberId;
use crate::error::Error;

/// The membership of a new group, decided at `at` in its log.
pub(crate) fn membership(
    members: &[(MemberId, Vec<String>)],
    at: Option<LogPosition>,
) -> Result<apply::Membership, Error> {
    let voters: BTreeSet<u64> = members.iter().map(|(id, _)| id.0).collect();
    let membership = Membership::new(vec![voters], nodes(members))
        .map_err(|error| failed(io::Error::other(error)))?;
    to_membership(&StoredMembership::new(at.map(to_log_id), membership)).map_err(failed)
}

/// The members as openraft names them.
pub(crate) fn nodes(members: &[(MemberId, Vec<String>)]) -> BTreeMap<u64, PeerNode> {
    members
        .iter()
        .map(|(id, urls)| {
            (
                id.0,
                PeerNode {
                    peer_urls: urls.clone(),
                },
            )
        })
        .collect()
}

/// Makes the log of a member whose state already covers everything up to `at`.
pub(crate) fn begin_log(layout: &Layout, ids: &ClusterIds, at: LogPosition) -> Result<(), Error> {
    let identity = LogIdentity {
        cluster: ids.cluster.0,
        member: ids.member.0,
    };
    let options = LogOptions::new(layout.log(), identity);
    let mut log = RaftLog::open(&options).map_err(|error| failed(io::Error::other(error)))?;
    futures::executor::block_on(async {
        // A vote below the state's term would let a leader of that term be elected twice.
        log.save_vote(&Vote::new(at.term, ids.member.0)).await?;
        log.purge(to_log_id(at)).await
    })
    .map_err(failed)
}

fn failed(source: io::Error) -> Error {
    Error::Io {
        doing: "found the raft group",
        source,
    }
}
