//! Envelopes that a rewrap wrote: the backup's own key, sealed to other recipients than at first.
//!
//! An envelope is believed for what it opens (the key whose public side the manifest holds). The
//! signature is for what it says: to whom it is sealed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::key::Trust;
use crate::sign::{self, Record};

/// Largest envelope object read, in bytes.
pub const ENVELOPE_OBJECT_BYTES_MAX: u64 = 128 * 1024;

/// How an age file begins.
const AGE_MAGIC: &[u8] = b"age-encryption.org/";

/// Version of the format.
pub const ENVELOPE_VERSION: u64 = 1;

/// One envelope of a backup beside the manifest's own; the one with the highest number is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEnvelope {
    /// The backup.
    pub id: SnapshotId,
    /// Its cluster.
    pub cluster: ClusterName,
    /// Counts up for each backup.
    pub number: u64,
    /// When it was written, by the writer's clock.
    pub at: DateTime<Utc>,
    /// Fingerprints of those it is sealed to.
    pub recipients: Vec<String>,
    /// The backup's own identity, sealed to them: an age file in base64.
    pub envelope: String,
}

impl Record for KeyEnvelope {
    const FORMAT: &'static str = "holdfast.envelope";
    const VERSION: u64 = ENVELOPE_VERSION;
}

impl KeyEnvelope {
    /// Reads the object of this backup; one of another is refused.
    pub(crate) fn read(
        object: &str,
        bytes: &[u8],
        trust: &Trust,
        (cluster, id): (&ClusterName, SnapshotId),
    ) -> Result<Self> {
        let record = sign::open::<Self>(object, bytes, trust)?.record;
        if record.cluster != *cluster || record.id != id {
            let of = format!("of backup {} of {}", record.id, record.cluster);
            return Err(Error::malformed(object, of));
        }
        Ok(record)
    }
}

/// The age file in an envelope's object. Nothing of the record is believed: what it opens to is
/// compared with the manifest. The first versions stored the age file as it is.
pub(crate) fn sealed_in(object: &str, bytes: &bytes::Bytes) -> Result<bytes::Bytes> {
    if bytes.starts_with(AGE_MAGIC) {
        return Ok(bytes.clone());
    }
    let record: KeyEnvelope = sign::read_unverified(object, bytes)?;
    STANDARD
        .decode(&record.envelope)
        .map(Into::into)
        .map_err(|_reason| Error::malformed(object, "not base64"))
}
