//! Positions in the store's history, and their stored form.

use std::fmt;

const PLAIN_LEN: usize = 17;
const TOMBSTONE_LEN: usize = 18;
const SEPARATOR: u8 = b'_';
const TOMBSTONE_MARK: u8 = b't';

/// A position in the store's history: all changes of one request share `main`, `sub` counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision {
    /// Which request, from 2 on; 1 is the empty store.
    pub main: i64,
    /// Which change within the request, from 0 on.
    pub sub: i64,
}

impl Revision {
    /// The revision of change number `sub` of request `main`.
    pub const fn new(main: i64, sub: i64) -> Self {
        Self { main, sub }
    }

    /// The 17 bytes of a put: `main`, an underscore, `sub`, both big-endian.
    pub fn encode(self) -> [u8; 17] {
        let mut bytes = [0; PLAIN_LEN];
        let (main, rest) = bytes.split_at_mut(8);
        main.copy_from_slice(&self.main.to_be_bytes());
        if let Some((separator, sub)) = rest.split_first_mut() {
            *separator = SEPARATOR;
            sub.copy_from_slice(&self.sub.to_be_bytes());
        }
        bytes
    }

    /// The 18 bytes of a delete: as [`Revision::encode`], and the mark of a tombstone.
    pub fn encode_tombstone(self) -> [u8; 18] {
        let mut bytes = [TOMBSTONE_MARK; TOMBSTONE_LEN];
        let (plain, _mark) = bytes.split_at_mut(PLAIN_LEN);
        plain.copy_from_slice(&self.encode());
        bytes
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.main, self.sub)
    }
}

/// The key of a row in the `key` table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// Where in the history.
    pub revision: Revision,
    /// Whether the row marks a delete.
    pub is_tombstone: bool,
}

impl RowKey {
    /// Reads 17 or 18 bytes; `None` when they are not a row key (wrong length, separator or mark,
    /// or a negative number).
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (plain, mark) = bytes.split_at_checked(PLAIN_LEN)?;
        let is_tombstone = match mark {
            [] => false,
            [TOMBSTONE_MARK] => true,
            _ => return None,
        };
        let (main, rest) = plain.split_first_chunk::<8>()?;
        let (separator, sub) = rest.split_first()?;
        let (sub, _) = sub.split_first_chunk::<8>()?;
        let main = i64::from_be_bytes(*main);
        let sub = i64::from_be_bytes(*sub);
        (*separator == SEPARATOR && main >= 0 && sub >= 0).then_some(Self {
            revision: Revision { main, sub },
            is_tombstone,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_keys_order_as_revisions_do() {
        let revisions = [
            Revision::new(2, 0),
            Revision::new(2, 1),
            Revision::new(255, 0),
            Revision::new(256, 0),
        ];
        let mut last: Vec<u8> = Vec::new();
        for revision in revisions {
            assert!(revision.encode().as_slice() > last.as_slice());
            assert!(revision.encode_tombstone().as_slice() > revision.encode().as_slice());
            last = revision.encode_tombstone().to_vec();
        }
    }

    #[test]
    fn row_keys_come_back_as_they_were() {
        let revision = Revision::new(i64::MAX, 7);
        let plain = RowKey {
            revision,
            is_tombstone: false,
        };
        let tombstone = RowKey {
            revision,
            is_tombstone: true,
        };
        assert_eq!(RowKey::decode(&revision.encode()), Some(plain));
        assert_eq!(
            RowKey::decode(&revision.encode_tombstone()),
            Some(tombstone)
        );
    }

    #[test]
    fn bytes_that_are_no_row_key_are_refused() {
        let mut negative = Revision::new(1, 0).encode();
        negative[0] = 0x80;
        let mut separator = Revision::new(1, 0).encode();
        separator[8] = b'-';
        let mut mark = Revision::new(1, 0).encode_tombstone();
        mark[17] = b'x';
        let long = [&Revision::new(1, 0).encode_tombstone()[..], b"t"].concat();
        for bytes in [&negative[..], &separator, &mark, &long, b"", b"short"] {
            assert_eq!(RowKey::decode(bytes), None);
        }
    }
}
