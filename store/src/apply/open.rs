//! Reading a store file at start, or after it was replaced.

use holdfast_proto::etcd::lease as record;
use prost::Message as _;

use crate::backend::{Backend, Table, View};
use crate::error::Error;
use crate::failpoint::{self, Point};
use crate::lease::{LeaseId, Lessor};
use crate::mvcc::{Compaction, Horizon, Index, RowKey, load};
use crate::state::Published;

use super::StateOptions;
use super::quota;
use super::records::Records;
use super::step::{FINISHED_COMPACT_KEY, SCHEDULED_COMPACT_KEY};

/// What a store file says.
pub(super) struct Opened {
    pub(super) index: Index,
    pub(super) lessor: Lessor,
    pub(super) records: Records,
    pub(super) revision: i64,
    /// The last compaction scheduled; -1: none.
    pub(super) compacted: i64,
    /// A compaction that was scheduled and not finished.
    pub(super) compaction: Option<Compaction>,
}

/// Reads and verifies everything.
pub(super) fn read(backend: &Backend, options: &StateOptions, epoch: u64) -> Result<Opened, Error> {
    let view = backend.view()?;
    let head = backend.head();
    let threads = if options.load_threads > 0 {
        options.load_threads
    } else {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    };
    let loaded = load(&view, threads, epoch)?;
    let tally = head.tally(Table::Key);
    if loaded.rows != tally.rows || loaded.sum != tally.sum {
        return Err(unequal(Table::Key));
    }
    for table in Table::ETCD {
        if table != Table::Key && sum(&view, table)? != head.tally(table).sum {
            return Err(unequal(table));
        }
    }
    let finished = finished_compaction(&view)?.unwrap_or(-1);
    let scheduled = compaction(&view, SCHEDULED_COMPACT_KEY)?.unwrap_or(-1);
    let compacted = finished.max(scheduled);
    let revision = if failpoint::is_on(Point::BugRevisionFromRows) {
        loaded.newest.max(1)
    } else {
        loaded.newest.max(compacted).max(head.revision).max(1)
    };
    let mut index = loaded.index;
    if compacted > 0 {
        index.begin_compaction(compacted);
    }
    let mut lessor = load_leases(&view)?;
    for (key, lease) in loaded.leased {
        lessor.reattach(&bytes::Bytes::from(key), LeaseId(lease));
    }
    let compaction = (scheduled > finished).then(|| Compaction::new(scheduled, finished, false));
    let records = Records::load(&view)?;
    Ok(Opened {
        index,
        lessor,
        records,
        revision,
        compacted,
        compaction,
    })
}

/// What readers may see of the backend as it is.
pub(super) fn published(
    backend: &Backend,
    records: &Records,
    revision: i64,
    compacted: i64,
    epoch: u64,
) -> Result<Published, Error> {
    Ok(Published {
        horizon: Horizon {
            current: revision,
            compacted,
            epoch,
        },
        view: backend.view()?,
        applied: backend.head().applied,
        records: records.clone(),
        in_use: quota::in_use(backend.head()),
        home: backend.home().clone(),
    })
}

/// The last compaction scheduled, finished or not; -1: none.
pub(super) fn compacted(view: &View) -> Result<i64, Error> {
    let finished = finished_compaction(view)?;
    let scheduled = compaction(view, SCHEDULED_COMPACT_KEY)?;
    Ok(finished.max(scheduled).unwrap_or(-1))
}

/// The compaction whose rows are gone.
pub(super) fn finished_compaction(view: &View) -> Result<Option<i64>, Error> {
    compaction(view, FINISHED_COMPACT_KEY)
}

fn compaction(view: &View, key: &'static [u8]) -> Result<Option<i64>, Error> {
    let Some(value) = view.get(Table::Meta, key)? else {
        return Ok(None);
    };
    let row = RowKey::decode(&value).ok_or_else(|| Error::Record {
        table: Table::Meta.name(),
        key: hex::encode(key),
        reason: "not a revision",
    })?;
    Ok(Some(row.revision.main))
}

fn load_leases(view: &View) -> Result<Lessor, Error> {
    let mut lessor = Lessor::default();
    view.scan_all(Table::Lease, |key, value| {
        let lease = record::Lease::decode(value).map_err(|_undecodable| Error::Record {
            table: Table::Lease.name(),
            key: hex::encode(key),
            reason: "not a lease",
        })?;
        lessor.grant(LeaseId(lease.id), lease.ttl, lease.remaining_ttl);
        Ok(())
    })?;
    Ok(lessor)
}

fn sum(view: &View, table: Table) -> Result<u64, Error> {
    let mut total = 0_u64;
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    view.scan(table, all, |_key, _value, sum| {
        total = total.wrapping_add(u64::from(sum));
        Ok(true)
    })?;
    Ok(total)
}

fn unequal(table: Table) -> Error {
    Error::Format {
        what: "the store file",
        reason: format!("rows of table {} are lost or stale", table.name()),
    }
}
