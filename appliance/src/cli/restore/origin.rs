//! Whose backups are restored, on a host that may know nothing but the vault.

use holdfast_policies::ClusterName;
use holdfast_restore::{Catalog, ReadOnly, Vault};

use crate::config::Settings;
use crate::failure::{ErrorName, Failure, OrFail as _};

/// The cluster that is meant: one of the configuration, or one that is only in the vault and named.
pub(super) async fn cluster(
    named: Option<&str>,
    settings: &Settings,
    vault: &Vault<ReadOnly>,
) -> Result<ClusterName, Failure> {
    let configured = &settings.config.restore.sources;
    if let Some(name) = named
        && let Some(source) = configured.iter().find(|one| one.name.as_str() == name)
    {
        return Ok(source.name.clone());
    }
    let stored = vault.clusters().await.or_fail(format!(
        "the clusters in {} cannot be listed",
        settings.vault().location()
    ))?;
    let list = || {
        let names: Vec<&str> = stored.iter().map(ClusterName::as_str).collect();
        names.join(", ")
    };
    if let Some(name) = named {
        let found = stored.iter().find(|one| one.as_str() == name);
        return found.cloned().ok_or_else(|| {
            let what = format!("there is no source `{name}`, in the configuration or in the vault");
            let next = format!("--source takes one of those in the vault: {}", list());
            Failure::new(ErrorName::NotFound, what).next(next)
        });
    }
    let source = settings.source(None)?;
    if stored.is_empty() || stored.contains(&source.name) {
        return Ok(source.name.clone());
    }
    Err(Failure::new(
        ErrorName::NoBackup,
        format!("the vault holds no backup of `{}`", source.name),
    )
    .next(format!(
        "--source NAME takes one of those it holds: {}",
        list()
    )))
}

/// Every backup is signed by somebody who is not trusted here: says by whom, and how to trust them.
pub(super) fn refuse_strangers(settings: &Settings, catalog: &Catalog) -> Result<(), Failure> {
    if !catalog.backups.is_empty() || catalog.strangers.is_empty() {
        return Ok(());
    }
    let configured = settings.config.restore.trusted_signers.iter();
    let keys: Vec<String> = configured
        .chain(&catalog.strangers)
        .map(|key| format!("\"{key}\""))
        .collect();
    let what = format!(
        "every backup of `{}` is signed by a key that is not trusted here",
        catalog.cluster
    );
    let failure = catalog
        .strangers
        .iter()
        .fold(Failure::new(ErrorName::Denied, what), |failure, key| {
            failure.because_of(format!("signed by {key}"))
        });
    Err(failure.next(format!(
        "compare the key with the one you noted (`holdfast key show` on the host that takes the \
         backups); where it is the same, run this again with --set 'restore.trusted_signers=[{}]'",
        keys.join(", ")
    )))
}
