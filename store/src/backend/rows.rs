//! The rows of one write transaction.

use std::ops::Bound;

use bytes::Bytes;
use redb::{CursorError, CursorMut, ReadableTable as _, WriteTransaction};

use crate::error::Error;
use crate::failpoint::{self, Point};

use super::file::backend_error;
use super::head::{Head, Tally};
use super::record;
use super::tables::Table;
use super::view::read_row;

type OpenTable<'txn> = redb::Table<'txn, &'static [u8], &'static [u8]>;

const TABLES: usize = Table::TALLIED + 1;

/// The rows of one write transaction, and the head that will describe them.
pub(crate) struct Rows<'txn> {
    transaction: &'txn WriteTransaction,
    open: [Option<OpenTable<'txn>>; TABLES],
    pub(super) head: Head,
    scratch: Vec<u8>,
    /// Bytes written so far.
    written: u64,
}

impl<'txn> Rows<'txn> {
    pub(super) fn new(transaction: &'txn WriteTransaction, head: &Head) -> Self {
        Self {
            transaction,
            open: [const { None }; TABLES],
            head: *head,
            scratch: Vec::new(),
            written: 0,
        }
    }

    pub(crate) fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    fn table(&mut self, table: Table) -> Result<&mut OpenTable<'txn>, Error> {
        open_slot(self.transaction, &mut self.open, table)
    }

    /// Makes sure the table exists.
    pub(crate) fn create(&mut self, table: Table) -> Result<(), Error> {
        self.table(table).map(|_| ())
    }

    /// Writes a row over what was there.
    pub(crate) fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Error> {
        failpoint::hit(Point::BeforeBucketPut);
        let mut row = std::mem::take(&mut self.scratch);
        let sum = record::seal(table, key, value, &mut row);
        let replaced = insert(self.table(table)?, key, &row)?;
        if let Some(tally) = self.head.tally_mut(table) {
            if let Some((row_len, sum)) = replaced {
                tally.remove(key.len(), row_len, sum);
            }
            tally.add(key.len(), row.len(), sum);
        }
        self.written += u64::try_from(key.len() + row.len()).unwrap_or(u64::MAX);
        self.scratch = row;
        Ok(())
    }

    /// Adds the rows that `fill` pushes behind all that the table holds: they have to come in
    /// order. Many times as fast as [`Rows::put`] for each, and leaves full pages.
    pub(crate) fn append<T>(
        &mut self,
        table: Table,
        fill: impl FnOnce(&mut Appender<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let opened = open_slot(self.transaction, &mut self.open, table)?;
        let end = Bound::<&[u8]>::Unbounded;
        let cursor = opened
            .upper_bound_mut(end)
            .map_err(|source| backend_error("write", source))?;
        let mut appender = Appender {
            table,
            cursor,
            tally: self.head.tally_mut(table),
            row: &mut self.scratch,
            written: &mut self.written,
        };
        let answer = fill(&mut appender)?;
        let closed = appender.cursor.close();
        closed.map_err(|source| backend_error("write", source))?;
        Ok(answer)
    }

    /// Removes a row; whether it was there.
    pub(crate) fn remove(&mut self, table: Table, key: &[u8]) -> Result<bool, Error> {
        let removed = {
            let opened = self.table(table)?;
            let old = opened
                .remove(key)
                .map_err(|source| backend_error("write", source))?;
            old.map(|row| stored_sum(row.value()))
        };
        if let Some((row_len, sum)) = removed {
            if let Some(tally) = self.head.tally_mut(table) {
                tally.remove(key.len(), row_len, sum);
            }
            self.written += u64::try_from(key.len()).unwrap_or(u64::MAX);
        }
        Ok(removed.is_some())
    }

    /// The verified value of a row, changes of this transaction included.
    pub(crate) fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Bytes>, Error> {
        read_row(table, self.table(table)?, key)
    }

    /// Calls `visit` with key and verified value of each row within the bounds, in order, until
    /// it answers `false`.
    pub(crate) fn scan(
        &mut self,
        table: Table,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let range = self
            .table(table)?
            .range::<&[u8]>(bounds)
            .map_err(|source| backend_error("read", source))?;
        for entry in range {
            let (key, row) = entry.map_err(|source| backend_error("read", source))?;
            let (value, _sum) = record::open(table, key.value(), row.value())?;
            if !visit(key.value(), value)? {
                break;
            }
        }
        Ok(())
    }
}

/// Takes rows for the end of a table.
pub(crate) struct Appender<'rows> {
    table: Table,
    cursor: CursorMut<'rows, &'static [u8], &'static [u8]>,
    tally: Option<&'rows mut Tally>,
    row: &'rows mut Vec<u8>,
    written: &'rows mut u64,
}

impl Appender<'_> {
    /// Adds a row; an error when its key is not after all others.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let sum = record::seal(self.table, key, value, self.row);
        let row = self.row.as_slice();
        self.cursor
            .insert_before(key, row)
            .map_err(|source| match source {
                CursorError::UnorderedKey => record::damaged(self.table, key, "not in order"),
                source => backend_error("write", source),
            })?;
        if let Some(tally) = &mut self.tally {
            tally.add(key.len(), row.len(), sum);
        }
        *self.written += u64::try_from(key.len() + row.len()).unwrap_or(u64::MAX);
        Ok(())
    }
}

fn open_slot<'slots, 'txn>(
    transaction: &'txn WriteTransaction,
    open: &'slots mut [Option<OpenTable<'txn>>; TABLES],
    table: Table,
) -> Result<&'slots mut OpenTable<'txn>, Error> {
    let index = table.tally_index().unwrap_or(TABLES - 1);
    let missing = || Error::Format {
        what: "the list of tables",
        reason: "incomplete".to_owned(),
    };
    let slot = open.get_mut(index).ok_or_else(missing)?;
    if slot.is_none() {
        let opened = transaction
            .open_table(table.definition())
            .map_err(|source| backend_error("write", source))?;
        *slot = Some(opened);
    }
    slot.as_mut().ok_or_else(missing)
}

/// Writes a row; length and sum of the one it replaced.
fn insert(
    opened: &mut OpenTable<'_>,
    key: &[u8],
    row: &[u8],
) -> Result<Option<(usize, u32)>, Error> {
    let old = opened
        .insert(key, row)
        .map_err(|source| backend_error("write", source))?;
    Ok(old.map(|old| stored_sum(old.value())))
}

/// Length and stored sum of a row, damaged or not.
fn stored_sum(row: &[u8]) -> (usize, u32) {
    let sum = row
        .split_first_chunk::<{ record::SUM_LEN }>()
        .map_or(0, |(sum, _)| u32::from_be_bytes(*sum));
    (row.len(), sum)
}
