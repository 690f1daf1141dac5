//! The small tables, decoded: alarms, members, cluster version, whether auth is on.

use std::collections::BTreeSet;

use holdfast_proto::etcd::rpc::{AlarmMember, AlarmType};
use prost::Message as _;
use serde::{Deserialize, Serialize};

use crate::backend::{MEMBERSHIP_KEY, Rows, Table, View};
use crate::error::Error;
use crate::state::MemberRecord;

use super::{Membership, Seat};

const CLUSTER_VERSION_KEY: &[u8] = b"clusterVersion";
const AUTH_ENABLED_KEY: &[u8] = b"authEnabled";
const REMOVED: &[u8] = b"removed";

/// The small tables, decoded.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Records {
    /// By alarm, then by member.
    pub(crate) alarms: Vec<AlarmMember>,
    /// By id.
    pub(crate) members: Vec<MemberRecord>,
    /// Ids of members that were removed: never given out again.
    pub(crate) removed: BTreeSet<u64>,
    pub(crate) cluster_version: Option<String>,
    pub(crate) is_auth_enabled: bool,
    pub(crate) membership: Option<Membership>,
}

/// A member as etcd stores it.
#[derive(Debug, Serialize, Deserialize)]
struct StoredMember {
    id: u64,
    #[serde(default, rename = "peerURLs")]
    peer_urls: Option<Vec<String>>,
    #[serde(default, rename = "isLearner", skip_serializing_if = "is_false")]
    is_learner: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(
        default,
        rename = "clientURLs",
        skip_serializing_if = "Option::is_none"
    )]
    client_urls: Option<Vec<String>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A membership as we store it.
#[derive(Debug, Serialize, Deserialize)]
struct StoredMembership {
    encoded: String,
    seats: Vec<StoredMember>,
}

impl Records {
    /// Reads the small tables.
    pub(crate) fn load(view: &View) -> Result<Self, Error> {
        let mut records = Self::default();
        view.scan_all(Table::Alarm, |key, _value| {
            let alarm = AlarmMember::decode(key)
                .map_err(|_undecodable| damaged(Table::Alarm, key, "not an alarm"))?;
            records.alarms.push(alarm);
            Ok(())
        })?;
        view.scan_all(Table::Members, |key, value| {
            let stored: StoredMember = serde_json::from_slice(value)
                .map_err(|_undecodable| damaged(Table::Members, key, "not a member"))?;
            records.members.push(stored.into());
            Ok(())
        })?;
        view.scan_all(Table::MembersRemoved, |key, _value| {
            let id = std::str::from_utf8(key)
                .ok()
                .and_then(|text| u64::from_str_radix(text, 16).ok());
            let id = id.ok_or_else(|| damaged(Table::MembersRemoved, key, "not a member id"))?;
            records.removed.insert(id);
            Ok(())
        })?;
        if let Some(version) = view.get(Table::Cluster, CLUSTER_VERSION_KEY)? {
            records.cluster_version = Some(String::from_utf8_lossy(&version).into_owned());
        }
        records.is_auth_enabled = view
            .get(Table::Auth, AUTH_ENABLED_KEY)?
            .is_some_and(|value| *value == [1]);
        if let Some(stored) = view.get(Table::Own, MEMBERSHIP_KEY)? {
            records.membership = Some(decode_membership(&stored)?);
        }
        records.sort();
        Ok(records)
    }

    fn sort(&mut self) {
        self.alarms
            .sort_by_key(|alarm| (alarm.alarm, alarm.member_id));
        self.members.sort_by_key(|member| member.id);
    }

    pub(crate) fn has_alarm(&self, kind: AlarmType) -> bool {
        self.alarms
            .iter()
            .any(|alarm| alarm.alarm == i32::from(kind))
    }

    /// Turns an alarm on, if it is not; the alarm.
    pub(crate) fn activate(
        &mut self,
        rows: &mut Rows<'_>,
        alarm: AlarmMember,
    ) -> Result<AlarmMember, Error> {
        if !self.alarms.contains(&alarm) {
            rows.put(Table::Alarm, &alarm.encode_to_vec(), &[])?;
            self.alarms.push(alarm);
            self.sort();
        }
        Ok(alarm)
    }

    /// Turns an alarm off; the alarm, if it was on.
    pub(crate) fn deactivate(
        &mut self,
        rows: &mut Rows<'_>,
        alarm: &AlarmMember,
    ) -> Result<Option<AlarmMember>, Error> {
        let Some(position) = self.alarms.iter().position(|active| active == alarm) else {
            return Ok(None);
        };
        rows.remove(Table::Alarm, &alarm.encode_to_vec())?;
        Ok(Some(self.alarms.remove(position)))
    }

    /// Sets the version the whole cluster speaks.
    pub(crate) fn set_cluster_version(
        &mut self,
        rows: &mut Rows<'_>,
        version: String,
    ) -> Result<(), Error> {
        rows.put(Table::Cluster, CLUSTER_VERSION_KEY, version.as_bytes())?;
        self.cluster_version = Some(version);
        Ok(())
    }

    /// Takes over who votes and who learns; what members published of themselves stays.
    pub(crate) fn set_membership(
        &mut self,
        rows: &mut Rows<'_>,
        membership: Membership,
        notes_removed: bool,
    ) -> Result<(), Error> {
        let mut members = Vec::with_capacity(membership.seats.len());
        for seat in &membership.seats {
            let known = self.members.iter().find(|member| member.id == seat.id);
            let member = MemberRecord {
                id: seat.id,
                name: known.map(|member| member.name.clone()).unwrap_or_default(),
                peer_urls: seat.peer_urls.clone(),
                client_urls: known
                    .map(|member| member.client_urls.clone())
                    .unwrap_or_default(),
                is_learner: seat.is_learner,
            };
            if known != Some(&member) {
                put_member(rows, &member)?;
            }
            members.push(member);
        }
        for gone in &self.members {
            if !members.iter().any(|member| member.id == gone.id) {
                let key = member_key(gone.id);
                rows.remove(Table::Members, key.as_bytes())?;
                if notes_removed {
                    self.removed.insert(gone.id);
                    rows.put(Table::MembersRemoved, key.as_bytes(), REMOVED)?;
                }
            }
        }
        rows.put(Table::Own, MEMBERSHIP_KEY, &encode_membership(&membership)?)?;
        self.members = members;
        self.membership = Some(membership);
        self.sort();
        Ok(())
    }

    /// Takes over what a member published of itself; of an unknown member, nothing.
    pub(crate) fn set_attributes(
        &mut self,
        rows: &mut Rows<'_>,
        id: u64,
        name: String,
        client_urls: Vec<String>,
    ) -> Result<(), Error> {
        match self.members.iter_mut().find(|member| member.id == id) {
            Some(member) => {
                member.name = name;
                member.client_urls = client_urls;
                put_member(rows, member)
            }
            None => Ok(()),
        }
    }
}

/// etcd writes ids in hexadecimal without leading zeros.
fn member_key(id: u64) -> String {
    format!("{id:x}")
}

fn put_member(rows: &mut Rows<'_>, member: &MemberRecord) -> Result<(), Error> {
    let stored = StoredMember {
        id: member.id,
        peer_urls: Some(member.peer_urls.clone()),
        is_learner: member.is_learner,
        name: member.name.clone(),
        client_urls: (!member.client_urls.is_empty()).then(|| member.client_urls.clone()),
    };
    rows.put(
        Table::Members,
        member_key(member.id).as_bytes(),
        &to_json(&stored)?,
    )
}

impl From<StoredMember> for MemberRecord {
    fn from(stored: StoredMember) -> Self {
        Self {
            id: stored.id,
            name: stored.name,
            peer_urls: stored.peer_urls.unwrap_or_default(),
            client_urls: stored.client_urls.unwrap_or_default(),
            is_learner: stored.is_learner,
        }
    }
}

fn encode_membership(membership: &Membership) -> Result<Vec<u8>, Error> {
    let seats = membership
        .seats
        .iter()
        .map(|seat| StoredMember {
            id: seat.id,
            peer_urls: Some(seat.peer_urls.clone()),
            is_learner: seat.is_learner,
            name: String::new(),
            client_urls: None,
        })
        .collect();
    to_json(&StoredMembership {
        encoded: hex::encode(&membership.encoded),
        seats,
    })
}

fn decode_membership(stored: &[u8]) -> Result<Membership, Error> {
    let wrong = || damaged(Table::Own, MEMBERSHIP_KEY, "not a membership");
    let stored: StoredMembership =
        serde_json::from_slice(stored).map_err(|_undecodable| wrong())?;
    let encoded = hex::decode(&stored.encoded).map_err(|_undecodable| wrong())?;
    let seats = stored
        .seats
        .into_iter()
        .map(|seat| Seat {
            id: seat.id,
            peer_urls: seat.peer_urls.unwrap_or_default(),
            is_learner: seat.is_learner,
        })
        .collect();
    Ok(Membership {
        encoded: encoded.into(),
        seats,
    })
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|error| Error::Format {
        what: "a record",
        reason: error.to_string(),
    })
}

fn damaged(table: Table, key: &[u8], reason: &'static str) -> Error {
    Error::Record {
        table: table.name(),
        key: hex::encode(key),
        reason,
    }
}
