//! Which new cluster a source may become: the one this host restored.
//!
//! A backup of another cluster than before is refused, because it usually means a wrong address. A
//! restore makes a new cluster on purpose; what it made is noted here, so that the scheduled
//! backups go on without a hand.

use std::path::PathBuf;

use holdfast_policies::ClusterName;
use holdfast_store::datadir::durable;
use serde::{Deserialize, Serialize};

use crate::config::Settings;
use crate::failure::{Failure, OrFail as _};
use crate::keys;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    cluster_id: String,
}

/// Notes that `source` may become the cluster with this id.
pub(crate) fn accept(
    settings: &Settings,
    source: &ClusterName,
    cluster_id: u64,
) -> Result<(), Failure> {
    let file = file_of(settings, source);
    if let Some(dir) = file.parent() {
        keys::make_private_dir(dir)?;
    }
    let accepted = Accepted {
        cluster_id: format!("{cluster_id:x}"),
    };
    let mut bytes = serde_json::to_vec(&accepted)
        .map_err(|e| Failure::unexpected("the note could not be laid out", &e))?;
    bytes.push(b'\n');
    durable::write_file(&file, &bytes).or_fail(format!("{} was not written", file.display()))
}

/// Whether this host restored the cluster with this id as `source`.
pub(crate) fn is_accepted(settings: &Settings, source: &ClusterName, cluster_id: &str) -> bool {
    let Ok(bytes) = std::fs::read(file_of(settings, source)) else {
        return false;
    };
    serde_json::from_slice::<Accepted>(&bytes).is_ok_and(|one| one.cluster_id == cluster_id)
}

fn file_of(settings: &Settings, source: &ClusterName) -> PathBuf {
    settings
        .data_dir()
        .join("ledger")
        .join(format!("{source}.restored.json"))
}
