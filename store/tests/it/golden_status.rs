//! `snapshot status` and the digest, against what etcdutl said.
#![expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::time::Duration;

use holdfast_store::bolt::FileSource;
use holdfast_store::etcd_file::{Trailer, check_trailer};

use crate::golden_fixture::{ALL, bytes, json, open, path, sha256};

#[test]
fn status_says_what_etcdutl_of_the_same_release_says() {
    for name in ALL {
        let golden = json(name);
        let expected = match golden.get("status") {
            Some(status) => status,
            None => &golden["etcdutl_snapshot_status"],
        };
        let status = open(name).status().unwrap();
        assert_eq!(u64::from(status.hash), expected["hash"], "{name}");
        assert_eq!(status.revision, expected["revision"], "{name}");
        assert_eq!(status.total_size, expected["totalSize"], "{name}");
        assert_eq!(
            status.version,
            expected["version"].as_str().unwrap_or(""),
            "{name}"
        );
        let total = if name.starts_with("v3.5") {
            status.total_row
        } else {
            status.total_key
        };
        assert_eq!(total, expected["totalKey"], "{name}");
    }
}

#[test]
fn every_golden_file_has_its_size_digest_and_clean_pages() {
    for name in ALL {
        let golden = json(name);
        let file = golden.get("file").unwrap_or(&golden["snapshot"]);
        let content = bytes(name);
        assert_eq!(
            content.len(),
            file["size"].as_u64().unwrap() as usize,
            "{name}"
        );
        assert_eq!(sha256(&content), file["sha256"], "{name}");
        assert_eq!(check_trailer(&content).unwrap(), Trailer::Valid, "{name}");
        let report = open(name).check();
        assert!(report.is_clean(), "{name}: {:?}", report.problems);
        assert_eq!(report.pages * 4096 + 32, content.len() as u64, "{name}");
        let in_use = 2 + report.branch_pages + report.leaf_pages + report.overflow_pages;
        assert_eq!(in_use + report.free_pages, report.pages, "{name}");
    }
}

#[test]
fn a_file_without_its_digest_is_told_from_one_with_a_wrong_one() {
    let whole = bytes("v3.7.3/small");
    let pages = whole.len() - 32;
    assert_eq!(check_trailer(&whole[..pages]).unwrap(), Trailer::Missing);
    assert_eq!(
        check_trailer(&whole[..pages + 31]).unwrap(),
        Trailer::Mismatch
    );
    assert_eq!(
        check_trailer(&whole[..pages - 512 + 32]).unwrap(),
        Trailer::Mismatch
    );
    let mut longer = whole.clone();
    longer.push(0);
    assert_eq!(check_trailer(&longer).unwrap(), Trailer::Mismatch);
    let mut other = whole;
    *other.last_mut().unwrap() ^= 1;
    assert_eq!(check_trailer(&other).unwrap(), Trailer::Mismatch);
}

#[test]
fn reading_everything_leaves_bytes_and_times_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("snapshot.db");
    std::fs::copy(path("v3.7.3/auth"), &copy).unwrap();
    let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let handle = std::fs::File::options().write(true).open(&copy).unwrap();
    handle.set_modified(long_ago).unwrap();
    drop(handle);

    let source = FileSource::open(&copy).unwrap();
    assert_eq!(check_trailer(&source).unwrap(), Trailer::Valid);
    let file = holdfast_store::etcd_file::EtcdFile::open(source).unwrap();
    assert!(file.check().is_clean());
    file.status().unwrap();
    file.hash_kv(0).unwrap();
    file.keys(0).unwrap();
    file.survey(|_pair| ()).content.unwrap();
    file.auth().unwrap();

    assert_eq!(std::fs::read(&copy).unwrap(), bytes("v3.7.3/auth"));
    assert_eq!(
        std::fs::metadata(&copy).unwrap().modified().unwrap(),
        long_ago
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
