//! Where the golden snapshots are: made by real etcd, with what real etcd says of each.

use std::path::{Path, PathBuf};

/// Version and name of every golden snapshot.
pub const GOLDEN: [(&str, &str); 9] = [
    ("v3.5.35", "basic"),
    ("v3.6.16", "basic"),
    ("v3.7.3", "alarm"),
    ("v3.7.3", "auth"),
    ("v3.7.3", "basic"),
    ("v3.7.3", "empty"),
    ("v3.7.3", "k8s"),
    ("v3.7.3", "small"),
    ("v3.7.3", "uncompacted"),
];

/// The folder of the golden files in the store's fixtures.
pub fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/fixtures/etcd")
}

/// The snapshot file of a golden pair.
pub fn snapshot(version: &str, name: &str) -> PathBuf {
    dir().join(version).join(format!("{name}.db"))
}

/// What real etcd said of a golden snapshot.
///
/// # Errors
/// When the file is missing or not JSON.
pub fn facts(version: &str, name: &str) -> anyhow::Result<serde_json::Value> {
    let path = dir().join(version).join(format!("{name}.json"));
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}
