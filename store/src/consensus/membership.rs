//! The group's membership as bytes: in the log, in the state, in snapshots.
//!
//! JSON, because it is rare and worth reading by eye; ids are numbers of 64 bits.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::types::{Membership, PeerNode, StoredMembership, log_id, term_of};

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
        .map(|(id, node)| {
            (
                *id,
                StoredNode {
                    peer_urls: node.peer_urls.clone(),
                },
            )
        })
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
        .map(|(id, node)| {
            (
                id,
                PeerNode {
                    peer_urls: node.peer_urls,
                },
            )
        })
        .collect();
    if stored.voters.is_empty() && nodes.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(stored.voters, nodes).map_err(invalid)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
