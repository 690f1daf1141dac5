//! Signed records: two lines of JSON, the record and its ed25519 signature.
//!
//! The signature covers the exact bytes of the first line behind a context that names format and
//! version, so nothing needs a canonical form and no record passes for one of another format. The
//! digest of a record, which chains use, covers the whole object.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ed25519_dalek::{Signature, Signer as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::key::{Signer, Trust, Verifier};

/// A record type: its format name and the version written.
pub trait Record: Serialize + DeserializeOwned {
    /// The value of `format`.
    const FORMAT: &'static str;
    /// The value of `version`; later ones are refused.
    const VERSION: u64;
}

/// A record whose signature holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed<T> {
    /// The record.
    pub record: T,
    /// Digest of the whole object.
    pub digest: Digest,
    /// The key that signed it.
    pub by: Verifier,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    format: String,
    version: u64,
    record: T,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignatureLine {
    algorithm: String,
    key: String,
    signature: String,
}

#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

/// The object that holds `record`.
pub fn sign<T: Record>(record: &T, signer: &Signer) -> Result<Bytes> {
    let envelope = Envelope {
        format: T::FORMAT.to_owned(),
        version: T::VERSION,
        record,
    };
    let encode = |error: serde_json::Error| Error::malformed(T::FORMAT, error.to_string());
    let mut object = serde_json::to_vec(&envelope).map_err(encode)?;
    let signature = signer.key().sign(&message(T::FORMAT, T::VERSION, &object));
    let line = SignatureLine {
        algorithm: "ed25519".to_owned(),
        key: hex::encode(signer.verifier().key().as_bytes()),
        signature: STANDARD.encode(signature.to_bytes()),
    };
    object.push(b'\n');
    object.extend(serde_json::to_vec(&line).map_err(encode)?);
    object.push(b'\n');
    Ok(object.into())
}

/// Reads an object back: format, version, signature and trust are checked before the record.
pub fn open<T: Record>(object: &str, bytes: &[u8], trust: &Trust) -> Result<Signed<T>> {
    let malformed = |reason: &str| Error::malformed(object, reason);
    let (line, signature_line) = split(bytes).ok_or_else(|| malformed("not two lines of JSON"))?;
    let head: Head = serde_json::from_slice(line).map_err(|error| malformed(&error.to_string()))?;
    if head.format != T::FORMAT {
        return Err(malformed(&format!(
            "format is {:?}, not {:?}",
            head.format,
            T::FORMAT
        )));
    }
    if head.version > T::VERSION {
        return Err(Error::UnsupportedVersion {
            object: object.to_owned(),
            version: head.version,
            supported: T::VERSION,
        });
    }
    let by = check_signature(
        object,
        &message(T::FORMAT, head.version, line),
        signature_line,
        trust,
    )?;
    let envelope: Envelope<T> =
        serde_json::from_slice(line).map_err(|error| malformed(&error.to_string()))?;
    Ok(Signed {
        record: envelope.record,
        digest: Digest::of(bytes),
        by,
    })
}

/// The record of an object whose signature nobody looked at.
pub(crate) fn read_unverified<T: Record>(object: &str, bytes: &[u8]) -> Result<T> {
    let malformed = |reason: &str| Error::malformed(object, reason);
    let (line, _) = split(bytes).ok_or_else(|| malformed("not two lines of JSON"))?;
    let envelope: Envelope<T> =
        serde_json::from_slice(line).map_err(|error| malformed(&error.to_string()))?;
    if envelope.format != T::FORMAT {
        return Err(malformed(&format!("format is {:?}", envelope.format)));
    }
    Ok(envelope.record)
}

/// Checks that a trusted key signed the record at the beginning of an object, whatever its format:
/// for whoever passes it on and does not read it. `line_bytes_max` bounds each of its two lines.
/// Returns how many bytes the record has.
pub(crate) fn vouch(
    object: &str,
    bytes: &[u8],
    trust: &Trust,
    line_bytes_max: usize,
) -> Result<usize> {
    let malformed = |reason: &str| Error::malformed(object, reason);
    let mut rest = bytes;
    let mut lines = Vec::with_capacity(2);
    for _ in 0..2 {
        let searched = rest.get(..line_bytes_max).unwrap_or(rest);
        let end = searched.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| malformed("does not begin with two lines"))?;
        let (line, after) = rest.split_at(end);
        lines.push(line);
        rest = after.get(1..).unwrap_or_default();
    }
    let [line, signature_line] = lines.as_slice() else {
        return Err(malformed("does not begin with two lines"));
    };
    let head: Head = serde_json::from_slice(line).map_err(|error| malformed(&error.to_string()))?;
    let message = message(&head.format, head.version, line);
    check_signature(object, &message, signature_line, trust)?;
    Ok(bytes.len().saturating_sub(rest.len()))
}

fn check_signature(
    object: &str,
    message: &[u8],
    signature_line: &[u8],
    trust: &Trust,
) -> Result<Verifier> {
    let refused = |reason: &str| Error::Signature {
        object: object.to_owned(),
        reason: reason.to_owned(),
    };
    let parsed: SignatureLine = serde_json::from_slice(signature_line)
        .map_err(|_reason| refused("the signature line cannot be read"))?;
    // One record has one form: hexadecimal in capitals and the like would be a second digest.
    if serde_json::to_vec(&parsed).ok().as_deref() != Some(signature_line) {
        return Err(refused("the signature line is not in its own form"));
    }
    if parsed.algorithm != "ed25519" {
        return Err(refused("unknown algorithm"));
    }
    let mut key = [0_u8; 32];
    hex::decode_to_slice(&parsed.key, &mut key)
        .map_err(|_reason| refused("the key cannot be read"))?;
    if hex::encode(key) != parsed.key {
        return Err(refused("the key is not in lowercase"));
    }
    let by = Verifier::from_bytes(&key).ok_or_else(|| refused("the key cannot be used"))?;
    let signature = STANDARD
        .decode(&parsed.signature)
        .ok()
        .and_then(|bytes| Signature::from_slice(&bytes).ok())
        .ok_or_else(|| refused("the signature cannot be read"))?;
    by.key()
        .verify_strict(message, &signature)
        .map_err(|_reason| refused("does not hold: the content was changed after signing"))?;
    if !trust.keys().contains(&by) {
        return Err(Error::Stranger {
            object: object.to_owned(),
            key: by.to_text(),
        });
    }
    Ok(by)
}

/// The two lines, when there are exactly two.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let body = bytes.strip_suffix(b"\n")?;
    let mut lines = body.split(|byte| *byte == b'\n');
    let (line, signature_line) = (lines.next()?, lines.next()?);
    lines.next().is_none().then_some((line, signature_line))
}

fn message(format: &str, version: u64, line: &[u8]) -> Vec<u8> {
    let mut message = format!("{format} v{version}\0").into_bytes();
    message.extend_from_slice(line);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Note {
        text: String,
    }

    impl Record for Note {
        const FORMAT: &'static str = "holdfast.note";
        const VERSION: u64 = 1;
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Other {
        text: String,
    }

    impl Record for Other {
        const FORMAT: &'static str = "holdfast.other";
        const VERSION: u64 = 1;
    }

    fn signed() -> (Bytes, Trust) {
        let signer = Signer::generate();
        let trust = Trust::in_keys([signer.verifier()]);
        (
            sign(
                &Note {
                    text: "a\nb".to_owned(),
                },
                &signer,
            )
            .unwrap(),
            trust,
        )
    }

    #[test]
    fn a_signed_record_reads_back() {
        let (bytes, trust) = signed();
        let read: Signed<Note> = open("note", &bytes, &trust).unwrap();
        assert_eq!(read.record.text, "a\nb");
        assert_eq!(read.digest, Digest::of(&bytes));
    }

    #[test]
    fn no_single_bit_flip_is_accepted() {
        let (bytes, trust) = signed();
        for position in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[position / 8] ^= 1 << (position % 8);
            assert!(
                open::<Note>("note", &flipped, &trust).is_err(),
                "bit {position}"
            );
        }
    }

    #[test]
    fn no_truncation_or_addition_is_accepted() {
        let (bytes, trust) = signed();
        for len in 0..bytes.len() {
            assert!(
                open::<Note>("note", &bytes[..len], &trust).is_err(),
                "{len} bytes"
            );
        }
        let mut longer = bytes.to_vec();
        longer.push(b'\n');
        assert!(open::<Note>("note", &longer, &trust).is_err());
    }

    #[test]
    fn an_untrusted_key_and_another_format_are_refused() {
        let (bytes, trust) = signed();
        let stranger = Trust::in_keys([Signer::generate().verifier()]);
        let refused = open::<Note>("note", &bytes, &stranger).unwrap_err();
        assert!(refused.to_string().contains("not trusted"), "{refused}");
        assert!(open::<Note>("note", &bytes, &Trust::default()).is_err());
        assert!(open::<Other>("note", &bytes, &trust).is_err());
    }
}
