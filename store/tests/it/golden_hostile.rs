//! Damaged and hostile files: no panic, no endless loop, no flip that goes unnoticed.
#![expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::time::{Duration, Instant};

use holdfast_store::bolt::{Bolt, Error, Fault, ReadAt};
use holdfast_store::etcd_file::{EtcdFile, Trailer, check_trailer};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::golden_fixture::{ALL, bytes};
use crate::long::rounds;

const PAGE: usize = 4096;

/// Goes through everything that can be read; whether it fails does not matter here.
fn exercise(content: &[u8]) -> Option<EtcdFile<&[u8]>> {
    let trailer = check_trailer(content).unwrap();
    let file = EtcdFile::open(content).ok()?;
    let report = file.check();
    assert!(report.problems.len() <= 100);
    let outcomes = (
        trailer,
        file.status().is_ok(),
        file.hash_kv(0).is_ok(),
        file.keys(0).is_ok(),
        (
            file.survey(|_pair| ()).content.is_ok(),
            file.members().is_ok(),
            file.alarms().is_ok(),
        ),
        (
            file.auth().is_ok(),
            file.conf_state().is_ok(),
            file.revision().is_ok(),
        ),
    );
    std::hint::black_box(outcomes);
    for name in file.bolt().buckets().unwrap_or_default() {
        if let Ok(Some(bucket)) = file.bolt().bucket(&name) {
            assert!(bucket.iter().count() < 1_000_000);
            drop(bucket.get(b"anything"));
            drop(bucket.last());
        }
    }
    Some(file)
}

/// One damage of a kind chosen by the seed.
fn damage(content: &mut Vec<u8>, random: &mut StdRng) {
    let length = content.len();
    let pages = length / PAGE;
    match random.random_range(0..8) {
        0 => content[random.random_range(0..length)] ^= 1 << random.random_range(0..8),
        1 => content.truncate(random.random_range(0..length)),
        2 => {
            let (from, to) = (random.random_range(0..pages), random.random_range(0..pages));
            content.copy_within(from * PAGE..(from + 1) * PAGE, to * PAGE);
        }
        3 => {
            // A header field: id, flags, count or overflow.
            let at = random.random_range(0..pages) * PAGE + random.random_range(0..16);
            content[at] = random.random();
        }
        4 => {
            // An element: flags, position, sizes or a child.
            let page = random.random_range(2..pages.max(3)) * PAGE;
            let at = page + 16 + random.random_range(0..64);
            if let Some(byte) = content.get_mut(at) {
                *byte = random.random();
            }
        }
        5 => {
            // A child id that points anywhere, back to its own page included.
            let page = random.random_range(2..pages.max(3)) * PAGE;
            let at = page + 16 + 16 * random.random_range(0..4) + 8;
            let child = random.random_range(0..pages as u64 + 2);
            if let Some(slot) = content.get_mut(at..at + 8) {
                slot.copy_from_slice(&child.to_le_bytes());
            }
        }
        6 => {
            let start = random.random_range(0..length);
            let end = (start + random.random_range(1..600)).min(length);
            for byte in &mut content[start..end] {
                *byte = random.random();
            }
        }
        _ => {
            let page = random.random_range(0..pages) * PAGE;
            for byte in &mut content[page..page + PAGE] {
                *byte = 0;
            }
        }
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test bounds the time that damage can cost"
)]
fn thousands_of_damaged_files_neither_panic_nor_hang() {
    // The largest file takes its turn less often.
    let (large, small): (Vec<Vec<u8>>, Vec<Vec<u8>>) = ALL
        .iter()
        .map(|name| bytes(name))
        .partition(|content| content.len() > 1 << 20);
    let files = rounds(4_000_u64, 40_000);
    let began = Instant::now();
    for seed in 0..files {
        let mut random = StdRng::seed_from_u64(seed);
        let originals = if seed % 40 == 0 { &large } else { &small };
        let mut content = originals[seed as usize % originals.len()].clone();
        for _ in 0..random.random_range(1..4) {
            if content.len() > 4 * PAGE {
                damage(&mut content, &mut random);
            }
        }
        exercise(&content);
    }
    let taken = began.elapsed();
    assert!(
        taken < Duration::from_millis(75 * files),
        "{taken:?} for {files} files"
    );
}

#[test]
fn every_flip_in_a_snapshot_is_caught_by_its_digest() {
    for name in ALL {
        let mut content = bytes(name);
        let length = content.len();
        let mut random = StdRng::seed_from_u64(length as u64);
        for round in 0..60 {
            // The ends in every run, the rest by chance.
            let at = match round {
                0 => 0,
                1 => length - 1,
                2 => length - 32,
                3 => length - 33,
                _ => random.random_range(0..length),
            };
            let bit = 1 << random.random_range(0..8);
            content[at] ^= bit;
            assert_eq!(
                check_trailer(&content).unwrap(),
                Trailer::Mismatch,
                "{name} at {at}"
            );
            content[at] ^= bit;
        }
    }
}

#[test]
fn flips_in_structure_are_caught_without_the_digest() {
    let original = bytes("v3.7.3/small");
    let pages = &original[..original.len() - 32];
    let reachable = Bolt::open(pages).unwrap().check();
    let mut caught = 0;
    let mut tried = 0;
    let mut random = StdRng::seed_from_u64(7);
    for page in 2..pages.len() / PAGE {
        let mut content = pages.to_vec();
        // The header of each page in turn; free pages are nobody's.
        content[page * PAGE + random.random_range(0..10)] ^= 1 << random.random_range(0..8);
        tried += 1;
        caught += u64::from(!Bolt::open(content).unwrap().check().is_clean());
    }
    let in_use = reachable.branch_pages + reachable.leaf_pages;
    assert!(
        in_use < tried && caught == in_use,
        "{caught} of {in_use} pages, {tried} tried"
    );
}

/// The id of the page the key bucket starts at, and a file to change.
fn first_branch(content: &[u8]) -> usize {
    (2..content.len() / PAGE)
        .find(|page| content[page * PAGE + 8] == 1 && content[page * PAGE + 10] > 2)
        .expect("a branch page")
}

fn faults<R: ReadAt>(bolt: &Bolt<R>) -> Vec<Fault> {
    let problems = bolt.check().problems;
    problems
        .into_iter()
        .filter_map(|problem| match problem {
            Error::Page { fault, .. } => Some(fault),
            _ => None,
        })
        .collect()
}

#[test]
fn a_cycle_of_pages_ends_with_the_page_named() {
    let mut content = bytes("v3.7.3/small");
    let branch = first_branch(&content);
    for element in 0..2 {
        let at = branch * PAGE + 16 + 16 * element + 8;
        content[at..at + 8].copy_from_slice(&(branch as u64).to_le_bytes());
    }
    let bolt = Bolt::open(content.as_slice()).unwrap();
    assert!(faults(&bolt).contains(&Fault::ReachedTwice));
    let bucket = bolt.bucket(b"key").unwrap().unwrap();
    let outcome = bucket.iter().last();
    match outcome {
        Some(Err(Error::Page {
            page,
            fault: Fault::ReachedTwice,
        })) => {
            assert_eq!(page, branch as u64);
        }
        other => panic!("{other:?}"),
    }
    match bucket.get(b"\0") {
        Err(Error::Page {
            fault: Fault::TooDeep(_),
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_paths_to_one_page_are_reported() {
    let mut content = bytes("v3.7.3/small");
    let branch = first_branch(&content);
    let first = branch * PAGE + 16 + 8;
    content.copy_within(first..first + 8, first + 16);
    let bolt = Bolt::open(content.as_slice()).unwrap();
    assert!(!bolt.check().is_clean());
    assert!(
        bolt.bucket(b"key")
            .unwrap()
            .unwrap()
            .iter()
            .last()
            .unwrap()
            .is_err()
    );
}

#[test]
fn a_page_that_claims_the_rest_of_the_file_is_refused() {
    let mut content = bytes("v3.7.3/k8s");
    let branch = first_branch(&content);
    content[branch * PAGE + 12..branch * PAGE + 16].copy_from_slice(&u32::MAX.to_le_bytes());
    let bolt = Bolt::open(content.as_slice()).unwrap();
    assert!(faults(&bolt).contains(&Fault::Overflow(u32::MAX)));
}

#[test]
fn a_file_cut_below_its_last_page_is_refused_at_once() {
    let content = bytes("v3.7.3/basic");
    let cut = &content[..content.len() - 32 - PAGE];
    match Bolt::open(cut) {
        Err(Error::Page {
            fault: Fault::HighWater { pages, held },
            ..
        }) => {
            assert_eq!(pages, held + 1);
        }
        other => panic!("{other:?}"),
    }
    for length in [0, 1, 63, 80, 4095] {
        let refused = Bolt::open(&content[..length]).map(|bolt| bolt.page_count());
        assert!(
            refused.as_ref().is_err_and(Error::is_corrupt),
            "{length}: {refused:?}"
        );
    }
}

#[test]
fn one_damaged_meta_page_leaves_the_other() {
    for meta in 0..2 {
        let mut content = bytes("v3.7.3/basic");
        content[meta * PAGE + 16 + 20] ^= 1;
        let bolt = Bolt::open(content.as_slice()).unwrap();
        match bolt.spare_meta() {
            Some(Error::Page {
                page,
                fault: Fault::MetaChecksum,
            }) => {
                assert_eq!(*page, meta as u64);
            }
            other => panic!("{other:?}"),
        }
        assert!(bolt.check().is_clean());
        let file = EtcdFile::open(content.as_slice()).unwrap();
        assert_eq!(file.hash_kv(0).unwrap().hash, 280_015_280);
    }
}

#[test]
fn rows_that_are_no_revisions_are_named() {
    let mut content = bytes("v3.7.3/uncompacted");
    let separator = content
        .windows(18)
        .position(|window| window[..7] == [0; 7] && window[8] == b'_' && window[9..17] == [0; 8])
        .unwrap();
    // Above the separator, so that the keys stay in order.
    content[separator + 8] = b'`';
    let file = EtcdFile::open(content.as_slice()).unwrap();
    let error = [file.status().err(), file.hash_kv(0).err()]
        .into_iter()
        .flatten()
        .next();
    // The first match can lie in a free page; then nothing reads it.
    if let Some(error) = error {
        assert!(error.to_string().contains("not a revision"), "{error}");
    }
}
