//! Giving a backup to other recipients without uploading it again: a further envelope beside it.
//!
//! One step a backup, and a step done is not done again, so a run that was killed is run again. The
//! envelope in the manifest is part of what was signed and stays: who holds an identity of it can
//! open the backup until retention lets it go.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};

use crate::envelope::{ENVELOPE_OBJECT_BYTES_MAX, KeyEnvelope};
use crate::error::{Error, Result};
use crate::key::{Keys, Signer, Trust};
use crate::manifest::Manifest;
use crate::seal::Sealer;
use crate::sign;
use crate::vault::{Backup, Folder, ObjectName, ReadWrite, Vault, layout};
use crate::verify::open_key;

/// Most further envelopes of one backup.
pub const ENVELOPES_MAX: usize = 100;

/// What a rewrap of one backup came to. Recipients are fingerprints, sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrapped {
    /// Who could open it before.
    pub before: Vec<String>,
    /// Who can open it now.
    pub after: Vec<String>,
    /// Those of them that were not asked for: the envelope in the manifest is theirs.
    pub still: Vec<String>,
    /// False when nothing had to be written.
    pub is_new: bool,
}

/// Seals the backup's own key to `sealer`'s recipients, in a signed envelope that takes the place
/// of those that earlier rewraps wrote. No part is read or written.
pub async fn rewrap(
    vault: &Vault<ReadWrite>,
    backup: &Backup,
    keys: &Keys,
    (sealer, signer): (&Sealer, &Signer),
    now: DateTime<Utc>,
) -> Result<Rewrapped> {
    let manifest = &backup.manifest;
    let wanted: BTreeSet<String> = sealer.fingerprints().map(str::to_owned).collect();
    let own: BTreeSet<String> = manifest.encryption.recipients().iter().cloned().collect();
    let found = envelopes(vault, manifest, &keys.trust).await?;
    let newest = found.iter().rev().find_map(|(_, read)| read.as_ref());
    let beside: BTreeSet<String> = match newest {
        Some(envelope) => envelope.recipients.iter().cloned().collect(),
        None => BTreeSet::new(),
    };
    let list = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>();
    let told = |is_new| Rewrapped {
        before: list(&own | &beside),
        after: list(&own | &wanted),
        still: list(&own - &wanted),
        is_new,
    };
    let is_done = match newest {
        Some(_) => beside == wanted,
        None => own == wanted,
    };
    let last = found.last().map(|(name, _)| name.clone());
    let kept = if is_done {
        newest.map(|one| layout::envelope(&manifest.cluster, manifest.id, one.number))
    } else {
        let key = open_key(vault, manifest, keys).await?;
        let number = last.map_or(0, |name| number_of(&name).saturating_add(1));
        let envelope = KeyEnvelope {
            id: manifest.id,
            cluster: manifest.cluster.clone(),
            number,
            at: now,
            recipients: list(wanted.clone()),
            envelope: STANDARD.encode(sealer.rewrap(&key)?),
        };
        let name = layout::envelope(&manifest.cluster, manifest.id, number);
        let object = sign::sign(&envelope, signer)?;
        vault.put_new(&name, object.clone()).await?;
        // Others go only when this one is there, byte for byte.
        if vault.get(&name, ENVELOPE_OBJECT_BYTES_MAX).await? != object {
            return Err(Error::malformed(
                name.as_str(),
                "read back with other bytes",
            ));
        }
        Some(name)
    };
    for (name, _) in found.iter().filter(|(name, _)| kept.as_ref() != Some(name)) {
        vault.remove(name).await?;
    }
    Ok(told(!is_done))
}

/// The further envelopes of a backup in their order; one that cannot be believed says nothing.
async fn envelopes(
    vault: &Vault<ReadWrite>,
    manifest: &Manifest,
    trust: &Trust,
) -> Result<Vec<(ObjectName, Option<KeyEnvelope>)>> {
    let (cluster, id) = (&manifest.cluster, manifest.id);
    let folder = Folder::Envelopes.of_backup(cluster, id);
    let listed = vault.list(&folder).await?;
    if listed.len() > ENVELOPES_MAX {
        let limit = u64::try_from(ENVELOPES_MAX).unwrap_or(u64::MAX);
        return Err(Error::TooLarge {
            object: folder.to_string(),
            limit,
        });
    }
    let mut found = Vec::new();
    for entry in listed {
        let name = entry.name;
        let bytes = vault.get(&name, ENVELOPE_OBJECT_BYTES_MAX).await?;
        let read = KeyEnvelope::read(name.as_str(), &bytes, trust, (cluster, id));
        found.push((name, read.ok()));
    }
    found.sort_by_key(|(name, _)| number_of(name));
    Ok(found)
}

/// The number in an envelope's name; 0 where there is none.
fn number_of(name: &ObjectName) -> u64 {
    let stem = name.file_name().split('.').next().unwrap_or_default();
    stem.parse().unwrap_or(0)
}
