//! What the restored cluster must hold, read from the decoded backup.
//!
//! Needs memory for the keys and a digest of each value, not for the values.

use std::collections::BTreeSet;

use bytes::Bytes;
use holdfast_store::bolt::ReadAt;
use holdfast_store::etcd_file::{Auth, EtcdFile, LeaseRecord, Pair};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};

/// Bytes kept of a value's SHA-256.
const VALUE_DIGEST_BYTES: usize = 16;

/// Most prefixes counted one by one.
pub(crate) const PREFIXES_MAX: usize = 256;

/// A key with everything a client can see of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExpectedKey {
    pub(crate) key: Bytes,
    pub(crate) create_revision: i64,
    pub(crate) mod_revision: i64,
    pub(crate) version: i64,
    pub(crate) lease: i64,
    pub(crate) value: ValueDigest,
}

/// The beginning of a value's SHA-256.
pub(crate) type ValueDigest = [u8; VALUE_DIGEST_BYTES];

/// The digest of a value.
pub(crate) fn value_digest(value: &[u8]) -> ValueDigest {
    let mut digest = [0; VALUE_DIGEST_BYTES];
    for (to, from) in digest.iter_mut().zip(Sha256::digest(value)) {
        *to = from;
    }
    digest
}

/// The decoded backup.
#[derive(Debug)]
pub(crate) struct Expected {
    /// Its bytes have the digest they end in.
    pub(crate) is_trailer_valid: bool,
    /// The newest revision in it.
    pub(crate) revision: i64,
    /// HashKV at that revision, recomputed.
    pub(crate) hash_kv: u32,
    /// Every live key, ascending.
    pub(crate) keys: Vec<ExpectedKey>,
    /// Leases with their keys.
    pub(crate) leases: Vec<LeaseRecord>,
    /// Users and roles.
    pub(crate) auth: Auth,
}

impl Expected {
    /// Reads everything. Blocks: run it where that is allowed.
    pub(crate) fn read<R: ReadAt>(file: &EtcdFile<R>, is_trailer_valid: bool) -> Result<Self> {
        let content = |source| Error::Content { source };
        let found = file.survey(expected_key).content.map_err(content)?;
        Ok(Self {
            is_trailer_valid,
            revision: found.hash.hash_revision,
            hash_kv: found.hash.hash,
            leases: found.leases.clone(),
            keys: found.into_keys().map(named).collect(),
            auth: file.auth().map_err(content)?,
        })
    }

    /// Number of live keys.
    pub(crate) fn count(&self) -> u64 {
        u64::try_from(self.keys.len()).unwrap_or(u64::MAX)
    }

    /// How many keys begin with `prefix`.
    pub(crate) fn count_with(&self, prefix: &[u8]) -> u64 {
        let from = self.keys.partition_point(|one| one.key.as_ref() < prefix);
        let rest = self.keys.get(from..).unwrap_or_default();
        let count = rest.partition_point(|one| one.key.starts_with(prefix));
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// The folders keys are in, two levels deep, ascending.
    pub(crate) fn prefixes(&self) -> Vec<Bytes> {
        let mut prefixes = BTreeSet::new();
        for one in &self.keys {
            if let Some(prefix) = folder(&one.key)
                && !prefixes.contains(&prefix)
            {
                prefixes.insert(prefix);
                if prefixes.len() == PREFIXES_MAX {
                    break;
                }
            }
        }
        prefixes.into_iter().collect()
    }
}

/// What is kept of a key; its name comes with the answer of the survey.
fn expected_key(pair: &Pair<'_>) -> ExpectedKey {
    ExpectedKey {
        key: Bytes::new(),
        create_revision: pair.create_revision,
        mod_revision: pair.mod_revision,
        version: pair.version,
        lease: pair.lease,
        value: value_digest(pair.value),
    }
}

fn named((key, kept): (Box<[u8]>, ExpectedKey)) -> ExpectedKey {
    ExpectedKey {
        key: key.into(),
        ..kept
    }
}

/// `/registry/pods/` of `/registry/pods/default/one`, `app/` of `app/one`; none without a slash.
fn folder(key: &Bytes) -> Option<Bytes> {
    let depth = if key.first() == Some(&b'/') { 3 } else { 2 };
    let slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let (end, _) = slashes.take(depth).last()?;
    (end > 0).then(|| key.slice(..=end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_two_levels_deep() {
        for (key, expected) in [
            ("/registry/pods/default/one", Some("/registry/pods/")),
            ("/registry/pods", Some("/registry/")),
            ("/one", None),
            ("app/one", Some("app/")),
            ("app/a/b", Some("app/a/")),
            ("plain", None),
            ("", None),
        ] {
            let found = folder(&Bytes::copy_from_slice(key.as_bytes()));
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{key}");
        }
    }
}
