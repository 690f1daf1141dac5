//! Who writes the backups of a source: the daemon that claimed the newest generation.
//!
//! A daemon claims a generation once and writes all its backups in it. One that claimed later (on
//! another host, or on this one after its data directory was copied) has a higher one, and from
//! then on the vault refuses the earlier daemon: a stale runner cannot write beside the new one.

use std::path::PathBuf;

use holdfast_policies::{ClusterName, Generation};
use holdfast_restore::Catalog;
use holdfast_store::datadir::durable;
use serde::{Deserialize, Serialize};

use crate::config::Settings;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::keys;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Owned {
    generation: Generation,
}

/// Claims the newest generation of a source where this host wrote it, else the one after it.
pub(crate) fn claim(settings: &Settings, catalog: &Catalog) -> Result<Generation, Failure> {
    let Some(newest) = catalog.newest().map(|backup| backup.manifest.generation) else {
        return Ok(Generation::FIRST);
    };
    if owned(settings, &catalog.cluster) == Some(newest) {
        return Ok(newest);
    }
    newest.next().ok_or_else(|| {
        let what = format!("`{}` has no generation left to claim", catalog.cluster);
        Failure::new(ErrorName::Exhausted, what)
    })
}

/// Notes that this host writes `generation` of `source`.
pub(crate) fn remember(
    settings: &Settings,
    source: &ClusterName,
    generation: Generation,
) -> Result<(), Failure> {
    if owned(settings, source) == Some(generation) {
        return Ok(());
    }
    let file = file_of(settings, source);
    if let Some(dir) = file.parent() {
        keys::make_private_dir(dir)?;
    }
    let mut bytes = serde_json::to_vec(&Owned { generation })
        .map_err(|e| Failure::unexpected("the note could not be laid out", &e))?;
    bytes.push(b'\n');
    durable::write_file(&file, &bytes).or_fail(format!("{} was not written", file.display()))
}

fn owned(settings: &Settings, source: &ClusterName) -> Option<Generation> {
    let bytes = std::fs::read(file_of(settings, source)).ok()?;
    serde_json::from_slice::<Owned>(&bytes)
        .ok()
        .map(|owned| owned.generation)
}

fn file_of(settings: &Settings, source: &ClusterName) -> PathBuf {
    settings
        .data_dir()
        .join("ledger")
        .join(format!("{source}.owned.json"))
}
