//! Everything in the file that is not a row of the key bucket.

use std::collections::BTreeMap;

use bytes::Bytes;
use holdfast_proto::etcd::{auth, lease, rpc};
use prost::Message;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{
    ALARM, AUTH, AUTH_ROLES, AUTH_USERS, CLUSTER, EtcdFile, LEASE, MEMBERS, META, damaged,
};
use crate::bolt::ReadAt;
use crate::error::Error;
use crate::state::MemberRecord;

/// A lease with the keys attached to it at the newest revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The lease id.
    pub id: i64,
    /// Granted time to live, in seconds.
    pub granted_ttl: i64,
    /// Time left at the last checkpoint, in seconds; 0: none was made.
    pub remaining_ttl: i64,
    /// Attached keys, ascending.
    pub keys: Vec<Bytes>,
}

/// Authentication records.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Auth {
    /// Whether requests must authenticate.
    pub is_enabled: bool,
    /// Counts changes of these records.
    pub revision: u64,
    /// Users by name, with the hash of the password.
    pub users: Vec<auth::User>,
    /// Roles by name.
    pub roles: Vec<auth::Role>,
}

/// Whether authentication is on (in the bucket `auth`).
pub(crate) const AUTH_ENABLED: &[u8] = b"authEnabled";
/// The count of changes (in the bucket `auth`).
pub(crate) const AUTH_REVISION: &[u8] = b"authRevision";

impl Auth {
    /// Decodes the rows of users and roles.
    pub(crate) fn from_rows(
        enabled: Option<&[u8]>,
        revision: Option<&[u8]>,
        users: &[(Bytes, Bytes)],
        roles: &[(Bytes, Bytes)],
    ) -> Result<Self, Error> {
        Ok(Self {
            is_enabled: enabled == Some(&[1]),
            revision: match revision {
                Some(value) => decode_number(AUTH, AUTH_REVISION, value)?,
                None => 0,
            },
            users: users
                .iter()
                .map(|(key, value)| message(AUTH_USERS, key, value))
                .collect::<Result<_, _>>()?,
            roles: roles
                .iter()
                .map(|(key, value)| message(AUTH_ROLES, key, value))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// The voters and learners of the cluster, as raft knows them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfState {
    /// Members that vote.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub voters: Vec<u64>,
    /// Members that do not vote.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learners: Vec<u64>,
    /// Voters of the configuration that is being left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub voters_outgoing: Vec<u64>,
    /// Learners to be, once the old configuration is left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learners_next: Vec<u64>,
    /// Whether the old configuration is left by itself.
    pub auto_leave: bool,
}

/// A downgrade of the cluster that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Downgrade {
    /// The version to go to, as `3.6.0`.
    pub target_version: String,
    /// Whether it is under way.
    #[serde(rename = "enabled")]
    pub is_enabled: bool,
}

/// A member's record as etcd stores it.
#[derive(Deserialize)]
struct StoredMember {
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "peerURLs")]
    peer_urls: Option<Vec<String>>,
    #[serde(default, rename = "clientURLs")]
    client_urls: Option<Vec<String>>,
    #[serde(default, rename = "isLearner")]
    is_learner: bool,
}

impl<R: ReadAt> EtcdFile<R> {
    /// Leases by id, with their keys, which are `attached` to them.
    pub(super) fn leases_of(
        &self,
        mut attached: BTreeMap<i64, Vec<Bytes>>,
    ) -> Result<Vec<LeaseRecord>, Error> {
        let mut leases = Vec::new();
        for (key, value) in self.entries(LEASE)? {
            let lease: lease::Lease = message(LEASE, &key, &value)?;
            let mut keys = attached.remove(&lease.id).unwrap_or_default();
            keys.sort_unstable();
            leases.push(LeaseRecord {
                id: lease.id,
                granted_ttl: lease.ttl,
                remaining_ttl: lease.remaining_ttl,
                keys,
            });
        }
        leases.sort_unstable_by_key(|lease| lease.id);
        Ok(leases)
    }

    /// Active alarms.
    pub fn alarms(&self) -> Result<Vec<rpc::AlarmMember>, Error> {
        self.entries(ALARM)?
            .iter()
            .map(|(key, _)| message(ALARM, key, key))
            .collect()
    }

    /// Members by id.
    pub fn members(&self) -> Result<Vec<MemberRecord>, Error> {
        let mut members = Vec::new();
        for (key, value) in self.entries(MEMBERS)? {
            let stored: StoredMember = json(MEMBERS, &key, &value)?;
            members.push(MemberRecord {
                id: stored.id,
                name: stored.name,
                peer_urls: stored.peer_urls.unwrap_or_default(),
                client_urls: stored.client_urls.unwrap_or_default(),
                is_learner: stored.is_learner,
            });
        }
        members.sort_unstable_by_key(|member| member.id);
        Ok(members)
    }

    /// Users, roles and whether they are in force.
    pub fn auth(&self) -> Result<Auth, Error> {
        Auth::from_rows(
            self.value(AUTH, AUTH_ENABLED)?.as_deref(),
            self.value(AUTH, AUTH_REVISION)?.as_deref(),
            &self.entries(AUTH_USERS)?,
            &self.entries(AUTH_ROLES)?,
        )
    }

    /// The version the whole cluster speaks, as `3.7.0`; absent before etcd 3.5.
    pub fn cluster_version(&self) -> Result<Option<String>, Error> {
        self.text(CLUSTER, b"clusterVersion")
    }

    /// The downgrade recorded last, under way or not.
    pub fn downgrade(&self) -> Result<Option<Downgrade>, Error> {
        let key = b"downgrade";
        match self.value(CLUSTER, key)? {
            Some(value) => json(CLUSTER, key, &value).map(Some),
            None => Ok(None),
        }
    }

    /// Raft's view of the members; absent before etcd 3.5.
    pub fn conf_state(&self) -> Result<Option<ConfState>, Error> {
        let key = b"confState";
        match self.value(META, key)? {
            Some(value) => json(META, key, &value).map(Some),
            None => Ok(None),
        }
    }

    /// Index of the last raft entry applied.
    pub fn consistent_index(&self) -> Result<Option<u64>, Error> {
        self.number(META, b"consistent_index")
    }

    /// Term of the last raft entry applied; absent before etcd 3.5.
    pub fn term(&self) -> Result<Option<u64>, Error> {
        self.number(META, b"term")
    }

    /// All entries of a small bucket.
    fn entries(&self, bucket: &'static str) -> Result<Vec<(Bytes, Bytes)>, Error> {
        let Some(bucket) = self.bucket(bucket)? else {
            return Ok(Vec::new());
        };
        bucket
            .iter()
            .map(|entry| {
                entry
                    .map(|entry| (entry.key, entry.value))
                    .map_err(Error::from)
            })
            .collect()
    }

    fn number(&self, bucket: &'static str, key: &'static [u8]) -> Result<Option<u64>, Error> {
        match self.value(bucket, key)? {
            Some(value) => decode_number(bucket, key, &value).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn text(
        &self,
        bucket: &'static str,
        key: &'static [u8],
    ) -> Result<Option<String>, Error> {
        match self.value(bucket, key)? {
            Some(value) if value.is_empty() => Ok(None),
            Some(value) => match std::str::from_utf8(&value) {
                Ok(text) => Ok(Some(text.to_owned())),
                Err(_) => Err(damaged(bucket, key, "not text")),
            },
            None => Ok(None),
        }
    }
}

fn decode_number(table: &'static str, key: &[u8], value: &[u8]) -> Result<u64, Error> {
    match <[u8; 8]>::try_from(value) {
        Ok(bytes) => Ok(u64::from_be_bytes(bytes)),
        Err(_) => Err(damaged(table, key, "not a number of 8 bytes")),
    }
}

fn message<M: Message + Default>(
    table: &'static str,
    key: &[u8],
    value: &Bytes,
) -> Result<M, Error> {
    M::decode(value.clone()).map_err(|_reason| damaged(table, key, "not a record of its table"))
}

fn json<T: DeserializeOwned>(table: &'static str, key: &[u8], value: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(value)
        .map_err(|_reason| damaged(table, key, "not a record of its table"))
}
