//! The manifest: the signed commit record of one backup. A backup exists when its manifest does.
//!
//! Plain JSON: sizes, digests, revisions, HashKV, where the bytes came from. Never a key or a
//! value. It names its predecessor by digest, so the manifests of a cluster form a chain.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, Generation, Pool, Sequence, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::key::{Signer, Trust};
use crate::part::{PARTS_MAX, PartRecord, is_part_size, stored_bytes_max};
use crate::seal::Encryption;
use crate::sign::{self, Record, Signed};

/// Largest manifest read, in bytes: [`PARTS_MAX`] parts take about 14 MiB.
pub const MANIFEST_BYTES_MAX: u64 = 24 * 1024 * 1024;

/// Version of the format.
pub const MANIFEST_VERSION: u64 = 2;

/// One backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Names the backup and its parts.
    pub id: SnapshotId,
    /// Whose data it is: the folder in the vault.
    pub cluster: ClusterName,
    /// The run of backups it belongs to.
    pub generation: Generation,
    /// What it was taken for. Version 1 did not say: its schedule.
    #[serde(default)]
    pub pool: Pool,
    /// Its place in the chain; also its object's name.
    pub sequence: Sequence,
    /// The backup before it, `None` for the first of a vault.
    pub predecessor: Option<Link>,
    /// When reading began, by the writer's clock.
    pub started: DateTime<Utc>,
    /// When the last part was stored, by the writer's clock.
    pub finished: DateTime<Utc>,
    /// Where the bytes came from.
    pub source: SourceRecord,
    /// What the bytes say of themselves.
    pub content: ContentRecord,
    /// What the source said about the same revision, to compare with.
    pub source_hash: SourceHash,
    /// How the parts are encrypted.
    pub encryption: Encryption,
    /// Plain bytes in every part but the last.
    pub part_bytes: u64,
    /// The parts in order.
    pub parts: Vec<PartRecord>,
    /// The program that wrote it.
    pub writer: String,
}

/// Names one manifest beyond doubt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its place in the chain.
    pub sequence: Sequence,
    /// Its backup.
    pub id: SnapshotId,
    /// Digest of the whole manifest object.
    pub digest: Digest,
}

/// Where a backup's bytes came from, as the connection told. Nothing is decided from it except
/// whether it is still the same cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRecord {
    /// `bundled`, `etcd` or `file`.
    pub kind: String,
    /// The endpoint read from, or the file's name.
    pub endpoint: String,
    /// The cluster's id in hexadecimal, when the source tells one.
    pub cluster_id: Option<String>,
    /// The member's id in hexadecimal, when the source tells one.
    pub member_id: Option<String>,
    /// The server's version, when the source tells one.
    pub server_version: Option<String>,
}

/// What the bytes backed up say, read from a decoded copy of exactly these bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentRecord {
    /// Plain bytes, digest trailer included.
    pub bytes: u64,
    /// Digest of all of them.
    pub digest: Digest,
    /// The store's main revision.
    pub revision: i64,
    /// The revision it was compacted at; -1 when never.
    pub compact_revision: i64,
    /// HashKV at `revision`.
    pub hash_kv: u32,
    /// Live keys at `revision`.
    pub keys: u64,
    /// The cluster version stored in it.
    pub cluster_version: Option<String>,
    /// The storage version stored in it.
    pub storage_version: Option<String>,
    /// The members stored in it.
    pub members: Vec<ContentMember>,
    /// Alarms stored in it.
    pub alarms: Vec<String>,
    /// Leases stored in it.
    pub leases: u64,
    /// Whether authentication is on in it.
    pub is_auth_enabled: bool,
}

/// A member as the backed-up bytes list it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentMember {
    /// Its id in hexadecimal.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where peers reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
}

/// The source's own HashKV at the backup's revision, asked for after the copy was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SourceHash {
    /// Told by `members` of the source, all the same.
    Told {
        /// The hash.
        hash: u32,
        /// The revision hashed.
        revision: i64,
        /// The compaction it was computed behind.
        compact_revision: i64,
        /// Endpoints that told it.
        members: Vec<String>,
        /// Endpoints that told another one: corrupt or lagging, named so that someone looks.
        divergent: Vec<String>,
    },
    /// The source could not tell it: this is no proof of anything.
    Unavailable {
        /// Why not.
        reason: String,
    },
}

impl Record for Manifest {
    const FORMAT: &'static str = "holdfast.manifest";
    const VERSION: u64 = MANIFEST_VERSION;
}

impl Manifest {
    /// The object to store.
    pub fn encode(&self, signer: &Signer) -> Result<Bytes> {
        sign::sign(self, signer)
    }

    /// Reads a stored manifest: signature first, then every rule that needs no other object.
    pub fn decode(object: &str, bytes: &[u8], trust: &Trust) -> Result<Signed<Self>> {
        let limit = MANIFEST_BYTES_MAX;
        if crate::part::length(bytes) > limit {
            return Err(Error::TooLarge {
                object: object.to_owned(),
                limit,
            });
        }
        let signed: Signed<Self> = sign::open(object, bytes, trust)?;
        signed.record.check(object)?;
        Ok(signed)
    }

    /// Bytes the backup takes in the vault, manifest aside.
    pub fn stored_bytes(&self) -> u64 {
        self.parts
            .iter()
            .fold(0, |sum, part| sum.saturating_add(part.stored_bytes))
    }

    /// Names this manifest, given its object's digest.
    pub fn link(&self, digest: Digest) -> Link {
        Link {
            sequence: self.sequence,
            id: self.id,
            digest,
        }
    }

    fn check(&self, object: &str) -> Result<()> {
        let broken = |reason: &str| Err(Error::malformed(object, reason));
        if self.parts.is_empty() || self.parts.len() > PARTS_MAX {
            return broken("number of parts");
        }
        let full = self.part_bytes;
        if !is_part_size(full) {
            return broken("part size");
        }
        let mut total = 0_u64;
        for (index, part) in self.parts.iter().enumerate() {
            let is_last = index + 1 == self.parts.len();
            let has_good_size = if is_last {
                (1..=full).contains(&part.plain_bytes)
            } else {
                part.plain_bytes == full
            };
            if !has_good_size || part.stored_bytes > stored_bytes_max(part.plain_bytes) {
                return broken("size of a part");
            }
            total = total.saturating_add(part.plain_bytes);
        }
        if total != self.content.bytes {
            return broken("sizes of the parts do not add up");
        }
        if self.content.revision < 1 || self.content.compact_revision > self.content.revision {
            return broken("revisions");
        }
        let expected = self.sequence.0.checked_sub(1);
        match &self.predecessor {
            _ if self.sequence.0 == 0 => broken("sequence"),
            None => Ok(()),
            Some(link) if Some(link.sequence.0) == expected => Ok(()),
            Some(_) => broken("predecessor is not the one before"),
        }
    }
}
