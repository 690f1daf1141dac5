//! The group's membership as bytes: in the log, in the state, in snapshots.
//!
//! JSON, because it is rare and worth reading by eye; ids are numbers of 64 bits.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::types::{Membership, PeerNode, StoredMembership, Wanted, log_id, term_of};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// Where in the log it was decided.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    log_id: Option<StoredLogId>,
    /// One set of voters, or two while a change is under way.
    voters: Vec<BTreeSet<u64>>,
    nodes: BTreeMap<u64, StoredNode>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredLogId {
    term: u64,
    index: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredNode {
    peer_urls: Vec<String>,
    /// Absent: a voter.
    #[serde(default, skip_serializing_if = "is_voter")]
    wanted: Wanted,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_voter(wanted: &Wanted) -> bool {
    *wanted == Wanted::Voter
}

impl From<&PeerNode> for StoredNode {
    fn from(node: &PeerNode) -> Self {
        Self {
            peer_urls: node.peer_urls.clone(),
            wanted: node.wanted,
        }
    }
}

impl From<StoredNode> for PeerNode {
    fn from(node: StoredNode) -> Self {
        Self {
            peer_urls: node.peer_urls,
            wanted: node.wanted,
        }
    }
}

/// The bytes of a membership and of the log position that decided it.
pub(crate) fn encode_membership(stored: &StoredMembership) -> io::Result<Bytes> {
    let log_id = stored.log_id().as_ref().map(|id| StoredLogId {
        term: term_of(id),
        index: id.index,
    });
    encode(log_id, stored.membership())
}

/// Reads what [`encode_membership`] wrote.
pub(crate) fn decode_membership(bytes: &[u8]) -> io::Result<StoredMembership> {
    let stored: Stored = serde_json::from_slice(bytes).map_err(invalid)?;
    let decided = stored.log_id.as_ref().map(|id| log_id(id.term, id.index));
    Ok(StoredMembership::new(decided, build(stored)?))
}

/// The bytes of a membership in a log entry, whose position the entry has itself.
pub(crate) fn encode_plain_membership(membership: &Membership) -> io::Result<Bytes> {
    encode(None, membership)
}

/// Reads what [`encode_plain_membership`] wrote.
pub(crate) fn decode_plain_membership(bytes: &[u8]) -> io::Result<Membership> {
    build(serde_json::from_slice(bytes).map_err(invalid)?)
}

fn encode(log_id: Option<StoredLogId>, membership: &Membership) -> io::Result<Bytes> {
    let nodes = membership
        .nodes()
        .map(|(id, node)| (*id, node.into()))
        .collect();
    let stored = Stored {
        log_id,
        voters: membership.get_joint_config().clone(),
        nodes,
    };
    serde_json::to_vec(&stored)
        .map(Bytes::from)
        .map_err(invalid)
}

fn build(stored: Stored) -> io::Result<Membership> {
    let nodes: BTreeMap<u64, PeerNode> = stored
        .nodes
        .into_iter()
        .map(|(id, node)| (id, node.into()))
        .collect();
    if stored.voters.is_empty() && nodes.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(stored.voters, nodes).map_err(invalid)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(nodes: Vec<(u64, PeerNode)>, voters: &[u64]) -> Membership {
        let nodes: BTreeMap<u64, PeerNode> = nodes.into_iter().collect();
        Membership::new(vec![voters.iter().copied().collect()], nodes).unwrap()
    }

    fn node(port: u16) -> PeerNode {
        PeerNode {
            peer_urls: vec![format!("http://h:{port}")],
            ..PeerNode::default()
        }
    }

    #[test]
    fn a_membership_of_voters_reads_as_the_first_version_wrote_it() {
        let first = br#"{"voters":[[1]],"nodes":{"1":{"peer_urls":["http://h:1"]}}}"#;
        let plain = membership(vec![(1, node(1))], &[1]);
        assert_eq!(encode_plain_membership(&plain).unwrap(), &first[..]);
        assert_eq!(decode_plain_membership(first).unwrap(), plain);
    }

    #[test]
    fn what_a_member_is_meant_to_be_survives() {
        let learner = PeerNode {
            wanted: Wanted::Learner,
            ..node(2)
        };
        let written = membership(vec![(1, node(1)), (2, learner), (3, node(3))], &[1]);
        let bytes = encode_plain_membership(&written).unwrap();
        assert_eq!(decode_plain_membership(&bytes).unwrap(), written);
        let stored = StoredMembership::new(Some(log_id(3, 7)), written);
        let bytes = encode_membership(&stored).unwrap();
        assert_eq!(decode_membership(&bytes).unwrap(), stored);
    }
}
