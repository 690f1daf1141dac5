//! Who writes the backups of a source: whoever claimed the newest generation.
//!
//! A daemon claims a generation once, before its first backup, and writes all its backups in it;
//! one that takes turns with others in a cluster claims one for each turn. The term of the
//! cluster's election is no generation: terms begin anew with each cluster, and a vault outlives
//! clusters.
//! A claim is an object of its own, create-only, so two that claim at once get different ones, also
//! with the same keys and a copied data directory. From then on the vault's history refuses the
//! earlier: a stale runner cannot write beside the new one.

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, Generation};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, Successor};
use crate::flaw::{Flaw, FlawKind};
use crate::key::{Signer, Trust, Verifier};
use crate::sign::{self, Record, Signed};
use crate::unique::UniqueId;
use crate::vault::{Catalog, Folder, ReadWrite, Vault, layout};

/// Version of the format.
pub const CLAIM_VERSION: u64 = 1;

/// Largest claim read, in bytes.
const CLAIM_BYTES_MAX: u64 = 64 * 1024;

/// Most claims read to find the newest that counts: junk must not hide it.
const CLAIMS_READ_MAX: usize = 64;

/// Claims kept when old ones are removed; the newest alone decides.
const CLAIMS_KEPT: u64 = 8;

/// Most places tried: others claim too, and objects nobody trusts take places.
const TRIES_MAX: usize = 128;

/// A generation taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Whose backups.
    pub cluster: ClusterName,
    /// The generation.
    pub generation: Generation,
    /// Names the claimant, so that no two claims are alike.
    pub claimant: UniqueId,
    /// When, by the claimant's clock.
    pub at: DateTime<Utc>,
    /// The program that claimed it.
    pub writer: String,
}

impl Claim {
    /// The claimant as one who took over and has no backup yet.
    pub(crate) fn successor(&self, by: &Verifier) -> Successor {
        Successor {
            generation: self.generation,
            id: None,
            started: self.at,
            writer: self.writer.clone(),
            key: by.fingerprint(),
        }
    }
}

impl Record for Claim {
    const FORMAT: &'static str = "holdfast.claim";
    const VERSION: u64 = CLAIM_VERSION;
}

/// The newest claim that counts, and who signed it.
pub type Newest = Option<(Claim, Verifier)>;

/// Reads the newest claim; those that cannot be believed are named and do not count.
pub(crate) async fn newest<Mode>(
    vault: &Vault<Mode>,
    cluster: &ClusterName,
    trust: &Trust,
) -> Result<(Newest, Vec<Flaw>)> {
    let listing = vault.list_with_odd(&Folder::Claims.of(cluster)).await?;
    let mut flaws = listing.odd;
    for entry in listing.objects.iter().rev().take(CLAIMS_READ_MAX) {
        let read = vault.get(&entry.name, CLAIM_BYTES_MAX).await;
        let opened = read.and_then(|bytes| sign::open::<Claim>(entry.name.as_str(), &bytes, trust));
        let kind = match opened {
            Ok(Signed { record, by, .. })
                if entry.name == layout::claim(cluster, record.generation)
                    && record.cluster == *cluster =>
            {
                return Ok((Some((record, by)), flaws));
            }
            Ok(_) => (
                FlawKind::RecordRefused,
                "a claim of another place".to_owned(),
            ),
            // Removed since it was listed: a newer one is there.
            Err(Error::ObjectMissing { .. }) => continue,
            Err(error @ Error::Stranger { .. }) => (FlawKind::RecordStranger, error.to_string()),
            Err(
                error @ (Error::TooLarge { .. }
                | Error::Malformed { .. }
                | Error::Signature { .. }
                | Error::UnsupportedVersion { .. }),
            ) => (FlawKind::RecordRefused, error.to_string()),
            Err(error) => return Err(error),
        };
        flaws.push(Flaw::new(kind.0, &entry.name, kind.1));
    }
    Ok((None, flaws))
}

/// Refuses when `ours` is not the newest generation claimed any more.
pub async fn confirm<Mode>(
    vault: &Vault<Mode>,
    cluster: &ClusterName,
    ours: Generation,
    trust: &Trust,
) -> Result<()> {
    let listed = vault.list(&Folder::Claims.of(cluster)).await?;
    let own = layout::claim(cluster, ours);
    if listed.last().is_none_or(|last| last.name <= own) {
        return Ok(());
    }
    match newest(vault, cluster, trust).await?.0 {
        Some((claim, by)) if claim.generation > ours => Err(Error::Replaced {
            cluster: cluster.clone(),
            ours,
            successor: Box::new(claim.successor(&by)),
        }),
        _ => Ok(()),
    }
}

/// Claims the generation after the newest in `catalog`, for all backups of one process.
pub async fn claim(
    vault: &Vault<ReadWrite>,
    catalog: &Catalog,
    at: DateTime<Utc>,
    signer: &Signer,
) -> Result<Generation> {
    let exhausted = || Error::HistoryDamaged {
        reason: format!("`{}` has no generation left to claim", catalog.cluster),
    };
    let mut generation = match catalog.newest_generation() {
        Some(newest) => newest.next().ok_or_else(exhausted)?,
        None => Generation::FIRST,
    };
    for _ in 0..TRIES_MAX {
        let claim = Claim {
            cluster: catalog.cluster.clone(),
            generation,
            claimant: UniqueId::generate(),
            at,
            writer: concat!("holdfast ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let name = layout::claim(&catalog.cluster, generation);
        match vault.put_new(&name, sign::sign(&claim, signer)?).await {
            Ok(()) => {
                remove_old(vault, &catalog.cluster, generation).await;
                return Ok(generation);
            }
            Err(Error::ObjectExists { .. }) => {
                generation = generation.next().ok_or_else(exhausted)?;
            }
            Err(error) => return Err(error),
        }
    }
    Err(exhausted())
}

/// Old claims decide nothing; that one stays does no harm.
async fn remove_old(vault: &Vault<ReadWrite>, cluster: &ClusterName, newest: Generation) {
    let oldest_kept = layout::claim(cluster, Generation(newest.0.saturating_sub(CLAIMS_KEPT)));
    let remove = async {
        let listed = vault.list(&Folder::Claims.of(cluster)).await?;
        for old in listed.iter().filter(|one| one.name < oldest_kept) {
            vault.remove(&old.name).await?;
        }
        Ok::<_, Error>(())
    };
    if let Err(error) = remove.await {
        tracing::debug!(%cluster, %error, "old claims stay");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_has_a_fixed_form_and_no_other_fields() {
        let text = concat!(
            r#"{"cluster":"prod","generation":3,"#,
            r#""claimant":"0e2f6f0e-7f0c-4a53-9b8e-0a6f7d3b9c11","#,
            r#""at":"2026-05-28T20:26:40Z","writer":"holdfast 0.1.0"}"#
        );
        let claim: Claim = serde_json::from_str(text).unwrap();
        assert_eq!(claim.generation, Generation(3));
        assert_eq!(serde_json::to_string(&claim).unwrap(), text);
        let more = text.replace("{\"cluster\"", "{\"more\":1,\"cluster\"");
        assert!(serde_json::from_str::<Claim>(&more).is_err());
    }
}
