//! HashKV of the newest revision in one pass over the rows.
//!
//! Of the rows at or before the compaction only those count that are alive at the end (see
//! [`crate::mvcc::KvHasher`] for the rules), which nobody knows when they pass by. So each of them
//! is hashed by itself, and the sums are joined at the end: CRC-32C is linear.

use crate::mvcc::RowKey;

/// The name of the hashed table, which goes into the hash first.
const TABLE: &[u8] = b"key";

/// CRC-32C's polynomial, lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// A row at or before the compaction.
#[derive(Debug)]
struct Early {
    sum: u32,
    length: u32,
    /// Whether the compaction leaves it.
    is_left: bool,
    is_alive: bool,
}

/// The hash over rows in ascending order.
#[derive(Debug)]
pub(super) struct RowHash {
    compact_revision: i64,
    early: Vec<Early>,
    late: u32,
    late_length: u64,
}

impl RowHash {
    /// For a file compacted at `compact_revision` (-1: never).
    pub(super) fn new(compact_revision: i64) -> Self {
        Self {
            compact_revision,
            early: Vec::new(),
            late: 0,
            late_length: 0,
        }
    }

    /// Takes a row; answers its place when it stands at or before the compaction.
    pub(super) fn write(&mut self, row: RowKey, key: &[u8], value: &[u8]) -> Option<usize> {
        let length = key.len().saturating_add(value.len());
        if row.revision.main > self.compact_revision {
            self.late = append(self.late, key, value);
            self.late_length += u64::try_from(length).unwrap_or(u64::MAX);
            return None;
        }
        // Never counts: releases of etcd differ in whether a compaction removes it.
        if row.revision.main == self.compact_revision && row.is_tombstone {
            return None;
        }
        self.early.push(Early {
            sum: append(0, key, value),
            // A page, which holds a row, is shorter than that.
            length: u32::try_from(length).unwrap_or(u32::MAX),
            is_left: !row.is_tombstone,
            is_alive: !row.is_tombstone,
        });
        Some(self.early.len() - 1)
    }

    /// The row at `place` was superseded, or its key deleted, at the revision `main`.
    pub(super) fn supersede(&mut self, place: usize, main: i64) {
        if let Some(early) = self.early.get_mut(place) {
            early.is_alive = false;
            early.is_left &= main > self.compact_revision;
        }
    }

    /// The hash. With no key alive at all, superseded rows count too that the compaction leaves.
    pub(super) fn finish(&self, has_keys: bool) -> u32 {
        let mut shift = Shift::default();
        let mut sum = crc32c::crc32c(TABLE);
        for early in &self.early {
            if early.is_alive || (early.is_left && !has_keys) {
                sum = shift.over(sum, u64::from(early.length)) ^ early.sum;
            }
        }
        shift.over(sum, self.late_length) ^ self.late
    }
}

fn append(sum: u32, key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(sum, key), value)
}

/// Moves a sum over bytes that follow it: multiplies by a power of x. Rows are often of one
/// length, so the last power is kept.
#[derive(Debug)]
struct Shift {
    length: u64,
    power: u32,
}

/// The polynomial 1.
const ONE: u32 = 1 << 31;

impl Default for Shift {
    fn default() -> Self {
        Self {
            length: 0,
            power: ONE,
        }
    }
}

impl Shift {
    fn over(&mut self, sum: u32, length: u64) -> u32 {
        if self.length != length {
            self.length = length;
            self.power = power(length);
        }
        multiply(self.power, sum)
    }
}

/// x to the power of eight times `length`, by squaring.
fn power(mut length: u64) -> u32 {
    let mut result = ONE;
    let mut square = ONE >> 8;
    while length > 0 {
        if length & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        length >>= 1;
    }
    result
}

/// The product modulo the polynomial.
fn multiply(left: u32, mut right: u32) -> u32 {
    let mut product = 0;
    for bit in (0..32).rev() {
        let is_set = (left >> bit) & 1;
        product ^= right & is_set.wrapping_neg();
        right = (right >> 1) ^ (POLYNOMIAL & (right & 1).wrapping_neg());
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mvcc::{Keep, KvHasher, Revision};

    #[test]
    fn joined_sums_are_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..5000_u32)
            .map(|n| u8::try_from(n % 253).unwrap())
            .collect();
        let mut shift = Shift::default();
        for cut in [0, 1, 7, 8, 255, 256, 257, 4999, 5000] {
            let (left, right) = bytes.split_at(cut);
            let length = u64::try_from(right.len()).unwrap();
            let joined = shift.over(crc32c::crc32c(left), length) ^ crc32c::crc32c(right);
            assert_eq!(joined, crc32c::crc32c(&bytes), "cut at {cut}");
        }
    }

    /// Keys are single letters; an upper-case one deletes the key.
    fn both(compact_revision: i64, history: &str) -> [u32; 2] {
        let rows: Vec<(RowKey, [u8; 18], String)> = history
            .char_indices()
            .map(|(index, letter)| {
                let revision = Revision::new(i64::try_from(index).unwrap() + 2, 0);
                let is_tombstone = letter.is_uppercase();
                let mut key = [0; 18];
                key[..17].copy_from_slice(&revision.encode());
                key[17] = if is_tombstone { b't' } else { 0 };
                let name = letter.to_lowercase().to_string().repeat(index + 1);
                let row = RowKey {
                    revision,
                    is_tombstone,
                };
                (row, key, name)
            })
            .collect();
        let newest = |letter: &str| {
            rows.iter()
                .rev()
                .find(|(_, _, name)| name.starts_with(letter))
        };
        let mut alive: Vec<Revision> = Vec::new();
        let mut has_keys = false;
        for letter in ["a", "b", "c"] {
            if let Some((row, _, _)) = newest(letter).filter(|(row, _, _)| !row.is_tombstone) {
                has_keys = true;
                alive.push(row.revision);
            }
        }
        if alive.is_empty() {
            // What was alive at the compaction.
            let early = |letter: &str| {
                rows.iter().rfind(|(row, _, name)| {
                    row.revision.main <= compact_revision && name.starts_with(letter)
                })
            };
            let early = ["a", "b", "c"].into_iter().filter_map(early);
            let left = early.filter(|(row, _, _)| !row.is_tombstone);
            alive.extend(left.map(|(row, _, _)| row.revision));
        }
        let keep = if alive.is_empty() {
            Keep::of_nothing()
        } else {
            Keep::new(alive)
        };
        let mut two_passes = KvHasher::new(compact_revision, i64::MAX, &keep);
        let mut one_pass = RowHash::new(compact_revision);
        let mut places = std::collections::BTreeMap::new();
        for (row, key, name) in &rows {
            two_passes.write(*row, key, name.as_bytes());
            let place = one_pass.write(*row, key, name.as_bytes());
            let letter = name.chars().next();
            if let Some(Some(before)) = places.insert(letter, place) {
                one_pass.supersede(before, row.revision.main);
            }
        }
        [two_passes.finish(), one_pass.finish(has_keys)]
    }

    #[test]
    fn one_pass_hashes_as_two_do_whatever_the_compaction() {
        for history in [
            "abc", "aaa", "abAab", "abcABC", "ABC", "aAbBcCa", "aabbccA", "",
        ] {
            for compact_revision in -1..10 {
                let [two_passes, one_pass] = both(compact_revision, history);
                assert_eq!(
                    one_pass, two_passes,
                    "{history} compacted at {compact_revision}"
                );
            }
        }
    }
}
