//! The vault of these settings, opened for what is to be done with it.

pub(crate) mod copies;
pub(crate) mod doctor;

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use holdfast_policies::{ClusterName, SnapshotId};
use holdfast_restore::delta::run::{self, Known, Runs};
use holdfast_restore::in_use::{Mark, Reader};
use holdfast_restore::ledger::{self, Ledger};
use holdfast_restore::{
    Backup, Catalog, Error, Flaw, FlawKind, ReadOnly, ReadWrite, Signer, Trust, Vault,
};

use crate::config::Settings;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::keys;

/// Opens the vault for reading.
pub(crate) async fn read(settings: &Settings) -> Result<Vault<ReadOnly>, Failure> {
    let spec = settings.vault();
    let vault = Vault::<ReadOnly>::open(&spec)
        .await
        .or_fail(format!("the vault {} cannot be read", spec.location()))
        .map_err(|failure| copies::offer(settings, failure))?;
    if let Some(doubt) = vault.doubt() {
        let location = vault.location();
        tracing::warn!(location, %doubt, "the vault is read in spite of this; see that it is the right one");
    }
    Ok(vault)
}

/// Opens the vault for writing. An empty place becomes one, except where this host knows backups:
/// then the vault is lost, not mounted or not the one that is named.
pub(crate) async fn write(
    settings: &Settings,
    signer: &Signer,
    now: DateTime<Utc>,
) -> Result<Vault<ReadWrite>, Failure> {
    if let Some(failure) = missing(settings).await {
        return Err(failure);
    }
    make(settings, signer, now).await
}

/// Whether nothing is where the vault should be; an error to look is not an answer.
pub(crate) async fn is_absent(settings: &Settings) -> bool {
    let opened = Vault::<ReadOnly>::open(&settings.vault()).await;
    matches!(opened, Err(Error::NotAVault { .. }))
}

/// Whether backups are there and the vault's marker is not.
pub(crate) async fn has_lost_marker(settings: &Settings) -> bool {
    let opened = Vault::<ReadOnly>::open(&settings.vault()).await;
    opened.is_ok_and(|vault| vault.doubt().is_some())
}

/// Why there must be a vault where there is none; `None` when there is one, or never was.
pub(crate) async fn missing(settings: &Settings) -> Option<Failure> {
    let mut sources = settings.config.restore.sources.iter();
    let known = sources.find_map(|source| {
        let head = local_ledger(settings, &source.name).ok()?.head?;
        Some((source, head))
    });
    let (source, head) = known?;
    if !is_absent(settings).await {
        return None;
    }
    let location = settings.vault().location();
    let failure = Failure::new(
        ErrorName::NotFound,
        format!("there is no vault at {location}"),
    )
    .because_of(format!(
        "this host's ledger knows of a backup of `{}`, number {} in its chain",
        source.name, head.sequence.0
    ))
    .next(
        "mount it, or correct `restore.vault`; where the vault is gone for good, or a new one is \
         meant, `holdfast vault check --new` makes one",
    );
    Some(failure)
}

/// Opens the vault for writing, where a new one is meant: an empty place becomes one, and one that
/// lost its marker gets a new one.
pub(crate) async fn renew(
    settings: &Settings,
    signer: &Signer,
    now: DateTime<Utc>,
) -> Result<Vault<ReadWrite>, Failure> {
    let spec = settings.vault();
    Vault::open_or_renew(&spec, now, &signer.verifier())
        .await
        .or_fail(format!("the vault {} cannot be written", spec.location()))
}

/// Opens the vault for writing; an empty place becomes one.
async fn make(
    settings: &Settings,
    signer: &Signer,
    now: DateTime<Utc>,
) -> Result<Vault<ReadWrite>, Failure> {
    let spec = settings.vault();
    Vault::open_or_create(&spec, now, &signer.verifier())
        .await
        .or_fail(format!("the vault {} cannot be written", spec.location()))
}

/// Marks a backup as being read, so that no prune removes it meanwhile. Where this host may not
/// write into the vault, the second says what the reader relies on instead.
pub(crate) async fn mark(
    settings: &Settings,
    cluster: &ClusterName,
    id: SnapshotId,
    reader: Reader,
) -> Result<(Option<Mark>, Option<String>), Failure> {
    let what = format!("the backup {id} was not marked as in use");
    let set = match Vault::<ReadWrite>::open(&settings.vault()).await {
        Ok(vault) => Mark::set(&vault, cluster, id, reader).await,
        Err(error) => Err(error),
    };
    match set {
        Ok(mark) => Ok((Some(mark), None)),
        Err(error @ Error::NothingToRestore { .. }) => Err(error).or_fail(what),
        // In a disaster a vault that can only be read must do.
        Err(error) => {
            let failure = Err::<Mark, _>(error).or_fail(what);
            let line = failure.err().map_or(String::new(), |one| one.line());
            let relies =
                "a prune may remove it `policies.retention.trash_grace` after letting it go";
            Ok((None, Some(format!("{line}; {relies}"))))
        }
    }
}

/// Waits for `work`, whose backup carries `mark`.
pub(crate) async fn during<T>(mark: Option<Mark>, work: impl Future<Output = T>) -> T {
    match mark {
        Some(mark) => mark.during(work).await,
        None => work.await,
    }
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
    let loaded = Catalog::load(vault, cluster, trust, Some(&local)).await;
    let mut catalog = loaded.or_fail(format!(
        "the backups of `{cluster}` in {} cannot be listed",
        settings.vault().location()
    ))?;
    // What waits on this host is not there yet, and nobody removed it.
    let waiting = waiting_dir(settings);
    let waits =
        |flaw: &Flaw| flaw.kind == FlawKind::HeadMissing && waiting.join(&flaw.object).exists();
    catalog.flaws.retain(|flaw| !waits(flaw));
    Ok(catalog)
}

/// Where backups wait while the vault cannot be reached, laid out as a vault.
pub(crate) fn waiting_dir(settings: &Settings) -> PathBuf {
    settings.data_dir().join("waiting")
}

/// What the vault holds of `cluster`.
pub(crate) async fn catalog(
    settings: &Settings,
    cluster: &ClusterName,
) -> Result<Catalog, Failure> {
    let vault = read(settings).await?;
    catalog_in(&vault, settings, cluster, &keys::trust(settings)?).await
}

/// What the vault holds of `cluster`: the backups and the changes between them.
pub(crate) async fn history(
    settings: &Settings,
    cluster: &ClusterName,
) -> Result<(Catalog, Runs), Failure> {
    let (vault, trust) = (read(settings).await?, keys::trust(settings)?);
    let catalog = catalog_in(&vault, settings, cluster, &trust).await?;
    let runs = runs_in(&vault, settings, &catalog, &trust).await?;
    Ok((catalog, runs))
}

/// The changes between the backups of `catalog`.
pub(crate) async fn runs_in<Mode: Sync>(
    vault: &Vault<Mode>,
    settings: &Settings,
    catalog: &Catalog,
    trust: &Trust,
) -> Result<Runs, Failure> {
    runs_again(vault, settings, catalog, trust, &mut Known::default()).await
}

/// The same for whoever looks again and again.
pub(crate) async fn runs_again<Mode: Sync>(
    vault: &Vault<Mode>,
    settings: &Settings,
    catalog: &Catalog,
    trust: &Trust,
    known: &mut Known,
) -> Result<Runs, Failure> {
    let surveyed = run::survey_again(vault, catalog, trust, known).await;
    surveyed.or_fail(format!(
        "the changes of `{}` in {} cannot be listed",
        catalog.cluster,
        settings.vault().location()
    ))
}

/// What is wrong with the history of a catalog and needs a person's eye. A prune that was cut short
/// does not: the backup is let go already, and the next prune ends it.
pub(crate) fn problems(catalog: &Catalog) -> impl Iterator<Item = &Flaw> {
    catalog
        .flaws
        .iter()
        .filter(|flaw| flaw.kind != FlawKind::ReleasedPresent)
}

/// Those of them that retention must not act beside: what is missing here may be what it counts on.
/// A ledger record or a proof of a stranger hides nothing, it only does not count.
pub(crate) fn obstacles(catalog: &Catalog) -> impl Iterator<Item = &Flaw> {
    problems(catalog).filter(|flaw| flaw.kind != FlawKind::RecordStranger)
}

/// The backup whose id begins with `text`, or the newest. One in the trash is found by its id.
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
    let trashed = catalog.trash.iter().map(|one| &one.backup);
    one_called(catalog.backups.iter().chain(trashed), cluster, text)
}

/// The one of `among` whose id begins with `text`.
pub(crate) fn one_called<'a>(
    among: impl Iterator<Item = &'a Backup>,
    cluster: &ClusterName,
    text: &str,
) -> Result<&'a Backup, Failure> {
    let wanted = text.to_ascii_lowercase();
    let mut found = among.filter(|one| one.id().to_string().starts_with(&wanted));
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
