//! Reading rows for no other reason than to verify them, a bounded piece at a time.

use std::ops::Bound;

use crate::error::Error;

use super::tables::Table;
use super::view::View;

/// How far a walk over all rows has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Walk {
    /// Place in the list of tables.
    table: usize,
    /// The last row verified in that table.
    after: Option<Vec<u8>>,
}

/// What one piece of a walk verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Piece {
    pub(crate) rows: u64,
    /// Bytes of keys and values.
    pub(crate) bytes: u64,
    /// Whether that was the last piece.
    pub(crate) is_last: bool,
}

impl Walk {
    /// Verifies rows from where the walk stands, until about `bytes_max` are read.
    pub(crate) fn step(&mut self, view: &View, bytes_max: u64) -> Result<Piece, Error> {
        let mut piece = Piece::default();
        while let Some(table) = self.current() {
            if self.verify(view, table, bytes_max, &mut piece)? {
                return Ok(piece);
            }
            self.table += 1;
            self.after = None;
        }
        piece.is_last = true;
        Ok(piece)
    }

    /// The table the walk is in; `None` past the last one.
    fn current(&self) -> Option<Table> {
        Table::ETCD.into_iter().chain([Table::Own]).nth(self.table)
    }

    /// Whether the piece is full before the table ends.
    fn verify(
        &mut self,
        view: &View,
        table: Table,
        bytes_max: u64,
        piece: &mut Piece,
    ) -> Result<bool, Error> {
        let start = self.after.take();
        let from = start.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut is_full = false;
        view.scan(table, (from, Bound::Unbounded), |key, value, _sum| {
            piece.rows += 1;
            piece.bytes += u64::try_from(key.len() + value.len()).unwrap_or(u64::MAX);
            is_full = piece.bytes >= bytes_max;
            if is_full {
                self.after = Some(key.to_vec());
            }
            Ok(!is_full)
        })?;
        Ok(is_full)
    }
}
