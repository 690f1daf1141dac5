//! Files that bbolt itself wrote with what etcd does not use: other page sizes, a stored freelist,
//! nested and inline buckets, pages freed by deletes.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::path::PathBuf;

use holdfast_store::bolt::{Bolt, Bucket, Error, Fault, ReadAt};
use serde_json::{Map, Value};

const ALL: [(&str, u32); 3] = [
    ("page-1024-freelist", 1024),
    ("page-4096-freelist", 4096),
    ("page-16384", 16_384),
];

fn path(name: &str, extension: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/etcd/bbolt")
        .join(name)
        .with_extension(extension)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(path(name, "db")).unwrap()
}

/// A bucket as the json next to the file writes it.
fn dump<R: ReadAt>(bucket: &Bucket<'_, R>) -> Value {
    let mut map = Map::new();
    for entry in bucket {
        let entry = entry.unwrap();
        let key = String::from_utf8(entry.key.to_vec()).unwrap();
        let value = if entry.is_bucket {
            assert_eq!(bucket.get(&entry.key).unwrap(), None);
            dump(&bucket.bucket(&entry.key).unwrap().unwrap())
        } else {
            assert!(bucket.bucket(&entry.key).unwrap().is_none());
            match entry.value.len() {
                length @ 101.. => {
                    format!("{length} bytes of {}", char::from(entry.value[0])).into()
                }
                _ => String::from_utf8(entry.value.to_vec()).unwrap().into(),
            }
        };
        map.insert(key, value);
    }
    Value::Object(map)
}

#[test]
fn every_page_size_nesting_and_freelist_reads_as_bbolt_reads_it() {
    for (name, page_size) in ALL {
        let text = std::fs::read_to_string(path(name, "json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let bolt = Bolt::open(bytes(name)).unwrap();
        assert_eq!(bolt.page_size(), page_size);
        assert_eq!(dump(&bolt.root()), expected, "{name}");
        let report = bolt.check();
        assert!(report.is_clean(), "{name}: {:?}", report.problems);
        assert_eq!(report.buckets, 7, "{name}");
        assert!(report.free_pages > 0, "{name}");
        assert_eq!(bolt.bucket(b"inline").unwrap().unwrap().sequence(), 77);
    }
}

#[test]
fn a_page_that_is_neither_used_nor_free_is_reported() {
    let mut content = bytes("page-1024-freelist");
    let free = Bolt::open(content.as_slice()).unwrap().check().free_pages;
    // The newest freelist is the one with as many ids as pages are free.
    let freelist = (2..content.len() / 1024)
        .map(|page| page * 1024)
        .find(|at| {
            content[at + 8] == 0x10
                && u64::from(u16::from_le_bytes([content[at + 10], content[at + 11]])) == free
        })
        .unwrap();
    content[freelist + 10] -= 1;
    let problems = Bolt::open(content.as_slice()).unwrap().check().problems;
    assert!(
        matches!(
            problems[..],
            [Error::Page {
                fault: Fault::Lost,
                ..
            }]
        ),
        "{problems:?}"
    );
    content[freelist + 10] += 2;
    let problems = Bolt::open(content.as_slice()).unwrap().check().problems;
    assert!(!problems.is_empty());
}

#[test]
fn a_large_page_is_found_when_the_first_meta_page_is_gone() {
    let mut content = bytes("page-16384");
    content[..200].fill(0xAA);
    let bolt = Bolt::open(content).unwrap();
    assert_eq!(bolt.page_size(), 16_384);
    assert!(bolt.spare_meta().is_some());
}

#[test]
fn damage_anywhere_in_these_files_neither_panics_nor_hangs() {
    for (name, _) in ALL {
        let content = bytes(name);
        for at in (0..content.len()).step_by(397) {
            let mut damaged = content.clone();
            damaged[at] ^= 0x81;
            if let Ok(bolt) = Bolt::open(damaged) {
                let report = bolt.check();
                assert!(report.problems.len() <= 100);
                for name in bolt.buckets().unwrap_or_default() {
                    if let Ok(Some(bucket)) = bolt.bucket(&name) {
                        assert!(bucket.iter().count() < 10_000);
                    }
                }
            }
        }
    }
}
