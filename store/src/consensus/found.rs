//! How a group comes to be: the membership of a new one, and its log when the state came first.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use openraft::RaftLogReader as _;
use openraft::storage::{RaftLogStorage as _, RaftLogStorageExt as _};

use super::log::{LogIdentity, LogOptions, RaftLog};
use super::machine::{to_log_id, to_membership};
use super::types::{
    LogEntry, Membership, Payload, PeerNode, StoredMembership, Vote, log_id, term_of,
};
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
                    ..PeerNode::default()
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

/// Makes member `own` the only one of its group, with everything its log has.
///
/// The entry that says so is of a new term: no other member can have one in its place. It need
/// not be committed first, because a membership counts from the moment it is in the log.
pub(crate) async fn leave_alone(
    log: &mut RaftLog,
    applied: Option<LogPosition>,
    own: MemberId,
    peer_urls: &[String],
) -> io::Result<()> {
    let mut known = log.get_log_state().await?.last_log_id;
    let applied = applied.map(to_log_id);
    if let Some(applied) = applied
        && known < Some(applied)
    {
        // A snapshot was taken over and the log not yet cut behind it.
        log.purge(applied).await?;
        known = Some(applied);
    }
    let vote = log.get_log_reader().await.read_vote().await?;
    let last_term = known.as_ref().map_or(0, term_of);
    let term = vote.map_or(0, |vote| vote.leader_id.term).max(last_term) + 1;
    let index = known.map_or(0, |last| last.index + 1);
    let alone = nodes(&[(own, peer_urls.to_vec())]);
    let membership = Membership::new(vec![[own.0].into()], alone).map_err(io::Error::other)?;
    log.save_vote(&Vote::new(term, own.0)).await?;
    let entry = LogEntry {
        log_id: log_id(term, index),
        payload: Payload::Membership(membership),
    };
    log.blocking_append([entry]).await.map_err(io::Error::other)
}

fn failed(source: io::Error) -> Error {
    Error::Io {
        doing: "found the raft group",
        source,
    }
}

#[cfg(test)]
mod tests {
    use openraft::storage::RaftLogStorage as _;
    use tempfile::TempDir;

    use super::*;

    async fn log_of_three(dir: &TempDir) -> RaftLog {
        let identity = LogIdentity {
            cluster: 7,
            member: 1,
        };
        let mut log = RaftLog::open(&LogOptions::new(dir.path(), identity)).unwrap();
        let urls = |id| vec![format!("http://h:{id}")];
        let three = nodes(&[1, 2, 3].map(|id| (MemberId(id), urls(id))));
        let membership = Membership::new(vec![[1, 2, 3].into()], three).unwrap();
        log.save_vote(&Vote::new(4, 2)).await.unwrap();
        let entries = [
            LogEntry {
                log_id: log_id(0, 0),
                payload: Payload::Membership(membership),
            },
            LogEntry {
                log_id: log_id(2, 1),
                payload: Payload::Blank,
            },
        ];
        log.blocking_append(entries).await.unwrap();
        log
    }

    async fn newest(log: &mut RaftLog) -> (LogEntry, Vote) {
        let last = log.get_log_state().await.unwrap().last_log_id.unwrap();
        let mut reader = log.get_log_reader().await;
        let entries = reader.try_get_log_entries(last.index..=last.index).await;
        let entry = entries.unwrap().pop().unwrap();
        (entry, reader.read_vote().await.unwrap().unwrap())
    }

    #[tokio::test]
    async fn a_member_left_alone_keeps_its_log_and_says_so_in_a_term_of_its_own() {
        let dir = TempDir::new().unwrap();
        let mut log = log_of_three(&dir).await;
        let urls = ["http://h:1".to_owned()];
        leave_alone(&mut log, None, MemberId(1), &urls)
            .await
            .unwrap();
        let (entry, vote) = newest(&mut log).await;
        assert_eq!(entry.log_id, log_id(5, 2));
        assert_eq!((vote.leader_id.term, vote.committed), (5, false));
        let Payload::Membership(membership) = entry.payload else {
            panic!("{entry:?}");
        };
        assert_eq!(membership.voter_ids().collect::<Vec<_>>(), [1]);
        assert_eq!(membership.nodes().count(), 1);
    }

    #[tokio::test]
    async fn a_log_behind_the_state_goes_on_behind_the_state() {
        let dir = TempDir::new().unwrap();
        let mut log = log_of_three(&dir).await;
        let applied = LogPosition {
            term: 6,
            node: 0,
            index: 90,
        };
        leave_alone(&mut log, Some(applied), MemberId(1), &[])
            .await
            .unwrap();
        let (entry, _) = newest(&mut log).await;
        assert_eq!(entry.log_id, log_id(7, 91));
        let purged = log.get_log_state().await.unwrap().last_purged_log_id;
        assert_eq!(purged, Some(log_id(6, 90)));
    }
}
