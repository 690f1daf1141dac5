//! Reports in the vault.

use holdfast_policies::ClusterName;
use holdfast_restore::vault::{Folder, layout};
use holdfast_restore::{ReadWrite, Signer, Trust, Vault, proof, sign};

use super::{DrillReport, REPORT_BYTES_MAX};
use crate::error::Result;

/// Most reports read at once: the newest.
const REPORTS_MAX: usize = 1000;

/// Stores a report, and the proof it gives its backup. Not done by the drill itself, whose vault
/// is read-only.
pub async fn publish(
    vault: &Vault<ReadWrite>,
    report: &DrillReport,
    signer: &Signer,
) -> Result<()> {
    let object = sign::sign(report, signer)?;
    vault
        .put_new(&layout::drill(&report.cluster, report.id), object)
        .await?;
    if let Some(proof) = report.proof() {
        proof::record(vault, &proof, signer).await?;
    }
    Ok(())
}

/// The reports of a cluster, newest first. One that no trusted key signed does not count and is
/// left out, with a line in the log.
pub async fn reports<Mode: Sync>(
    vault: &Vault<Mode>,
    cluster: &ClusterName,
    trust: &Trust,
) -> Result<Vec<DrillReport>> {
    let mut reports = Vec::new();
    // Ids begin with the time: names in order are drills in order.
    let listed = vault.list(&Folder::Drills.of(cluster)).await?;
    for entry in listed.iter().rev().take(REPORTS_MAX) {
        let bytes = match vault.get(&entry.name, REPORT_BYTES_MAX).await {
            Ok(bytes) => bytes,
            Err(error @ holdfast_restore::Error::TooLarge { .. }) => {
                tracing::warn!(object = %entry.name, %error, "a drill report is refused");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match sign::open::<DrillReport>(entry.name.as_str(), &bytes, trust) {
            Ok(signed) if layout::drill(cluster, signed.record.id) == entry.name => {
                reports.push(signed.record);
            }
            Ok(_) => tracing::warn!(object = %entry.name, "a drill report in another's place"),
            Err(error) => tracing::warn!(object = %entry.name, %error, "a drill report is refused"),
        }
    }
    Ok(reports)
}
