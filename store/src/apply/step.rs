//! One batch of entries, in one transaction.

use bytes::Bytes;
use holdfast_proto::etcd::kv::Event;
use holdfast_proto::etcd::rpc;
use holdfast_proto::etcd::rpc::alarm_request::AlarmAction;
use holdfast_proto::store::v1::command::Request;
use holdfast_proto::store::v1::{Command, LeaseCheckpoints};

use crate::backend::{Rows, Table};
use crate::error::{Error, ErrorKind};
use crate::failpoint::{self, Point};
use crate::lease::{self, LeaseChange, LeaseId, TTL_MAX_S};
use crate::mvcc::{Horizon, Revision, Writer, txn};
use crate::state::State;

use super::quota;
use super::records::Records;
use super::{Entry, EntryPayload, Outcome, Response};

pub(crate) const SCHEDULED_COMPACT_KEY: &[u8] = b"scheduledCompactRev";
pub(crate) const FINISHED_COMPACT_KEY: &[u8] = b"finishedCompactRev";

/// What a batch changed, told to others once readers can see it.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) events: Vec<(i64, Vec<Event>)>,
    pub(crate) leases: Vec<LeaseChange>,
    pub(crate) compacted: Option<i64>,
}

/// One batch under way.
pub(crate) struct Batch<'batch, 'txn> {
    pub(crate) state: &'batch State,
    pub(crate) rows: &'batch mut Rows<'txn>,
    pub(crate) records: &'batch mut Records,
    pub(crate) horizon: Horizon,
    pub(crate) quota: i64,
    pub(crate) changes: Changes,
    pub(crate) scratch: &'batch mut Vec<u8>,
}

impl Batch<'_, '_> {
    /// Applies one entry. The outer error is fatal to the member, the inner one the request's.
    pub(crate) fn apply(&mut self, entry: Entry) -> Result<Outcome, Error> {
        let head = self.rows.head_mut();
        head.applied = Some(entry.position);
        let outcome = match entry.payload {
            EntryPayload::Blank => Ok(Response::Empty),
            EntryPayload::Membership(membership) => {
                failpoint::hit(Point::BeforeApplyOneConfChange);
                self.records
                    .set_membership(self.rows, membership, true)
                    .map(|()| Response::Empty)
            }
            EntryPayload::Command(command) => {
                failpoint::hit(Point::BeforeApplyOneEntryNormal);
                self.command(command)
            }
        };
        self.rows.head_mut().revision = self.horizon.current;
        match outcome {
            Err(error)
                if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Internal)
                    && !matches!(error, Error::Corrupt) =>
            {
                Err(error)
            }
            outcome => Ok(outcome),
        }
    }

    fn command(&mut self, command: Command) -> Outcome {
        let Some(request) = command.request else {
            return Ok(Response::Empty);
        };
        self.guard(&request)?;
        let cost = match &request {
            Request::Put(put) => quota::put_cost(put),
            Request::Txn(txn) => quota::txn_cost(txn),
            Request::LeaseGrant(_) => quota::LEASE_COST,
            _ => 0,
        };
        let has_space = quota::fits(self.quota, quota::in_use(self.rows.head_mut()), cost);
        let response = self.dispatch(request)?;
        if has_space {
            Ok(response)
        } else {
            Err(Error::NoSpace)
        }
    }

    /// What active alarms forbid.
    fn guard(&self, request: &Request) -> Result<(), Error> {
        if self.records.has_alarm(rpc::AlarmType::Corrupt)
            && matches!(
                request,
                Request::Put(_)
                    | Request::DeleteRange(_)
                    | Request::Txn(_)
                    | Request::Compact(_)
                    | Request::LeaseGrant(_)
                    | Request::LeaseRevoke(_)
            )
        {
            return Err(Error::Corrupt);
        }
        let takes_space = match request {
            Request::Put(_) | Request::LeaseGrant(_) => true,
            Request::Txn(txn) => quota::txn_cost(txn) > 0,
            _ => false,
        };
        if takes_space && self.records.has_alarm(rpc::AlarmType::Nospace) {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    fn dispatch(&mut self, request: Request) -> Outcome {
        match request {
            Request::Put(put) => {
                if failpoint::is_on(Point::BugApplyTwice) {
                    let put = put.clone();
                    self.write(|writer| writer.put(put).map(Response::Put))?;
                }
                self.write(|writer| {
                    txn::check_lease(writer, &put)?;
                    writer.put(put).map(Response::Put)
                })
            }
            Request::DeleteRange(delete) => {
                self.write(|writer| writer.delete_range(&delete).map(Response::DeleteRange))
            }
            Request::Txn(request) => {
                self.write(|writer| txn::write(writer, &request).map(Response::Txn))
            }
            Request::Compact(request) => self.compact(&request),
            Request::LeaseGrant(request) => self.grant(&request),
            Request::LeaseRevoke(request) => self.revoke(request),
            Request::LeaseCheckpoint(request) => self.checkpoint_leases(&request),
            Request::Alarm(request) => self.alarm(&request),
            Request::MemberAttributes(member) => self
                .records
                .set_attributes(self.rows, member.member_id, member.name, member.client_urls)
                .map(|()| Response::Empty),
            Request::ClusterVersion(request) => self
                .records
                .set_cluster_version(self.rows, request.version)
                .map(|()| Response::Empty),
        }
    }

    /// Runs the writes of one request; they share the next revision.
    fn write(&mut self, work: impl FnOnce(&mut Writer<'_, '_>) -> Outcome) -> Outcome {
        let mut writer = Writer {
            index: &self.state.index,
            lessor: &self.state.lessor,
            rows: self.rows,
            base: self.horizon,
            events: Vec::new(),
            scratch: self.scratch,
        };
        let outcome = work(&mut writer);
        let events = writer.events;
        if !events.is_empty() {
            self.horizon.current += 1;
            self.changes.events.push((self.horizon.current, events));
        }
        outcome
    }

    fn header(&self) -> rpc::ResponseHeader {
        rpc::ResponseHeader {
            revision: self.horizon.current,
            ..rpc::ResponseHeader::default()
        }
    }

    fn compact(&mut self, request: &rpc::CompactionRequest) -> Outcome {
        if request.revision <= self.horizon.compacted {
            return Err(Error::Compacted);
        }
        if request.revision > self.horizon.current {
            return Err(Error::FutureRevision);
        }
        let revision = Revision::new(request.revision, 0).encode();
        self.rows
            .put(Table::Meta, SCHEDULED_COMPACT_KEY, &revision)?;
        self.horizon.compacted = request.revision;
        self.changes.compacted = Some(request.revision);
        failpoint::hit(Point::CompactBeforeCommitScheduledCompact);
        Ok(Response::Compact(rpc::CompactionResponse {
            header: Some(self.header()),
        }))
    }

    fn grant(&mut self, request: &rpc::LeaseGrantRequest) -> Outcome {
        let id = LeaseId(request.id);
        if request.id == 0 {
            return Err(Error::LeaseNotFound);
        }
        if request.ttl > TTL_MAX_S {
            return Err(Error::LeaseTtlTooLarge);
        }
        if self.state.lessor.read().contains(id) {
            return Err(Error::LeaseExists);
        }
        let record = lease::encode(id, request.ttl, 0);
        self.rows.put(Table::Lease, &lease::row_key(id), &record)?;
        self.state.lessor.write().grant(id, request.ttl, 0);
        self.changes.leases.push(LeaseChange::Granted {
            id,
            ttl_s: request.ttl,
        });
        Ok(Response::LeaseGrant(rpc::LeaseGrantResponse {
            header: Some(self.header()),
            id: request.id,
            ttl: request.ttl,
            error: String::new(),
        }))
    }

    fn revoke(&mut self, request: rpc::LeaseRevokeRequest) -> Outcome {
        let id = LeaseId(request.id);
        let keys: Option<Vec<Bytes>> = self.state.lessor.read().keys(id);
        let keys = keys.ok_or(Error::LeaseNotFound)?;
        self.write(|writer| {
            for key in keys {
                writer.delete(key)?;
            }
            writer.rows.remove(Table::Lease, &lease::row_key(id))?;
            Ok(Response::Empty)
        })?;
        self.state.lessor.write().remove(id);
        self.changes.leases.push(LeaseChange::Revoked { id });
        Ok(Response::LeaseRevoke(rpc::LeaseRevokeResponse {
            header: Some(self.header()),
        }))
    }

    fn checkpoint_leases(&mut self, request: &LeaseCheckpoints) -> Outcome {
        for checkpoint in &request.checkpoints {
            let (id, remaining_s) = (LeaseId(checkpoint.id), checkpoint.remaining_ttl);
            let record = self.state.lessor.write().checkpoint(id, remaining_s);
            if let Some(record) = record {
                self.rows.put(Table::Lease, &lease::row_key(id), &record)?;
                self.changes
                    .leases
                    .push(LeaseChange::Checkpointed { id, remaining_s });
            }
        }
        Ok(Response::LeaseCheckpoint(rpc::LeaseCheckpointResponse {
            header: Some(self.header()),
        }))
    }

    fn alarm(&mut self, request: &rpc::AlarmRequest) -> Outcome {
        let alarm = rpc::AlarmMember {
            member_id: request.member_id,
            alarm: request.alarm,
        };
        let is_none = request.alarm == i32::from(rpc::AlarmType::None);
        let alarms = match AlarmAction::try_from(request.action) {
            Ok(AlarmAction::Get) => self
                .records
                .alarms
                .iter()
                .filter(|active| is_none || active.alarm == request.alarm)
                .copied()
                .collect(),
            Ok(AlarmAction::Activate) if !is_none => {
                vec![self.records.activate(self.rows, alarm)?]
            }
            Ok(AlarmAction::Deactivate) => self
                .records
                .deactivate(self.rows, &alarm)?
                .into_iter()
                .collect(),
            Ok(AlarmAction::Activate) | Err(_) => Vec::new(),
        };
        Ok(Response::Alarm(rpc::AlarmResponse {
            header: Some(self.header()),
            alarms,
        }))
    }
}
