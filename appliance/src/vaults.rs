//! The vault of these settings, opened for what is to be done with it.

pub(crate) mod doctor;

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use holdfast_policies::ClusterName;
use holdfast_restore::ledger::{self, Ledger};
use holdfast_restore::{
    Backup, Catalog, Flaw, FlawKind, ReadOnly, ReadWrite, Signer, Trust, Vault,
};

use crate::config::Settings;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::keys;

/// Opens the vault for reading.
pub(crate) async fn read(settings: &Settings) -> Result<Vault<ReadOnly>, Failure> {
    let spec = settings.vault();
    Vault::<ReadOnly>::open(&spec)
        .await
        .or_fail(format!("the vault {} cannot be read", spec.location()))
}

/// Opens the vault for writing; an empty place becomes one.
pub(crate) async fn write(
    settings: &Settings,
    signer: &Signer,
    now: DateTime<Utc>,
) -> Result<Vault<ReadWrite>, Failure> {
    let spec = settings.vault();
    Vault::open_or_create(&spec, now, &signer.verifier())
        .await
        .or_fail(format!("the vault {} cannot be written", spec.location()))
}

/// The ledger this host keeps of a cluster, which an attacker of the vault cannot reach.
pub(crate) fn ledger_file(settings: &Settings, cluster: &ClusterName) -> PathBuf {
    settings
        .data_dir()
        .join("ledger")
        .join(format!("{cluster}.json"))
}

/// What this host's ledger says.
pub(crate) fn local_ledger(settings: &Settings, cluster: &ClusterName) -> Result<Ledger, Failure> {
    let file = ledger_file(settings, cluster);
    ledger::read_local(&file, cluster)
        .or_fail(format!("the ledger {} cannot be read", file.display()))
}

/// What an opened vault holds of `cluster`.
pub(crate) async fn catalog_in<Mode: Sync>(
    vault: &Vault<Mode>,
    settings: &Settings,
    cluster: &ClusterName,
    trust: &Trust,
) -> Result<Catalog, Failure> {
    let local = local_ledger(settings, cluster)?;
    Catalog::load(vault, cluster, trust, Some(&local))
        .await
        .or_fail(format!(
            "the backups of `{cluster}` in {} cannot be listed",
            settings.vault().location()
        ))
}

/// What the vault holds of `cluster`.
pub(crate) async fn catalog(
    settings: &Settings,
    cluster: &ClusterName,
) -> Result<Catalog, Failure> {
    let vault = read(settings).await?;
    catalog_in(&vault, settings, cluster, &keys::trust(settings)?).await
}

/// What is wrong with the history of a catalog and needs a person's eye. A prune that was cut short
/// does not: the backup is let go already, and the next prune ends it.
pub(crate) fn problems(catalog: &Catalog) -> impl Iterator<Item = &Flaw> {
    catalog
        .flaws
        .iter()
        .filter(|flaw| flaw.kind != FlawKind::ReleasedPresent)
}

/// The backup whose id begins with `text`, or the newest.
pub(crate) fn pick<'a>(catalog: &'a Catalog, text: Option<&str>) -> Result<&'a Backup, Failure> {
    let cluster = &catalog.cluster;
    let Some(text) = text else {
        return catalog.newest().ok_or_else(|| {
            Failure::new(
                ErrorName::NoBackup,
                format!("there is no backup of `{cluster}` yet"),
            )
        });
    };
    let wanted = text.to_ascii_lowercase();
    let mut found = catalog
        .backups
        .iter()
        .filter(|one| one.id().to_string().starts_with(&wanted));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(Failure::new(
            ErrorName::NotFound,
            format!("no backup of `{cluster}` has an id that begins with `{text}`"),
        )),
        (Some(one), Some(other)) => Err(Failure::usage(
            format!("`{text}` is the beginning of several ids"),
            format!("give more of it: {} or {}", one.id(), other.id()),
        )),
    }
}
