//! Puts and deletes of one revision.

use bytes::Bytes;
use holdfast_proto::etcd::kv::{Event, KeyValue, event::EventType};
use holdfast_proto::etcd::rpc;
use parking_lot::RwLock;
use prost::Message as _;

use crate::backend::{Rows, Table};
use crate::error::Error;
use crate::lease::{LeaseId, Lessor};

use super::index::{Index, Span};
use super::read::{self, Count, Horizon};
use super::revision::Revision;

/// The writes of one request: all get the main revision after `base`.
pub(crate) struct Writer<'batch, 'txn> {
    pub(crate) index: &'batch RwLock<Index>,
    pub(crate) lessor: &'batch RwLock<Lessor>,
    pub(crate) rows: &'batch mut Rows<'txn>,
    /// The horizon before this request.
    pub(crate) base: Horizon,
    /// What was changed so far, in order.
    pub(crate) events: Vec<Event>,
    /// Room for encoding.
    pub(crate) scratch: &'batch mut Vec<u8>,
}

impl Writer<'_, '_> {
    /// The horizon with the changes made so far.
    pub(crate) fn horizon(&self) -> Horizon {
        Horizon {
            current: self.revision(),
            ..self.base
        }
    }

    /// The revision with the changes made so far.
    pub(crate) fn revision(&self) -> i64 {
        self.base.current + i64::from(!self.events.is_empty())
    }

    fn next(&self) -> Revision {
        Revision::new(
            self.base.current + 1,
            i64::try_from(self.events.len()).unwrap_or(i64::MAX),
        )
    }

    /// A header that carries the revision.
    pub(crate) fn header(&self) -> rpc::ResponseHeader {
        rpc::ResponseHeader {
            revision: self.revision(),
            ..rpc::ResponseHeader::default()
        }
    }

    pub(crate) fn range(
        &mut self,
        request: &rpc::RangeRequest,
    ) -> Result<rpc::RangeResponse, Error> {
        let horizon = self.horizon();
        read::range(self.index, self.rows, horizon, request, Count::Total)
    }

    /// The key-value as it is now.
    pub(crate) fn current(&mut self, key: &[u8]) -> Result<Option<KeyValue>, Error> {
        let found = self.index.read().get(key, self.revision());
        found
            .map(|found| read::key_value(self.rows, found.modified))
            .transpose()
    }

    /// Whether the key exists now.
    pub(crate) fn exists(&self, key: &[u8]) -> bool {
        self.index.read().get(key, self.revision()).is_some()
    }

    /// Puts; the request has been checked.
    pub(crate) fn put(&mut self, request: rpc::PutRequest) -> Result<rpc::PutResponse, Error> {
        let needs_previous = request.prev_kv || request.ignore_value || request.ignore_lease;
        let previous = if needs_previous {
            self.current(&request.key)?
        } else {
            None
        };
        let mut value = request.value;
        let mut lease = request.lease;
        if request.ignore_value {
            value = previous.as_ref().ok_or(Error::KeyNotFound)?.value.clone();
        }
        if request.ignore_lease {
            lease = previous.as_ref().ok_or(Error::KeyNotFound)?.lease;
        }
        self.put_value(request.key, value, lease)?;
        Ok(rpc::PutResponse {
            header: Some(self.header()),
            prev_kv: previous.filter(|_| request.prev_kv),
        })
    }

    fn put_value(&mut self, key: Bytes, value: Bytes, lease: i64) -> Result<(), Error> {
        let revision = self.next();
        let found = self.index.write().put(&key, revision);
        let kv = KeyValue {
            key,
            create_revision: found.created,
            mod_revision: revision.main,
            version: found.version,
            value,
            lease,
        };
        self.scratch.clear();
        kv.encode_raw(self.scratch);
        self.rows
            .put(Table::Key, &revision.encode(), self.scratch)?;
        self.lessor.write().reattach(&kv.key, LeaseId(lease));
        self.events.push(Event {
            r#type: EventType::Put.into(),
            kv: Some(kv),
            prev_kv: None,
        });
        Ok(())
    }

    /// Deletes all keys of a span.
    pub(crate) fn delete_range(
        &mut self,
        request: &rpc::DeleteRangeRequest,
    ) -> Result<rpc::DeleteRangeResponse, Error> {
        let mut prev_kvs = Vec::new();
        let keys = read::keys_at(
            self.index,
            self.horizon(),
            Span::new(&request.key, &request.range_end),
        )?;
        if request.prev_kv {
            for key in &keys {
                prev_kvs.extend(self.current(key)?);
            }
        }
        for key in &keys {
            self.delete(Bytes::copy_from_slice(key))?;
        }
        Ok(rpc::DeleteRangeResponse {
            header: Some(self.header()),
            deleted: i64::try_from(keys.len()).unwrap_or(i64::MAX),
            prev_kvs,
        })
    }

    /// Deletes one key, if it exists.
    pub(crate) fn delete(&mut self, key: Bytes) -> Result<(), Error> {
        let revision = self.next();
        if !self.exists(&key) || !self.index.write().tombstone(&key, revision) {
            return Ok(());
        }
        let stored = KeyValue {
            key,
            ..KeyValue::default()
        };
        self.scratch.clear();
        stored.encode_raw(self.scratch);
        self.rows
            .put(Table::Key, &revision.encode_tombstone(), self.scratch)?;
        self.lessor.write().detach(&stored.key);
        let kv = KeyValue {
            mod_revision: revision.main,
            ..stored
        };
        self.events.push(Event {
            r#type: EventType::Delete.into(),
            kv: Some(kv),
            prev_kv: None,
        });
        Ok(())
    }
}
