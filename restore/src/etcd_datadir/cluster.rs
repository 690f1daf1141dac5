//! The members of the new cluster, and how etcd writes them down.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_store::datadir::identity::{ClusterId, MemberId, cluster_id, member_id};
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// Members of a new cluster; more than any real one has.
const MEMBERS_MAX: usize = 64;
/// Events the raft snapshot's old-style store keeps; its reader insists on the places.
const EVENT_PLACES: usize = 1000;

/// A new cluster: its members and the token that makes its ids new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCluster {
    /// All members.
    pub members: Vec<NewMember>,
    /// Goes into every id. A token of its own keeps the members from talking to the old cluster.
    pub token: String,
}

/// One member of a new cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMember {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Where its peers reach it, as `http://host:port`.
    pub peer_urls: Vec<String>,
}

/// A member with its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identified {
    pub(super) id: MemberId,
    pub(super) name: String,
    pub(super) peer_urls: Vec<String>,
}

impl NewCluster {
    /// Reads `name=url,name=url`, as in etcd's `--initial-cluster`.
    pub fn parse(initial_cluster: &str, token: &str) -> Result<Self> {
        let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in initial_cluster
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let (name, url) = pair.split_once('=').ok_or_else(|| Error::Refused {
                reason: format!("{pair:?} in the initial cluster is not of the form name=url"),
            })?;
            members
                .entry(name.to_owned())
                .or_default()
                .push(url.to_owned());
        }
        let members = members
            .into_iter()
            .map(|(name, peer_urls)| NewMember { name, peer_urls })
            .collect();
        Ok(Self {
            members,
            token: token.to_owned(),
        })
    }

    /// Checks the members and computes their ids; ascending by id, as etcd orders them.
    pub(super) fn identified(&self) -> Result<Vec<Identified>> {
        let refuse = |reason: String| Err(Error::Refused { reason });
        if self.members.is_empty() || self.members.len() > MEMBERS_MAX {
            return refuse(format!(
                "{} members; 1 to {MEMBERS_MAX} are possible",
                self.members.len()
            ));
        }
        let mut urls_seen = BTreeSet::new();
        let mut names_seen = BTreeSet::new();
        let mut members = Vec::new();
        for member in &self.members {
            let mut peer_urls = checked_urls(&member.peer_urls)?;
            peer_urls.sort_unstable();
            if let Some(twice) = peer_urls
                .iter()
                .find(|url| !urls_seen.insert((*url).clone()))
            {
                return refuse(format!("the peer URL {twice} is given twice"));
            }
            if !names_seen.insert(member.name.as_str()) {
                return refuse(format!("two members are named {:?}", member.name));
            }
            members.push(Identified {
                id: member_id(&peer_urls, &self.token),
                name: member.name.clone(),
                peer_urls,
            });
        }
        members.sort_unstable_by_key(|member| member.id);
        Ok(members)
    }
}

pub(super) fn id_of(members: &[Identified]) -> ClusterId {
    let ids: Vec<MemberId> = members.iter().map(|member| member.id).collect();
    cluster_id(&ids)
}

/// Peer URLs in the form that etcd stores, or why etcd would refuse them.
fn checked_urls(urls: &[String]) -> Result<Vec<String>> {
    if urls.is_empty() {
        return Err(Error::Refused {
            reason: "a member without a peer URL".into(),
        });
    }
    urls.iter()
        .map(|url| {
            let url = url.trim();
            let is_good = match url.split_once("://") {
                Some(("http" | "https", rest)) => is_host_and_port(rest),
                Some(("unix" | "unixs", rest)) => !rest.is_empty(),
                _ => false,
            };
            if is_good {
                Ok(url.to_owned())
            } else {
                Err(Error::Refused {
                    reason: format!("{url:?} is not a peer URL such as http://host:2380"),
                })
            }
        })
        .collect()
}

fn is_host_and_port(rest: &str) -> bool {
    rest.rsplit_once(':').is_some_and(|(host, port)| {
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        (is_bracketed || !host.contains(':'))
            && !host.contains(['/', '?', '#', ' '])
            && !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_digit())
    })
}

impl Identified {
    /// The record in the bucket `members`, and the context of the log entry that adds the member.
    pub(super) fn record(&self) -> Vec<u8> {
        json!({ "id": self.id.0, "peerURLs": self.peer_urls, "name": self.name })
            .to_string()
            .into_bytes()
    }

    /// The member's key in the bucket `members`.
    pub(super) fn key(&self) -> Vec<u8> {
        self.id.to_string().into_bytes()
    }
}

/// The members in the form of etcd's first store, which a raft snapshot still carries.
pub(super) fn first_store(members: &[Identified]) -> Vec<u8> {
    let node = |path: &str, index: usize, value: String, children: Value| {
        json!({
            "Path": path, "CreatedIndex": index, "ModifiedIndex": index,
            "ExpireTime": "0001-01-01T00:00:00Z", "Value": value, "Children": children,
        })
    };
    let directory =
        |path: &str, index: usize, children: Value| node(path, index, String::new(), children);
    let mut entries = serde_json::Map::new();
    for (position, member) in members.iter().enumerate() {
        let index = position + 1;
        let path = format!("/0/members/{}", member.id);
        let attributes = json!({ "peerURLs": member.peer_urls }).to_string();
        let leaf = node(
            &format!("{path}/raftAttributes"),
            index,
            attributes,
            Value::Null,
        );
        let children = json!({ "raftAttributes": leaf });
        entries.insert(member.id.to_string(), directory(&path, index, children));
    }
    let member_list = directory("/0/members", 1, Value::Object(entries));
    let root = json!({
        "0": directory("/0", 0, json!({ "members": member_list })),
        "1": directory("/1", 0, json!({})),
    });
    json!({
        "Root": directory("/", 0, root),
        "WatcherHub": { "EventHistory": {
            "Queue": {
                "Events": vec![Value::Null; EVENT_PLACES],
                "Size": 0, "Front": 0, "Back": 0, "Capacity": EVENT_PLACES,
            },
            "StartIndex": 0, "LastIndex": 0,
        }},
        "CurrentIndex": members.len(),
        "Stats": {},
        "CurrentVersion": 2,
    })
    .to_string()
    .into_bytes()
}
