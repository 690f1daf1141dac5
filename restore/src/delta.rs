//! Deltas: what changed after one revision up to another, one object each, chained and signed.
//!
//! The object is a signed record (two lines, see [`crate::sign`]) and behind it the sealed payload
//! ([`rows`]), whose digest the record holds. Each names the one before by the digest of its
//! record, the first the backup it builds on: a run of deltas cannot be cut, swapped or mixed
//! without a trace. What is known without an identity is in the record, keys and values are not.

pub mod gap;
pub mod release;
pub mod rows;
pub mod run;
mod session;
mod writer;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, Generation};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::key::{Keys, Signer, Trust};
use crate::manifest::{Link, SourceHash, SourceRecord};
use crate::part::{self, PartRecord};
use crate::seal::{Encryption, PartKey, Sealer};
use crate::sign::{self, Record, Signed};

pub use session::{Fence, Followed, Session, SessionOptions, Stored};
pub use writer::RunWriter;

/// Version of the format.
pub const DELTA_VERSION: u64 = 1;

/// Largest record of a delta, signature line included, in bytes.
pub const RECORD_BYTES_MAX: usize = 128 * 1024;

/// Largest delta object, in bytes.
pub const DELTA_BYTES_MAX: u64 = 80 * 1024 * 1024;

/// What a delta says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delta {
    /// Whose changes.
    pub cluster: ClusterName,
    /// The run it belongs to: that of the backup at its beginning.
    pub generation: Generation,
    /// Its place in the run, from 1.
    pub number: u64,
    /// What it builds on.
    pub predecessor: Predecessor,
    /// The changes after this revision ...
    pub from: i64,
    /// ... up to and with this one. The same: nothing had changed.
    pub to: i64,
    /// Rows in it.
    pub events: u64,
    /// When it was begun, by the writer's clock.
    pub started: DateTime<Utc>,
    /// When the source had nothing newer than `to`, by the writer's clock.
    pub finished: DateTime<Utc>,
    /// Where the changes came from.
    pub source: SourceRecord,
    /// The source's HashKV at `to`, when it was asked for.
    pub source_hash: SourceHash,
    /// How the payload is encrypted.
    pub encryption: Encryption,
    /// Sizes and digests of the payload.
    pub part: PartRecord,
    /// The program that wrote it.
    pub writer: String,
}

/// What a delta builds on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Predecessor {
    /// A backup of the same generation: the run begins here.
    Snapshot(Link),
    /// The delta before: the digest of its record, both lines.
    Delta(Digest),
}

impl Record for Delta {
    const FORMAT: &'static str = "holdfast.delta";
    const VERSION: u64 = DELTA_VERSION;
}

/// A delta that is to be stored.
#[derive(Debug, Clone)]
pub struct Sealed {
    /// What it says of itself.
    pub record: Delta,
    /// Names it for its successor.
    pub digest: Digest,
    /// The object.
    pub object: Bytes,
}

/// A record read from the beginning of its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The record.
    pub record: Delta,
    /// Names it for its successor.
    pub digest: Digest,
    /// Bytes of the record in the object; the payload follows.
    pub bytes: usize,
}

impl Delta {
    /// Seals `payload` and signs the record. `encryption` and `part` are set here.
    pub fn seal(mut self, payload: &[u8], sealer: &Sealer, signer: &Signer) -> Result<Sealed> {
        let (key, encryption) = sealer.begin()?;
        let sealed = part::seal_part(payload, &key)?;
        self.encryption = encryption;
        self.part = sealed.record;
        self.check("delta")?;
        let head = sign::sign(&self, signer)?;
        let digest = Digest::of(&head);
        let mut object = Vec::with_capacity(head.len().saturating_add(sealed.stored.len()));
        object.extend_from_slice(&head);
        object.extend_from_slice(&sealed.stored);
        Ok(Sealed {
            record: self,
            digest,
            object: object.into(),
        })
    }

    fn check(&self, object: &str) -> Result<()> {
        let broken = |reason: &str| Err(Error::malformed(object, reason));
        if self.number == 0 {
            return broken("number");
        }
        if self.from < 1 || self.to < self.from || (self.from == self.to) != (self.events == 0) {
            return broken("revisions");
        }
        let is_first = matches!(self.predecessor, Predecessor::Snapshot(_));
        if is_first != (self.number == 1) {
            return broken("predecessor");
        }
        let limit = part::length_of(rows::PAYLOAD_BYTES_MAX);
        let part = &self.part;
        if part.plain_bytes > limit || part.stored_bytes > part::stored_bytes_max(part.plain_bytes)
        {
            return broken("sizes");
        }
        Ok(())
    }
}

impl Head {
    /// Reads the record at the beginning of `bytes`, which may be the whole object or only as much
    /// of it as [`RECORD_BYTES_MAX`].
    pub fn read(object: &str, bytes: &[u8], trust: &Trust) -> Result<Self> {
        let end = record_end(bytes)
            .ok_or_else(|| Error::malformed(object, "does not begin with a signed record"))?;
        let head = bytes.get(..end).unwrap_or_default();
        let signed: Signed<Delta> = sign::open(object, head, trust)?;
        signed.record.check(object)?;
        Ok(Self {
            record: signed.record,
            digest: signed.digest,
            bytes: end,
        })
    }

    /// Checks size and digest of the payload in the whole object. Needs no identity.
    pub(crate) fn check_stored(&self, object: &str, bytes: &[u8]) -> Result<()> {
        part::check_stored(object, self.stored(bytes), &self.record.part)
    }

    /// The key of the payload.
    pub(crate) fn key(&self, keys: &Keys) -> Result<PartKey> {
        self.record.encryption.open(keys.identities.as_ref(), &[])
    }

    /// The payload out of the whole object, as its record says.
    pub(crate) fn open(&self, object: &str, bytes: &[u8], key: &PartKey) -> Result<Vec<u8>> {
        part::open_part(object, self.stored(bytes), &self.record.part, key)
    }

    fn stored<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.bytes..).unwrap_or_default()
    }
}

/// Where the second line ends.
fn record_end(bytes: &[u8]) -> Option<usize> {
    let searched = bytes.get(..RECORD_BYTES_MAX).unwrap_or(bytes);
    let mut ends = searched
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n');
    ends.nth(1).map(|(last, _)| last.saturating_add(1))
}
