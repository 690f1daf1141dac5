//! Member and cluster ids, computed as etcd computes them.

use sha1::{Digest as _, Sha1};

/// A member's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

/// A cluster's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u64);

/// The id of a member of a new cluster: from its sorted peer URLs and the cluster's token.
///
/// URLs go in as they are given, in the form that etcd stores (`http://host:port`).
pub fn member_id(peer_urls: &[String], cluster_token: &str) -> MemberId {
    let mut urls: Vec<&str> = peer_urls.iter().map(String::as_str).collect();
    urls.sort_unstable();
    let mut digest = Sha1::new();
    for url in urls {
        digest.update(url.as_bytes());
    }
    digest.update(cluster_token.as_bytes());
    MemberId(first_eight(&digest.finalize()))
}

/// The id of a member that is added to a running cluster at `unix_s` (seconds since 1970): etcd
/// leaves the token out here and takes the time instead, so that an address can come back under a
/// new id.
pub fn added_member_id(peer_urls: &[String], unix_s: u64) -> MemberId {
    member_id(peer_urls, &unix_s.to_string())
}

/// The id of a new cluster: from its members' ids, in any order.
pub fn cluster_id(members: &[MemberId]) -> ClusterId {
    let mut ids = members.to_vec();
    ids.sort_unstable();
    let mut digest = Sha1::new();
    for id in ids {
        digest.update(id.0.to_be_bytes());
    }
    ClusterId(first_eight(&digest.finalize()))
}

fn first_eight(digest: &[u8]) -> u64 {
    digest
        .first_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl std::fmt::Display for MemberId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl std::fmt::Display for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}", self.0)
    }
}
