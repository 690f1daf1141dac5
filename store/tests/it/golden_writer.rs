//! The bulk writer: what it writes reads back whole, and depends on its input alone.
#![expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::collections::BTreeMap;

use holdfast_store::bolt::{Bolt, DigestWriter, Measure, Plan, ReadAt, WriteError, Writer};
use holdfast_store::etcd_file::{EtcdFile, Trailer, check_trailer};
use proptest::prelude::*;

use crate::golden_fixture::{ALL, open};
use crate::long::rounds;

type Buckets = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>;

fn measured(buckets: &Buckets, page_size: u32) -> Plan {
    let mut measure = Measure::with_page_size(page_size).unwrap();
    for (name, entries) in buckets {
        measure.bucket(name).unwrap();
        for (key, value) in entries {
            measure.entry(key.len(), value.len()).unwrap();
        }
    }
    measure.finish().unwrap()
}

fn written(buckets: &Buckets, page_size: u32) -> Vec<u8> {
    let plan = measured(buckets, page_size);
    let mut writer = Writer::new(plan, Vec::new()).unwrap();
    for (name, entries) in buckets {
        writer.bucket(name).unwrap();
        for (key, value) in entries {
            writer.put(key, value).unwrap();
        }
    }
    let bytes = writer.finish().unwrap();
    assert_eq!(bytes.len() as u64, plan.size());
    bytes
}

fn read_back<R: ReadAt>(bolt: &Bolt<R>) -> Buckets {
    let mut buckets = Buckets::new();
    for name in bolt.buckets().unwrap() {
        let bucket = bolt.bucket(&name).unwrap().unwrap();
        let entries = bucket
            .iter()
            .map(|entry| {
                entry
                    .map(|entry| (entry.key.to_vec(), entry.value.to_vec()))
                    .unwrap()
            })
            .collect();
        buckets.insert(name.to_vec(), entries);
    }
    buckets
}

/// Reads the file back in every way there is and compares.
fn assert_holds(bytes: &[u8], buckets: &Buckets) {
    let bolt = Bolt::open(bytes).unwrap();
    assert!(bolt.spare_meta().is_none());
    let report = bolt.check();
    assert!(report.is_clean(), "{:?}", report.problems);
    assert_eq!(report.free_pages, 0);
    assert_eq!(
        report.keys,
        buckets
            .values()
            .map(|entries| entries.len() as u64)
            .sum::<u64>()
    );
    assert_eq!(&read_back(&bolt), buckets);
    for (name, entries) in buckets {
        let bucket = bolt.bucket(name).unwrap().unwrap();
        let last = bucket.last().unwrap().map(|entry| entry.key.to_vec());
        assert_eq!(last.as_ref(), entries.keys().next_back());
        for (key, value) in entries.iter().step_by(entries.len() / 50 + 1) {
            assert_eq!(bucket.get(key).unwrap().as_deref(), Some(value.as_slice()));
            let above = [key.as_slice(), b"\0"].concat();
            if !entries.contains_key(&above) {
                assert_eq!(bucket.get(&above).unwrap(), None);
            }
            let next = bucket.iter_from(&above).unwrap().next();
            let next = next.map(|entry| entry.unwrap().key.to_vec());
            assert_eq!(
                next.as_ref(),
                entries.range(above..).next().map(|(key, _)| key)
            );
        }
    }
}

#[test]
fn a_rewritten_golden_file_hashes_as_the_original() {
    for name in ALL {
        let original = open(name);
        let buckets = read_back(original.bolt());
        let bytes = written(&buckets, 4096);
        assert_holds(&bytes, &buckets);
        let copy = EtcdFile::open(bytes.as_slice()).unwrap();
        let (found, expected) = (copy.status().unwrap(), original.status().unwrap());
        assert_eq!(found.hash, expected.hash, "{name}");
        assert_eq!(found.total_key, expected.total_key, "{name}");
        assert!(found.total_size <= expected.total_size, "{name}");
        assert_eq!(
            copy.hash_kv(0).unwrap(),
            original.hash_kv(0).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn equal_input_gives_equal_bytes() {
    let buckets = read_back(open("v3.7.3/k8s").bolt());
    assert_eq!(written(&buckets, 4096), written(&buckets, 4096));
}

#[test]
fn a_digest_behind_the_file_makes_a_snapshot() {
    let buckets = read_back(open("v3.7.3/small").bolt());
    let plan = measured(&buckets, 4096);
    let mut writer = Writer::new(plan, DigestWriter::new(Vec::new())).unwrap();
    for (name, entries) in &buckets {
        writer.bucket(name).unwrap();
        for (key, value) in entries {
            writer.put(key, value).unwrap();
        }
    }
    let bytes = writer.finish().unwrap().finish().unwrap();
    assert_eq!(bytes.len() as u64, plan.size() + 32);
    assert_eq!(check_trailer(&bytes).unwrap(), Trailer::Valid);
}

#[test]
fn a_tree_of_three_levels_and_more_reads_back() {
    for (count, page_size) in [(100_000_u32, 4096), (20_000, 512), (70_000, 1 << 20)] {
        let entries = (0..count)
            .map(|number| (number.to_be_bytes().to_vec(), vec![number as u8; 20]))
            .collect();
        let buckets = Buckets::from([(b"key".to_vec(), entries)]);
        assert_holds(&written(&buckets, page_size), &buckets);
    }
}

#[test]
fn values_larger_than_pages_read_back() {
    let mut entries = BTreeMap::new();
    for (number, length) in [0, 4080, 4096, 100_000, 3 << 20, 1, 65_536]
        .into_iter()
        .enumerate()
    {
        entries.insert(vec![number as u8], vec![number as u8; length]);
    }
    let buckets = Buckets::from([
        (b"a".to_vec(), entries),
        (b"empty".to_vec(), BTreeMap::new()),
    ]);
    for page_size in [512, 4096, 65_536] {
        assert_holds(&written(&buckets, page_size), &buckets);
    }
}

#[test]
fn a_file_without_buckets_is_a_file() {
    assert_holds(&written(&Buckets::new(), 4096), &Buckets::new());
}

#[test]
fn input_out_of_order_is_refused() {
    let mut measure = Measure::default();
    measure.bucket(b"b").unwrap();
    assert!(matches!(measure.bucket(b"b"), Err(WriteError::Order)));
    assert!(matches!(
        Measure::default().entry(1, 1),
        Err(WriteError::NoBucket)
    ));
    let buckets = Buckets::from([(
        b"b".to_vec(),
        BTreeMap::from([(b"k".to_vec(), b"v".to_vec())]),
    )]);
    let mut writer = Writer::new(measured(&buckets, 4096), Vec::new()).unwrap();
    writer.bucket(b"b").unwrap();
    writer.put(b"k", b"v").unwrap();
    assert!(matches!(writer.put(b"k", b"w"), Err(WriteError::Order)));
    assert!(matches!(writer.bucket(b"a"), Err(WriteError::Order)));
}

#[test]
fn input_that_changed_between_the_passes_is_noticed() {
    let buckets = Buckets::from([(
        b"b".to_vec(),
        BTreeMap::from([(b"k".to_vec(), vec![0; 5000])]),
    )]);
    let mut writer = Writer::new(measured(&buckets, 4096), Vec::new()).unwrap();
    writer.bucket(b"b").unwrap();
    writer.put(b"k", b"shorter").unwrap();
    assert!(matches!(writer.finish(), Err(WriteError::PlanMismatch)));
}

#[test]
fn page_sizes_outside_the_format_are_refused() {
    for size in [0, 256, 1000, 4095, 1 << 21] {
        assert!(
            matches!(Measure::with_page_size(size), Err(WriteError::PageSize(_))),
            "{size}"
        );
    }
}

fn entries() -> impl Strategy<Value = BTreeMap<Vec<u8>, Vec<u8>>> {
    let key = prop::collection::vec(any::<u8>(), 1..40);
    let value = prop_oneof![
        9 => prop::collection::vec(any::<u8>(), 0..200),
        1 => prop::collection::vec(any::<u8>(), 500..9000),
    ];
    prop::collection::btree_map(key, value, 0..120)
}

fn buckets() -> impl Strategy<Value = Buckets> {
    prop::collection::btree_map(prop::collection::vec(any::<u8>(), 1..20), entries(), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rounds(64, 2_000)))]

    #[test]
    fn any_sorted_input_reads_back(
        buckets in buckets(),
        exponent in 9_u32..16,
    ) {
        assert_holds(&written(&buckets, 1 << exponent), &buckets);
    }
}
