//! What a certificate says of its owner, and which ones a revocation list names.
//!
//! The signatures are checked elsewhere; this reads the fields that the TLS library does not give.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::der::{self, Values};

/// `2.5.4.3`, common name.
pub(super) const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
/// `2.5.29.17`, subject alternative names.
pub(super) const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];
/// The field of the extensions.
pub(super) const EXTENSIONS: u8 = 0xa3;
/// The field of the version.
pub(super) const VERSION: u8 = 0xa0;
/// An alternative name that is a host's.
pub(super) const DNS_NAME: u8 = 0x82;
/// An alternative name that is an address.
pub(super) const ADDRESS: u8 = 0x87;

/// Whose a certificate is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Certificate {
    /// The serial number, without leading zeros.
    pub(super) serial: Vec<u8>,
    /// The common name of the subject; empty when there is none.
    pub(super) common_name: String,
    pub(super) dns_names: Vec<String>,
    pub(super) addresses: Vec<IpAddr>,
}

impl Certificate {
    /// Reads one; `None` when the bytes are no certificate.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut outer = Values(Values(bytes).take(der::SEQUENCE)?);
        let mut fields = Values(outer.take(der::SEQUENCE)?);
        fields.take_if(VERSION);
        let serial = number(fields.take(der::INTEGER)?);
        let (_algorithm, _issuer) = (fields.take(der::SEQUENCE)?, fields.take(der::SEQUENCE)?);
        let (_validity, subject) = (fields.take(der::SEQUENCE)?, fields.take(der::SEQUENCE)?);
        let _public_key = fields.take(der::SEQUENCE)?;
        let mut found = Self {
            serial,
            common_name: common_name(subject),
            dns_names: Vec::new(),
            addresses: Vec::new(),
        };
        while let Some((tag, field)) = fields.next() {
            if tag == EXTENSIONS {
                found.read_extensions(Values(field).take(der::SEQUENCE)?)?;
            }
        }
        Some(found)
    }

    fn read_extensions(&mut self, extensions: &[u8]) -> Option<()> {
        let mut extensions = Values(extensions);
        while let Some(extension) = extensions.take_if(der::SEQUENCE) {
            let mut fields = Values(extension);
            if fields.take(der::OBJECT)? != ALTERNATIVE_NAMES {
                continue;
            }
            fields.take_if(der::BOOLEAN);
            let mut names = Values(Values(fields.take(der::OCTET_STRING)?).take(der::SEQUENCE)?);
            while let Some((tag, name)) = names.next() {
                match tag {
                    DNS_NAME => self
                        .dns_names
                        .push(std::str::from_utf8(name).ok()?.to_owned()),
                    ADDRESS => self.addresses.push(address(name)?),
                    _ => {}
                }
            }
        }
        Some(())
    }
}

/// The last common name, as in Go.
fn common_name(subject: &[u8]) -> String {
    let mut found = "";
    let mut sets = Values(subject);
    while let Some(set) = sets.take_if(der::SET) {
        let mut attributes = Values(set);
        while let Some(attribute) = attributes.take_if(der::SEQUENCE) {
            let mut fields = Values(attribute);
            if fields.take(der::OBJECT) == Some(&COMMON_NAME)
                && let Some((_, text)) = fields.next()
            {
                found = std::str::from_utf8(text).unwrap_or_default();
            }
        }
    }
    found.to_owned()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

fn number(digits: &[u8]) -> Vec<u8> {
    let digits = digits.iter().skip_while(|digit| **digit == 0);
    digits.copied().collect()
}

/// The serial numbers that a revocation list names; `None` when the bytes are no such list. As
/// etcd's, the list is believed because it lies in the member's file, whoever signed it.
pub(super) fn revoked(bytes: &[u8]) -> Option<BTreeSet<Vec<u8>>> {
    let mut outer = Values(Values(bytes).take(der::SEQUENCE)?);
    let mut fields = Values(outer.take(der::SEQUENCE)?);
    fields.take_if(der::INTEGER);
    let (_algorithm, _issuer) = (fields.take(der::SEQUENCE)?, fields.take(der::SEQUENCE)?);
    fields.next()?;
    for time in [der::UTC_TIME, der::GENERALIZED_TIME] {
        fields.take_if(time);
    }
    let mut serials = BTreeSet::new();
    let mut entries = Values(fields.take_if(der::SEQUENCE).unwrap_or_default());
    while let Some(entry) = entries.take_if(der::SEQUENCE) {
        serials.insert(number(Values(entry).take(der::INTEGER)?));
    }
    Some(serials)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revocation_list_is_read() {
        let time = der::value(der::UTC_TIME, b"260101000000Z");
        let empty = der::sequence(&[]);
        let entry = |serial: &[u8]| der::sequence(&[der::integer(serial), time.clone()]);
        let list = |entries: &[Vec<u8>]| {
            let mut fields = vec![
                der::integer(&[1]),
                empty.clone(),
                empty.clone(),
                time.clone(),
            ];
            fields.push(time.clone());
            if !entries.is_empty() {
                fields.push(der::sequence(entries));
            }
            der::sequence(&[der::sequence(&fields), empty.clone()])
        };
        assert_eq!(revoked(&list(&[])), Some(BTreeSet::new()));
        let found = revoked(&list(&[entry(&[0x80, 1]), entry(&[7])])).unwrap();
        assert_eq!(found, BTreeSet::from([vec![0x80, 1], vec![7]]));
        let whole = list(&[entry(&[7])]);
        assert_eq!(revoked(&whole[..whole.len() / 2]), None);
        assert_eq!(revoked(b"no list"), None);
    }
}
