//! A consistent view of the whole state, for a snapshot in etcd's file format.

use std::io;
use std::sync::Arc;

use crate::apply::{LogPosition, Membership};
use crate::backend::{Table, View};
use crate::bolt::{Measure, Plan, WriteError, Writer};
use crate::error::Error;
use crate::etcd_file::ConfState;
use crate::state::Published;

/// The schema that a snapshot says it has: that of etcd 3.7.
const STORAGE_VERSION: &str = "3.7.0";

/// One state, held while it is written out. Holding it for long makes the store file grow under
/// writes.
#[derive(Debug)]
pub struct Export {
    published: Arc<Published>,
    storage_version: String,
    plan: Option<Plan>,
}

impl Export {
    pub(crate) fn new(published: Arc<Published>) -> Self {
        Self {
            published,
            storage_version: STORAGE_VERSION.to_owned(),
            plan: None,
        }
    }

    /// Claims another storage version than `3.7.0`, such as `3.6.0`.
    pub fn claim_storage_version(&mut self, version: &str) {
        version.clone_into(&mut self.storage_version);
        self.plan = None;
    }

    /// The revision of the state.
    pub fn revision(&self) -> i64 {
        self.published.horizon.current
    }

    /// The last log entry that is part of the state.
    pub fn applied(&self) -> Option<LogPosition> {
        self.published.applied
    }

    /// Who votes and who learns in the state.
    pub(crate) fn membership(&self) -> Option<&Membership> {
        self.published.records.membership.as_ref()
    }

    /// Reads everything once to learn the exact size of the file, in bytes.
    pub fn measure(&mut self) -> Result<u64, Error> {
        let mut measure = Measure::default();
        self.walk(&mut measure)?;
        let plan = measure.finish().map_err(failed)?;
        self.plan = Some(plan);
        Ok(plan.size())
    }

    /// Writes the database file, byte-identical for the same state; without the digest that
    /// `etcdctl snapshot save` files end in. Measures first if that was not done. The size of
    /// the file, in bytes.
    pub fn write_to(&mut self, sink: &mut dyn io::Write) -> Result<u64, Error> {
        if self.plan.is_none() {
            self.measure()?;
        }
        let Some(plan) = self.plan else {
            return Err(failed(WriteError::PlanMismatch));
        };
        let mut writer = Writer::new(plan, sink).map_err(failed)?;
        self.walk(&mut writer)?;
        writer.finish().map_err(failed)?;
        Ok(plan.size())
    }

    fn walk(&self, pass: &mut impl Pass) -> Result<(), Error> {
        let ours = self.meta_rows()?;
        for table in Table::ETCD {
            pass.bucket(table.name().as_bytes()).map_err(failed)?;
            if table == Table::Meta {
                walk_merged(&self.published.view, &ours, pass)?;
            } else {
                self.published
                    .view
                    .scan_all(table, |key, value| pass.entry(key, value).map_err(failed))?;
            }
        }
        Ok(())
    }

    /// The rows of `meta` that are not stored but follow from the applied position, in order.
    fn meta_rows(&self) -> Result<Vec<MetaRow>, Error> {
        let mut rows: Vec<MetaRow> = Vec::new();
        if let Some(membership) = &self.published.records.membership {
            let voters = |is_learner| {
                let mut ids: Vec<u64> = membership
                    .seats
                    .iter()
                    .filter(|seat| seat.is_learner == is_learner)
                    .map(|seat| seat.id)
                    .collect();
                ids.sort_unstable();
                ids
            };
            let state = ConfState {
                voters: voters(false),
                learners: voters(true),
                ..ConfState::default()
            };
            let json = serde_json::to_vec(&state).map_err(|error| Error::Format {
                what: "the membership",
                reason: error.to_string(),
            })?;
            rows.push((b"confState", json));
        }
        if let Some(applied) = self.published.applied {
            rows.push((b"consistent_index", applied.index.to_be_bytes().to_vec()));
        }
        rows.push((b"storageVersion", self.storage_version.as_bytes().to_vec()));
        if let Some(applied) = self.published.applied {
            rows.push((b"term", applied.term.to_be_bytes().to_vec()));
        }
        Ok(rows)
    }
}

/// Merges the stored rows of `meta` with ours, which win.
fn walk_merged(view: &View, ours: &[MetaRow], pass: &mut impl Pass) -> Result<(), Error> {
    let mut ours = ours.iter().peekable();
    view.scan_all(Table::Meta, |key, value| {
        while let Some((our_key, our_value)) = ours.next_if(|(our_key, _)| *our_key < key) {
            pass.entry(our_key, our_value).map_err(failed)?;
        }
        if ours.peek().is_some_and(|(our_key, _)| *our_key == key) {
            return Ok(());
        }
        pass.entry(key, value).map_err(failed)
    })?;
    for (key, value) in ours {
        pass.entry(key, value).map_err(failed)?;
    }
    Ok(())
}

/// A row of `meta`.
type MetaRow = (&'static [u8], Vec<u8>);

/// One of the two passes over the state.
trait Pass {
    fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError>;
    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError>;
}

impl Pass for Measure {
    fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError> {
        Self::bucket(self, name)
    }

    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        Self::entry(self, key.len(), value.len())
    }
}

impl<W: io::Write> Pass for Writer<W> {
    fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError> {
        Self::bucket(self, name)
    }

    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.put(key, value)
    }
}

fn failed(error: WriteError) -> Error {
    match error {
        WriteError::Sink(source) => Error::Io {
            doing: "write the snapshot",
            source,
        },
        error => Error::Format {
            what: "the snapshot",
            reason: error.to_string(),
        },
    }
}
