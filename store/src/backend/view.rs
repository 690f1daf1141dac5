//! A read view: the tables as they were at one commit.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use redb::{
    ReadOnlyTable, ReadTransaction, ReadableDatabase as _, ReadableTable,
    ReadableTableMetadata as _,
};

use crate::error::Error;

use super::file::{backend_error, panic_safe};
use super::record;
use super::storage::SafeDatabase;
use super::tables::Table;

type OpenTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// The tables as they were at one commit.
pub(crate) struct View {
    // Dropped before the database is.
    key: OpenTable,
    transaction: ReadTransaction,
    _database: Arc<SafeDatabase>,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl View {
    pub(crate) fn new(database: &Arc<SafeDatabase>) -> Result<Self, Error> {
        panic_safe("read", || {
            let transaction = database
                .get()
                .begin_read()
                .map_err(|source| backend_error("read", source))?;
            let key = transaction
                .open_table(Table::Key.definition())
                .map_err(|source| backend_error("read", source))?;
            Ok(Self {
                key,
                transaction,
                _database: Arc::clone(database),
            })
        })
    }

    fn open(&self, table: Table) -> Result<OpenTable, Error> {
        self.transaction
            .open_table(table.definition())
            .map_err(|source| backend_error("read", source))
    }

    /// The verified value of a row of the `key` table.
    pub(crate) fn key_row(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        panic_safe("read", || read_row(Table::Key, &self.key, key))
    }

    /// The verified value of a row of any table.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, Error> {
        panic_safe("read", || read_row(table, &self.open(table)?, key))
    }

    /// How many rows the table has, by redb's own count.
    pub(crate) fn len(&self, table: Table) -> Result<u64, Error> {
        panic_safe("read", || {
            self.open(table)?
                .len()
                .map_err(|source| backend_error("read", source))
        })
    }

    /// Calls `visit` with key, verified value and checksum of each row within the bounds, in
    /// order, until it answers `false`.
    pub(crate) fn scan(
        &self,
        table: Table,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        mut visit: impl FnMut(&[u8], &[u8], u32) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        panic_safe("read", || {
            let opened = self.open(table)?;
            let range = opened
                .range::<&[u8]>(bounds)
                .map_err(|source| backend_error("read", source))?;
            for entry in range {
                let (key, row) = entry.map_err(|source| backend_error("read", source))?;
                let (value, sum) = record::open(table, key.value(), row.value())?;
                if !visit(key.value(), value, sum)? {
                    break;
                }
            }
            Ok(())
        })
    }

    /// As [`View::scan`] over the whole table.
    pub(crate) fn scan_all(
        &self,
        table: Table,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.scan(
            table,
            (Bound::Unbounded, Bound::Unbounded),
            |key, value, _sum| {
                visit(key, value)?;
                Ok(true)
            },
        )
    }

    /// First and last key of the `key` table.
    pub(crate) fn key_ends(&self) -> Result<Option<(Bytes, Bytes)>, Error> {
        panic_safe("read", || {
            use redb::ReadableTable as _;
            let first = self
                .key
                .first()
                .map_err(|source| backend_error("read", source))?;
            let last = self
                .key
                .last()
                .map_err(|source| backend_error("read", source))?;
            Ok(first.zip(last).map(|((first, _), (last, _))| {
                (
                    Bytes::copy_from_slice(first.value()),
                    Bytes::copy_from_slice(last.value()),
                )
            }))
        })
    }
}

/// The verified value of a row of an open table.
pub(super) fn read_row<T>(table: Table, opened: &T, key: &[u8]) -> Result<Option<Bytes>, Error>
where
    T: ReadableTable<&'static [u8], &'static [u8]>,
{
    let row = opened
        .get(key)
        .map_err(|source| backend_error("read", source))?;
    match row {
        None => Ok(None),
        Some(row) => {
            let (value, _sum) = record::open(table, key, row.value())?;
            Ok(Some(Bytes::copy_from_slice(value)))
        }
    }
}
