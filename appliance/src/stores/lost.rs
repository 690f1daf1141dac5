//! A bundled store that is not there although its backups are: lost, or not mounted. An empty one
//! in its place would serve clients nothing and look well, so it is not started without consent.

use holdfast_restore::Catalog;
use holdfast_restore::source::SourceSpec;
use holdfast_store::datadir::{DirState, Layout, Marker};

use crate::config::{Settings, Source};
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::jobs::acceptance;
use crate::{keys, vaults};

/// Whether the store that is about to start takes the place of one that has backups. Without
/// `is_accepted` that is refused. Returns whether a new cluster takes over the source's name.
pub(crate) async fn check(settings: &Settings, is_accepted: bool) -> Result<bool, Failure> {
    let sources = &settings.config.restore.sources;
    let bundled = sources.iter().find(|one| one.kind == SourceSpec::Bundled);
    let Some(source) = bundled.filter(|_| settings.config.store.enabled) else {
        return Ok(false);
    };
    let layout = Layout::new(settings.store_dir());
    let state = layout.inspect().or_fail("the bundled store cannot start")?;
    if state == DirState::Complete {
        warn_of_another(settings, source, &layout).await;
        return Ok(false);
    }
    match traces(settings, source).await {
        Some(_) if is_accepted => Ok(true),
        // The backups are those of a cluster that runs, and this one takes its place in it.
        Some(_) if super::is_cluster_running(settings).await? => Ok(false),
        Some(trace) => Err(refused(settings, source, &trace)),
        None => Ok(false),
    }
}

/// What shows that the source had backups. A vault that does not answer must not keep a first
/// store from starting; this host's own ledger is enough to know of one.
async fn traces(settings: &Settings, source: &Source) -> Option<String> {
    match catalog(settings, source).await {
        Ok(catalog) => {
            if let Some(newest) = catalog.newest() {
                let count = catalog.backups.len();
                return Some(format!(
                    "the vault holds backups of it: {count}, the newest {}",
                    newest.id()
                ));
            }
            if let Some(flaw) = catalog.flaws.first() {
                return Some(format!("the vault holds something of it: {flaw}"));
            }
        }
        Err(failure) if failure.name() == ErrorName::NoBackup => {}
        Err(failure) => {
            let (source, failure) = (source.name.as_str(), failure.line());
            tracing::warn!(
                source,
                failure,
                "the vault does not say whether this new store takes the place of a lost one"
            );
        }
    }
    let head = vaults::local_ledger(settings, &source.name).ok()?.head?;
    Some(format!(
        "this host's ledger knows of a backup of it, number {} in its chain",
        head.sequence.0
    ))
}

fn refused(settings: &Settings, source: &Source, trace: &str) -> Failure {
    let dir = settings.store_dir();
    Failure::new(
        ErrorName::ClusterChanged,
        format!(
            "the bundled store is not in {}, and `{}` has been backed up before",
            dir.display(),
            source.name
        ),
    )
    .because_of(trace)
    .next(format!(
        "bring it back with `holdfast restore --data-dir {}` (or mount what belongs there), then \
         start again; to begin with an empty store instead, `holdfast run --accept-new-cluster` \
         once",
        dir.display()
    ))
}

/// A store that is another cluster than the backups cannot be backed up: said at once, not first
/// when the next backup is due.
async fn warn_of_another(settings: &Settings, source: &Source, layout: &Layout) {
    let here = Marker::read(layout).and_then(|marker| marker.cluster());
    let (Ok(here), Ok(catalog)) = (here, catalog(settings, source).await) else {
        return;
    };
    let backed_up = catalog
        .newest()
        .and_then(|newest| newest.manifest.source.cluster_id.as_deref());
    let Some(backed_up) = backed_up.and_then(|id| u64::from_str_radix(id, 16).ok()) else {
        return;
    };
    let id = format!("{:x}", here.0);
    let is_known = backed_up == here.0 || acceptance::is_accepted(settings, &source.name, &id);
    if !is_known {
        tracing::error!(
            source = source.name.as_str(),
            cluster_id = id,
            backed_up = format!("{backed_up:x}"),
            "the bundled store is another cluster than the one in the vault and is not backed up: \
             restore the old one, or `holdfast backup now --accept-new-cluster`"
        );
    }
}

async fn catalog(settings: &Settings, source: &Source) -> Result<Catalog, Failure> {
    let trust = keys::trust(settings)?;
    let vault = vaults::read(settings).await?;
    vaults::catalog_in(&vault, settings, &source.name, &trust).await
}
