//! The golden files of the store's tests.
#![expect(
    clippy::unwrap_used,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_proto::etcd::kv;
use holdfast_restore::Digest;
use serde_json::Value;

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

pub(crate) fn json(name: &str) -> Value {
    let text = std::fs::read_to_string(path(name).with_extension("json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The digest over all keys that the dumps explain under `keys_digest_how`.
pub(crate) fn keys_digest(keys: &[kv::KeyValue]) -> String {
    let mut text = String::new();
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
            Digest::of(&key.value),
        );
        text.push_str(&line);
    }
    Digest::of(text.as_bytes()).to_string()
}
