//! A key-value record, decoded without copying.

use bytes::Bytes;
use holdfast_proto::etcd::kv;

/// The fields of a stored `mvccpb.KeyValue`, borrowed from its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pair<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Revision that created the key.
    pub create_revision: i64,
    /// Revision of this change.
    pub mod_revision: i64,
    /// Changes since the key was created.
    pub version: i64,
    /// The value.
    pub value: &'a [u8],
    /// The attached lease; 0: none.
    pub lease: i64,
}

impl<'a> Pair<'a> {
    /// Decodes a row's value; `None` when it is not a record of this kind.
    pub fn decode(mut bytes: &'a [u8]) -> Option<Self> {
        let mut pair = Self::default();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            match (tag >> 3, tag & 7) {
                (1, 2) => pair.key = delimited(&mut bytes)?,
                (2, 0) => pair.create_revision = signed(&mut bytes)?,
                (3, 0) => pair.mod_revision = signed(&mut bytes)?,
                (4, 0) => pair.version = signed(&mut bytes)?,
                (5, 2) => pair.value = delimited(&mut bytes)?,
                (6, 0) => pair.lease = signed(&mut bytes)?,
                (1..=6, _) => return None,
                (_, 0) => drop_value(varint(&mut bytes)?),
                (_, 1) => drop_value(take(&mut bytes, 8)?),
                (_, 2) => drop_value(delimited(&mut bytes)?),
                (_, 5) => drop_value(take(&mut bytes, 4)?),
                _ => return None,
            }
        }
        Some(pair)
    }

    /// The same fields, owned.
    pub fn to_key_value(&self) -> kv::KeyValue {
        kv::KeyValue {
            key: Bytes::copy_from_slice(self.key),
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            value: Bytes::copy_from_slice(self.value),
            lease: self.lease,
        }
    }
}

/// Marks a field of a later version as read and not used.
fn drop_value<T>(_value: T) {}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn signed(bytes: &mut &[u8]) -> Option<i64> {
    varint(bytes).map(u64::cast_signed)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (part, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(part)
}

fn delimited<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(bytes)?).ok()?;
    take(bytes, length)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn a_record_reads_as_prost_reads_it() {
        let record = kv::KeyValue {
            key: Bytes::from_static(b"/a\0b"),
            create_revision: 3,
            mod_revision: i64::MAX,
            version: -1,
            value: Bytes::from(vec![7; 300]),
            lease: 1 << 62,
        };
        let bytes = record.encode_to_vec();
        assert_eq!(Pair::decode(&bytes).unwrap().to_key_value(), record);
        assert_eq!(Pair::decode(&[]), Some(Pair::default()));
    }

    #[test]
    fn every_truncation_is_refused_or_a_shorter_record() {
        let record = kv::KeyValue {
            key: Bytes::from_static(b"key"),
            create_revision: 300,
            mod_revision: 301,
            version: 2,
            value: Bytes::from_static(b"value"),
            lease: 0,
        };
        let bytes = record.encode_to_vec();
        for length in 0..bytes.len() {
            let part = &bytes[..length];
            let ours = Pair::decode(part).map(|pair| pair.to_key_value());
            assert_eq!(ours, kv::KeyValue::decode(part).ok(), "{length} bytes");
        }
    }
}
