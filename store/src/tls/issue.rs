//! Making certificates: for `--peer-auto-tls`, and for tests of everything else.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::certificate::{ADDRESS, ALTERNATIVE_NAMES, COMMON_NAME, DNS_NAME, EXTENSIONS, VERSION};
use super::der::{self, sequence, value};

/// The kind of key made here.
const ALGORITHM: &EcdsaSigningAlgorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
/// `1.2.840.10045.4.3.2`, ECDSA with SHA-256.
const SIGNATURE: [u8; 8] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/// `1.2.840.10045.2.1`, a key on an elliptic curve.
const CURVE_KEY: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// `1.2.840.10045.3.1.7`, the curve P-256.
const P256: [u8; 8] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// `2.5.4.10`, organization.
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];
/// `2.5.29.19`, `2.5.29.15` and `2.5.29.37`: whether it is an authority, and what the key is for.
const BASIC_CONSTRAINTS: [u8; 3] = [0x55, 0x1d, 0x13];
const KEY_USAGE: [u8; 3] = [0x55, 0x1d, 0x0f];
const EXTENDED_KEY_USAGE: [u8; 3] = [0x55, 0x1d, 0x25];
/// `1.3.6.1.5.5.7.3.1` and `.2`: servers and clients.
const SERVER: [u8; 8] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT: [u8; 8] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
/// Signing; enciphering keys. Five bits are not used.
const USES_OF_MEMBER: [u8; 2] = [5, 0b1010_0000];
/// Signing certificates; signing revocation lists. One bit is not used.
const USES_OF_AUTHORITY: [u8; 2] = [1, 0b0000_0110];
/// Bytes of a serial number.
const SERIAL_BYTES: usize = 16;

/// The machine has no randomness, or no memory.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("no certificate can be made")]
pub struct NotIssued;

impl From<aws_lc_rs::error::Unspecified> for NotIssued {
    fn from(_: aws_lc_rs::error::Unspecified) -> Self {
        Self
    }
}

/// What a certificate is to say.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The common name; may be empty.
    pub common_name: String,
    /// The hosts and addresses it is for.
    pub hosts: Vec<String>,
    /// When it begins to be valid, since the start of 1970.
    pub begins: Duration,
    /// For how long it is.
    pub lasts: Duration,
}

/// A certificate with its key.
pub struct Issued {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    serial: [u8; SERIAL_BYTES],
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Issued")
    }
}

impl Issued {
    /// The certificate, PEM.
    pub fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    /// The private key, PEM.
    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", self.key.secret_pkcs8_der())
    }

    pub(super) fn pair(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivateKeyDer::Pkcs8(self.key.clone_key());
        (vec![self.certificate.clone()], key)
    }
}

/// Signs certificates.
pub struct Authority {
    own: Issued,
    name: Vec<u8>,
    key: EcdsaKeyPair,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// One with a new key, which vouches for itself.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new(subject: &Subject) -> Result<Self, NotIssued> {
        let key = EcdsaKeyPair::generate(ALGORITHM)?;
        let name = name(&subject.common_name);
        let own = sign(subject, &key, true, &name, &key)?;
        Ok(Self { own, name, key })
    }

    /// Its certificate, PEM.
    pub fn certificate_pem(&self) -> String {
        self.own.certificate_pem()
    }

    /// A certificate of a member, with a new key.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn issue(&self, subject: &Subject) -> Result<Issued, NotIssued> {
        let key = EcdsaKeyPair::generate(ALGORITHM)?;
        sign(subject, &key, false, &self.name, &self.key)
    }

    /// A list that revokes certificates, PEM.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn revoke(&self, revoked: &[&Issued], at: Duration) -> Result<String, NotIssued> {
        let entry = |issued: &&Issued| sequence(&[der::integer(&issued.serial), time(at)]);
        let mut fields = vec![
            der::integer(&[1]),
            sequence(&[value(der::OBJECT, &SIGNATURE)]),
            self.name.clone(),
            time(at),
        ];
        if !revoked.is_empty() {
            fields.push(sequence(&revoked.iter().map(entry).collect::<Vec<_>>()));
        }
        Ok(pem("X509 CRL", &signed(sequence(&fields), &self.key)?))
    }
}

/// A member's certificate that vouches for itself.
///
/// # Errors
/// When no key can be made.
pub fn self_signed(subject: &Subject) -> Result<Issued, NotIssued> {
    let key = EcdsaKeyPair::generate(ALGORITHM)?;
    sign(subject, &key, false, &name(&subject.common_name), &key)
}

fn sign(
    subject: &Subject,
    key: &EcdsaKeyPair,
    is_authority: bool,
    issuer: &[u8],
    issuer_key: &EcdsaKeyPair,
) -> Result<Issued, NotIssued> {
    let mut serial = [0; SERIAL_BYTES];
    aws_lc_rs::rand::fill(&mut serial)?;
    // Neither zero nor negative.
    serial[0] = (serial[0] & 0x7f) | 0x40;
    let algorithm = sequence(&[value(der::OBJECT, &CURVE_KEY), value(der::OBJECT, &P256)]);
    let public_key = [&[0], key.public_key().as_ref()].concat();
    let fields = [
        value(VERSION, &der::integer(&[2])),
        der::integer(&serial),
        sequence(&[value(der::OBJECT, &SIGNATURE)]),
        issuer.to_vec(),
        sequence(&[time(subject.begins), time(subject.begins + subject.lasts)]),
        name(&subject.common_name),
        sequence(&[algorithm, value(der::BIT_STRING, &public_key)]),
        value(EXTENSIONS, &extensions(&subject.hosts, is_authority)),
    ];
    let certificate = signed(sequence(&fields), issuer_key)?;
    let document = key.to_pkcs8v1()?;
    Ok(Issued {
        certificate: certificate.into(),
        key: document.as_ref().to_vec().into(),
        serial,
    })
}

fn signed(content: Vec<u8>, key: &EcdsaKeyPair) -> Result<Vec<u8>, NotIssued> {
    let signature = key.sign(&SystemRandom::new(), &content)?;
    let signature = [&[0], signature.as_ref()].concat();
    Ok(sequence(&[
        content,
        sequence(&[value(der::OBJECT, &SIGNATURE)]),
        value(der::BIT_STRING, &signature),
    ]))
}

/// As etcd names those it makes, with a common name when there is one.
fn name(common_name: &str) -> Vec<u8> {
    let attribute = |kind: &[u8], text: &str| {
        let parts = [
            value(der::OBJECT, kind),
            value(der::UTF8_STRING, text.as_bytes()),
        ];
        value(der::SET, &sequence(&parts))
    };
    let mut attributes = vec![attribute(&ORGANIZATION, "etcd")];
    if !common_name.is_empty() {
        attributes.push(attribute(&COMMON_NAME, common_name));
    }
    sequence(&attributes)
}

fn extensions(hosts: &[String], is_authority: bool) -> Vec<u8> {
    let extension = |kind: &[u8], is_critical: bool, content: &[u8]| {
        let mut parts = vec![value(der::OBJECT, kind)];
        if is_critical {
            parts.push(value(der::BOOLEAN, &[0xff]));
        }
        parts.push(value(der::OCTET_STRING, content));
        sequence(&parts)
    };
    let (constraints, uses) = if is_authority {
        (sequence(&[value(der::BOOLEAN, &[0xff])]), USES_OF_AUTHORITY)
    } else {
        (sequence(&[]), USES_OF_MEMBER)
    };
    let mut all = vec![
        extension(&BASIC_CONSTRAINTS, true, &constraints),
        extension(&KEY_USAGE, true, &value(der::BIT_STRING, &uses)),
    ];
    if !is_authority {
        let purposes = [value(der::OBJECT, &SERVER), value(der::OBJECT, &CLIENT)];
        all.push(extension(&EXTENDED_KEY_USAGE, false, &sequence(&purposes)));
    }
    if !hosts.is_empty() {
        let named = |host: &String| match host.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => value(ADDRESS, &ip.octets()),
            Ok(IpAddr::V6(ip)) => value(ADDRESS, &ip.octets()),
            Err(_) => value(DNS_NAME, host.as_bytes()),
        };
        let names: Vec<Vec<u8>> = hosts.iter().map(named).collect();
        all.push(extension(&ALTERNATIVE_NAMES, false, &sequence(&names)));
    }
    sequence(&all)
}

/// A second of universal time; until 2049 with two digits of the year, as the standard wants it.
fn time(since_1970: Duration) -> Vec<u8> {
    let seconds = since_1970.as_secs();
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(day);
    let clock = format!(
        "{month:02}{day:02}{:02}{:02}{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    if year < 2050 {
        value(
            der::UTC_TIME,
            format!("{:02}{clock}", year % 100).as_bytes(),
        )
    } else {
        value(
            der::GENERALIZED_TIME,
            format!("{year:04}{clock}").as_bytes(),
        )
    }
}

/// Year, month and day of a day after 1970-01-01.
fn date(day: u64) -> (u64, u64, u64) {
    // Counted from 0000-03-01: leap days come last.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (of_month, month) = (
        day - (153 * month + 2) / 5 + 1,
        if month < 10 { month + 3 } else { month - 9 },
    );
    (era * 400 + year + u64::from(month <= 2), month, of_month)
}

fn pem(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    let lines = lines.join("\n");
    format!("-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::super::certificate::Certificate;
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (day, date_of_day) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_788, (2026, 12, 1)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(day), date_of_day, "{day}");
        }
    }

    #[test]
    fn a_certificate_says_what_it_was_issued_for() {
        let subject = Subject {
            common_name: "m1".to_owned(),
            hosts: ["a.example", "127.0.0.1", "::1"]
                .map(str::to_owned)
                .to_vec(),
            begins: Duration::ZERO,
            lasts: Duration::from_hours(1),
        };
        let authority = Authority::new(&subject).unwrap();
        let issued = authority.issue(&subject).unwrap();
        let read = Certificate::read(&issued.certificate).unwrap();
        assert_eq!(read.common_name, "m1");
        assert_eq!(read.serial, issued.serial);
        assert_eq!(read.dns_names, ["a.example"]);
        let addresses: Vec<String> = read.addresses.iter().map(IpAddr::to_string).collect();
        assert_eq!(addresses, ["127.0.0.1", "::1"]);
        let half = issued.certificate.len() / 2;
        assert_eq!(Certificate::read(&issued.certificate[..half]), None);
    }
}
