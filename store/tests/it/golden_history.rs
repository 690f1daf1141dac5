//! Hashes and keys at every listed revision, against what etcd, etcdctl and etcdutl said.
#![expect(
    clippy::as_conversions,
    clippy::unwrap_used,
    reason = "a test says what it expects and stops when it is not so"
)]

use holdfast_store::Error;
use holdfast_store::bolt::FileSource;
use holdfast_store::etcd_file::{EtcdFile, Pair};
use serde_json::Value;

use crate::golden_fixture::{BASIC, DUMPED, base64, json, keys_digest, list, open, sha256, text};

/// Checks one hash, or the refusal that stands in its place.
fn assert_hash(name: &str, file: &EtcdFile<FileSource>, asked: i64, expected: &Value) {
    let found = file.hash_kv(asked);
    match expected["error"].as_str() {
        None => {
            let found = found.unwrap();
            assert_eq!(u64::from(found.hash), expected["hash"], "{name} at {asked}");
            for key in ["hash_revision", "hashRevision"] {
                // etcd 3.5 does not tell the revision it hashed.
                if expected[key].as_i64().is_some_and(|revision| revision > 0) {
                    assert_eq!(found.hash_revision, expected[key], "{name} at {asked}");
                }
            }
            for key in ["compact_revision", "compactRevision"] {
                if !expected[key].is_null() {
                    assert_eq!(found.compact_revision, expected[key], "{name} at {asked}");
                }
            }
        }
        Some(error) if error.contains("has been compacted") => {
            assert!(
                matches!(found, Err(Error::Compacted)),
                "{name} at {asked}: {found:?}"
            );
        }
        Some(error) if error.contains("is a future revision") => {
            assert!(
                matches!(found, Err(Error::FutureRevision)),
                "{name} at {asked}: {found:?}"
            );
        }
        Some(error) => panic!("{name} at {asked}: {error}"),
    }
}

/// A live server answers at exactly the compacted revision with what it stored while it compacted,
/// over rows that are gone since: no reader of the file can give that number. That ours remembers
/// it as etcd does, and that etcd started from these files says what we compute, is shown in
/// `interop/tests/it/remembered.rs`.
fn was_stored_while_compacting(file: &EtcdFile<FileSource>, asked: i64, expected: &Value) -> bool {
    let compacted = file.compact_revision().unwrap();
    asked == compacted && expected["compact_revision"] == -1
}

#[test]
fn hashkv_is_what_the_servers_answered() {
    let mut checked = 0;
    for name in BASIC {
        let file = open(name);
        for expected in list(&json(name)["hashkv"]) {
            let asked = expected["asked"].as_i64().unwrap();
            if !was_stored_while_compacting(&file, asked, expected) {
                assert_hash(name, &file, asked, expected);
                checked += 1;
            }
        }
    }
    for name in DUMPED {
        let file = open(name);
        for expected in list(&json(name)["dump"]["hashkv"]) {
            let asked = expected["asked_rev"].as_i64().unwrap();
            if !was_stored_while_compacting(&file, asked, expected) {
                assert_hash(name, &file, asked, expected);
                checked += 1;
            }
        }
        for expected in list(&json(name)["etcdctl_endpoint_hashkv"]) {
            assert_hash(name, &file, 0, &expected["HashKV"]);
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked}");
}

#[test]
fn hashkv_is_what_etcdutl_computed_from_the_file() {
    let mut checked = 0;
    for name in BASIC {
        assert_hash(name, &open(name), 0, &json(name)["utl_hashkv"]);
        checked += 1;
    }
    for name in DUMPED {
        for expected in list(&json(name)["etcdutl_hashkv"]) {
            let asked = expected["asked_rev"].as_i64().unwrap();
            assert_hash(name, &open(name), asked, &expected["result"]);
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
}

#[test]
fn every_key_has_the_fields_that_clients_saw() {
    for name in BASIC {
        let golden = json(name);
        let expected = list(&golden["keys"]);
        let keys = open(name).keys(0).unwrap();
        assert_eq!(keys.len(), expected.len(), "{name}");
        for (key, expected) in keys.iter().zip(expected) {
            assert_eq!(key.key, base64(&expected["key"]), "{name}");
            assert_eq!(key.create_revision, expected["create_revision"], "{name}");
            assert_eq!(key.mod_revision, expected["mod_revision"], "{name}");
            assert_eq!(key.version, expected["version"], "{name}");
            assert_eq!(key.lease, expected["lease"], "{name}");
            assert_eq!(sha256(&key.value), expected["value_sha256"], "{name}");
        }
    }
}

#[test]
fn every_dumped_key_has_its_fields_and_value() {
    for name in DUMPED {
        let dump = &json(name)["dump"];
        let expected = list(&dump["keys"]);
        let keys = open(name).keys(0).unwrap();
        assert_eq!(keys.len() as u64, dump["key_count"], "{name}");
        assert_eq!(keys.len(), expected.len(), "{name}");
        for (key, expected) in keys.iter().zip(expected) {
            assert_eq!(key.key, base64(&expected["key_b64"]), "{name}");
            assert_eq!(key.create_revision, expected["create_revision"], "{name}");
            assert_eq!(key.mod_revision, expected["mod_revision"], "{name}");
            assert_eq!(key.version, expected["version"], "{name}");
            let lease = expected["lease_hex"].as_str().map_or(0, |hexadecimal| {
                i64::from_str_radix(hexadecimal, 16).unwrap()
            });
            assert_eq!(key.lease, lease, "{name}");
            assert_eq!(key.value.len() as u64, expected["value_len"], "{name}");
            assert_eq!(sha256(&key.value), expected["value_sha256"], "{name}");
            if !expected["value_b64"].is_null() {
                assert_eq!(key.value, base64(&expected["value_b64"]), "{name}");
            }
        }
        assert_eq!(keys_digest(&keys), dump["keys_digest"], "{name}");
    }
}

#[test]
fn past_revisions_show_the_keys_they_showed() {
    let mut checked = 0;
    for name in DUMPED {
        let file = open(name);
        for expected in list(&json(name)["dump"]["past_revisions"]) {
            let revision = expected["revision"].as_i64().unwrap();
            let keys = file.keys(revision).unwrap();
            assert_eq!(keys.len() as u64, expected["count"], "{name} at {revision}");
            assert_eq!(
                keys_digest(&keys),
                expected["keys_digest"],
                "{name} at {revision}"
            );
            checked += 1;
        }
    }
    assert!(checked >= 6, "{checked}");
}

#[test]
fn rows_after_the_compaction_are_the_events_that_watchers_saw() {
    for name in DUMPED {
        let file = open(name);
        let golden = json(name);
        let Some(expected) = golden["dump"].get("events_after_compaction").map(list) else {
            continue;
        };
        let compacted = file.compact_revision().unwrap();
        let mut events = expected.iter();
        file.for_each_row(|row, _key, value| {
            if row.revision.main <= compacted {
                return Ok(());
            }
            let event = events.next().expect("as many rows as events");
            let pair = Pair::decode(value).unwrap();
            assert_eq!(pair.key, base64(&event["key_b64"]), "{name}");
            assert_eq!(row.revision.main, event["mod_revision"], "{name}");
            assert_eq!(row.is_tombstone, text(&event["type"]) == "DELETE", "{name}");
            assert_eq!(pair.create_revision, event["create_revision"], "{name}");
            assert_eq!(pair.version, event["version"], "{name}");
            assert_eq!(sha256(pair.value), event["value_sha256"], "{name}");
            Ok(())
        })
        .unwrap();
        assert_eq!(events.len(), 0, "{name}");
    }
}

#[test]
fn revisions_are_those_of_the_servers() {
    for name in BASIC {
        let golden = json(name);
        let file = open(name);
        assert_eq!(file.revision().unwrap(), golden["revision"], "{name}");
    }
    for name in DUMPED {
        let dump = &json(name)["dump"];
        let file = open(name);
        assert_eq!(
            file.revision().unwrap(),
            dump["header"]["revision"],
            "{name}"
        );
        let compacted = file.compact_revision().unwrap().max(0);
        assert_eq!(compacted, dump["compact_revision"], "{name}");
    }
}
