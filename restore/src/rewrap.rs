//! Giving a backup to other recipients without uploading it again.

use holdfast_policies::SnapshotId;

use crate::error::{Error, Result};
use crate::key::Keys;
use crate::seal::Sealer;
use crate::vault::{Catalog, Folder, ReadWrite, Vault, layout};
use crate::verify::open_key;

/// Most further envelopes of one backup.
pub const ENVELOPES_MAX: usize = 100;

/// Seals the backup's own key to `sealer`'s recipients, in a further envelope beside the backup.
/// Those it was sealed to before can still open it: their envelope stays in the signed manifest.
pub async fn rewrap(
    vault: &Vault<ReadWrite>,
    catalog: &Catalog,
    id: SnapshotId,
    keys: &Keys,
    sealer: &Sealer,
) -> Result<()> {
    let manifest = &catalog.get(id)?.manifest;
    let key = open_key(vault, manifest, keys).await?;
    let envelope = sealer.rewrap(&key)?;
    let folder = Folder::Envelopes.of_backup(&manifest.cluster, id);
    let number = vault.list(&folder).await?.len();
    if number >= ENVELOPES_MAX {
        let limit = u64::try_from(ENVELOPES_MAX).unwrap_or(u64::MAX);
        return Err(Error::TooLarge {
            object: folder.to_string(),
            limit,
        });
    }
    let name = layout::envelope(&manifest.cluster, id, number);
    vault.put_new(&name, envelope.into()).await
}
