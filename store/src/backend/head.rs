//! The one row that says what the file holds: format, position in the log, tallies.

use crate::apply::LogPosition;
use crate::error::Error;

use super::tables::Table;

/// Version of the layout of tables and rows.
pub(crate) const FORMAT: u32 = 1;
/// Key of the head in our own table.
pub(crate) const HEAD_KEY: &[u8] = b"head";
/// Key of the encoded membership in our own table.
pub(crate) const MEMBERSHIP_KEY: &[u8] = b"membership";

/// What a table holds: redb's own count is compared with it when the file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) rows: u64,
    /// Bytes of keys and rows.
    pub(crate) bytes: u64,
    /// Wrapping sum of the rows' checksums: order does not matter, a lost or stale row does.
    pub(crate) sum: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, key_len: usize, row_len: usize, sum: u32) {
        self.rows = self.rows.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(size(key_len, row_len));
        self.sum = self.sum.wrapping_add(u64::from(sum));
    }

    pub(crate) fn remove(&mut self, key_len: usize, row_len: usize, sum: u32) {
        self.rows = self.rows.wrapping_sub(1);
        self.bytes = self.bytes.wrapping_sub(size(key_len, row_len));
        self.sum = self.sum.wrapping_sub(u64::from(sum));
    }
}

fn size(key_len: usize, row_len: usize) -> u64 {
    u64::try_from(key_len.saturating_add(row_len)).unwrap_or(u64::MAX)
}

/// The head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Head {
    pub(crate) applied: Option<LogPosition>,
    /// The store's revision.
    pub(crate) revision: i64,
    pub(crate) tallies: [Tally; Table::TALLIED],
}

impl Head {
    pub(crate) fn tally(&self, table: Table) -> Tally {
        table
            .tally_index()
            .and_then(|index| self.tallies.get(index))
            .copied()
            .unwrap_or_default()
    }

    pub(crate) fn tally_mut(&mut self, table: Table) -> Option<&mut Tally> {
        table
            .tally_index()
            .and_then(|index| self.tallies.get_mut(index))
    }

    /// Bytes of all keys and rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.tallies
            .iter()
            .fold(0, |sum, tally| sum.wrapping_add(tally.bytes))
    }

    /// Rows of all tables.
    pub(crate) fn rows(&self) -> u64 {
        self.tallies
            .iter()
            .fold(0, |sum, tally| sum.wrapping_add(tally.rows))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4 + 1 + 24 + 8 + Table::TALLIED * 24);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.push(u8::from(self.applied.is_some()));
        let applied = self.applied.unwrap_or(LogPosition {
            term: 0,
            node: 0,
            index: 0,
        });
        for number in [applied.term, applied.node, applied.index] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.revision.to_le_bytes());
        for tally in &self.tallies {
            for number in [tally.rows, tally.bytes, tally.sum] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader { rest: bytes };
        let format = u32::from_le_bytes(reader.take()?);
        if format != FORMAT {
            return Err(wrong(format!(
                "version {format}, this program knows {FORMAT}"
            )));
        }
        let has_applied = match reader.take::<1>()? {
            [0] => false,
            [1] => true,
            _ => return Err(wrong("flag is neither 0 nor 1".to_owned())),
        };
        let (term, node, index) = (reader.number()?, reader.number()?, reader.number()?);
        let revision = i64::from_le_bytes(reader.take()?);
        let mut tallies = [Tally::default(); Table::TALLIED];
        for tally in &mut tallies {
            tally.rows = reader.number()?;
            tally.bytes = reader.number()?;
            tally.sum = reader.number()?;
        }
        if !reader.rest.is_empty() || revision < 0 {
            return Err(wrong("length or revision".to_owned()));
        }
        let applied = has_applied.then_some(LogPosition { term, node, index });
        Ok(Self {
            applied,
            revision,
            tallies,
        })
    }
}

struct Reader<'bytes> {
    rest: &'bytes [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or_else(|| wrong("too short".to_owned()))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn number(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.take()?))
    }
}

fn wrong(reason: String) -> Error {
    Error::Format {
        what: "the head of the store file",
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_back_as_it_was() {
        let mut head = Head {
            applied: Some(LogPosition {
                term: 3,
                node: 4,
                index: 5,
            }),
            revision: 6,
            ..Head::default()
        };
        head.tally_mut(Table::Meta).unwrap().add(7, 8, 9);
        assert_eq!(Head::decode(&head.encode()).unwrap(), head);
        assert_eq!(
            Head::decode(&Head::default().encode()).unwrap(),
            Head::default()
        );
    }

    #[test]
    fn a_head_of_another_version_or_length_is_refused() {
        let bytes = Head::default().encode();
        for length in 0..bytes.len() {
            assert!(Head::decode(&bytes[..length]).is_err());
        }
        let mut other = bytes;
        other[0] = 2;
        let text = Head::decode(&other).unwrap_err().to_string();
        assert!(text.contains("version 2"), "{text}");
    }
}
