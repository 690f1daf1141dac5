//! Which backups nobody here could open, told from their envelopes: no part is read for it.

use crate::error::{Error, Result};
use crate::key::{Identities, Keys};
use crate::vault::{Backup, Catalog, Vault};
use crate::verify::open_key;

/// Backups that none of these identities opens, oldest first.
///
/// Identities that a plugin holds are not tried, for it may ask a person to touch something; a
/// backup sealed to a recipient of such a plugin counts as one that can be opened.
pub async fn unopenable<'a, Mode>(
    vault: &Vault<Mode>,
    catalog: &'a Catalog,
    identities: &Identities,
) -> Result<Vec<&'a Backup>> {
    let keys = Keys {
        identities: identities.without_plugins(),
        ..Keys::default()
    };
    let mut closed = Vec::new();
    for backup in &catalog.backups {
        if is_for_a_plugin(backup, identities) {
            continue;
        }
        match open_key(vault, &backup.manifest, &keys).await {
            // Opened, or removed since the catalog was read.
            Ok(_) | Err(Error::ObjectMissing { .. }) => {}
            Err(
                Error::NoMatchingIdentity { .. }
                | Error::IdentityNeeded { .. }
                | Error::Decrypt { .. }
                | Error::Malformed { .. }
                | Error::TooLarge { .. },
            ) => closed.push(backup),
            Err(other) => return Err(other),
        }
    }
    Ok(closed)
}

fn is_for_a_plugin(backup: &Backup, identities: &Identities) -> bool {
    let recipients = backup.manifest.encryption.recipients();
    let mut kinds = identities
        .plugins()
        .iter()
        .map(|name| format!("plugin-{name}:"));
    kinds.any(|kind| recipients.iter().any(|one| one.starts_with(&kind)))
}
