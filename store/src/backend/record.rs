//! A row on disk: four bytes of CRC-32C over table, key and value, then the value.
//!
//! The sum covers the table and the key, so a row that ends up in another place is as damaged as
//! one whose bits changed.

use crate::error::Error;

use super::tables::Table;

pub(crate) const SUM_LEN: usize = 4;

fn sum(table: Table, key: &[u8], value: &[u8]) -> u32 {
    let length = u64::try_from(key.len()).unwrap_or(u64::MAX);
    let name = crc32c::crc32c(table.name().as_bytes());
    let placed = crc32c::crc32c_append(name, &length.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(placed, key), value)
}

/// Makes the row of `value` in `row` (whose content is replaced) and answers its sum.
pub(crate) fn seal(table: Table, key: &[u8], value: &[u8], row: &mut Vec<u8>) -> u32 {
    let sum = sum(table, key, value);
    row.clear();
    row.reserve(SUM_LEN + value.len());
    row.extend_from_slice(&sum.to_be_bytes());
    row.extend_from_slice(value);
    sum
}

/// The value of a row and its sum, verified.
pub(crate) fn open<'row>(
    table: Table,
    key: &[u8],
    row: &'row [u8],
) -> Result<(&'row [u8], u32), Error> {
    let (stored, value) = row
        .split_first_chunk::<SUM_LEN>()
        .ok_or_else(|| damaged(table, key, "shorter than its sum"))?;
    let stored = u32::from_be_bytes(*stored);
    if stored == sum(table, key, value) {
        Ok((value, stored))
    } else {
        Err(damaged(table, key, "checksum does not match"))
    }
}

pub(crate) fn damaged(table: Table, key: &[u8], reason: &'static str) -> Error {
    Error::Record {
        table: table.name(),
        key: hex::encode(key),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_opens_in_its_own_place_only() {
        let mut row = Vec::new();
        seal(Table::Lease, b"one", b"value", &mut row);
        assert_eq!(open(Table::Lease, b"one", &row).unwrap().0, b"value");
        assert!(open(Table::Lease, b"two", &row).is_err());
        assert!(open(Table::Key, b"one", &row).is_err());
    }

    #[test]
    fn every_flipped_bit_of_a_row_is_found() {
        let mut row = Vec::new();
        seal(Table::Key, b"k", b"some value", &mut row);
        for bit in 0..row.len() * 8 {
            row[bit / 8] ^= 1 << (bit % 8);
            assert!(open(Table::Key, b"k", &row).is_err(), "bit {bit}");
            row[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..row.len() {
            assert!(
                open(Table::Key, b"k", &row[..length]).is_err(),
                "length {length}"
            );
        }
    }
}
