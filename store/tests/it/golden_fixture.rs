//! The golden files: snapshots that real etcd made, and what real etcd says of each. Part of the
//! tests of `store` and of `restore`.
#![expect(
    clippy::unwrap_used,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_proto::etcd::kv;
use holdfast_store::bolt::FileSource;
use holdfast_store::etcd_file::EtcdFile;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Every golden file, as `folder/name`.
pub(crate) const ALL: [&str; 9] = [
    "v3.5.35/basic",
    "v3.6.16/basic",
    "v3.7.3/alarm",
    "v3.7.3/auth",
    "v3.7.3/basic",
    "v3.7.3/empty",
    "v3.7.3/k8s",
    "v3.7.3/small",
    "v3.7.3/uncompacted",
];

/// Those whose json came from etcdctl and etcdutl by hand.
pub(crate) const BASIC: [&str; 4] = [
    "v3.5.35/basic",
    "v3.6.16/basic",
    "v3.7.3/basic",
    "v3.7.3/uncompacted",
];

/// Those whose json holds a full dump.
pub(crate) const DUMPED: [&str; 5] = [
    "v3.7.3/alarm",
    "v3.7.3/auth",
    "v3.7.3/empty",
    "v3.7.3/k8s",
    "v3.7.3/small",
];

pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../store/tests/fixtures/etcd")
        .join(format!("{name}.db"))
}

pub(crate) fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

pub(crate) fn open(name: &str) -> EtcdFile<FileSource> {
    EtcdFile::open(FileSource::open(&path(name)).unwrap()).unwrap()
}

pub(crate) fn json(name: &str) -> Value {
    let text = std::fs::read_to_string(path(name).with_extension("json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A list that the json writes as null when it is empty.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

pub(crate) fn base64(value: &Value) -> Vec<u8> {
    STANDARD.decode(text(value)).unwrap()
}

pub(crate) fn hexadecimal(value: &Value) -> u64 {
    u64::from_str_radix(text(value), 16).unwrap()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The digest over all keys that the dumps explain under `keys_digest_how`.
pub(crate) fn keys_digest(keys: &[kv::KeyValue]) -> String {
    let mut digest = Sha256::new();
    for key in keys {
        let lease = if key.lease == 0 {
            String::new()
        } else {
            format!("{:016x}", key.lease)
        };
        let line = format!(
            "{} {} {} {} {lease} {}\n",
            STANDARD.encode(&key.key),
            key.create_revision,
            key.mod_revision,
            key.version,
            sha256(&key.value),
        );
        digest.update(line);
    }
    hex::encode(digest.finalize())
}
