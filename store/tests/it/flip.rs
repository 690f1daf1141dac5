//! One bit of a closed or an open store file is flipped: never a wrong value, never a panic.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says what it expects and stops when it is not so"
)]

use bytes::Bytes;
use holdfast_proto::etcd::rpc;
use holdfast_store::apply::Applier;
use holdfast_store::state::State;
use holdfast_store::{Error, ErrorKind};

use crate::crash::disk::{Dice, Disk};
use crate::crash::workload::{content, entry, open};
use crate::long::rounds;

const ENTRIES: u64 = 120;
const THREADS: usize = 2;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    refused: usize,
    harmless: usize,
    found: usize,
}

/// A closed store file and what it holds.
fn closed() -> (Vec<u8>, Vec<u8>) {
    let disk = Disk::default();
    let (mut applier, state) = open(disk.clone()).unwrap();
    for index in 1..=ENTRIES {
        applier.apply(vec![entry(index)]).unwrap();
    }
    applier.checkpoint().unwrap();
    let whole = content(&state).unwrap();
    drop((applier, state));
    (disk.bytes(), whole)
}

/// A bit of a byte that is not zero, mostly: the rest of the file is empty space.
fn pick(bytes: &[u8], dice: &mut Dice) -> usize {
    for _ in 0..64 {
        let byte = dice.below(bytes.len());
        if bytes[byte] != 0 {
            return byte * 8 + dice.below(8);
        }
    }
    dice.below(bytes.len() * 8)
}

/// Reads everything again; damage is an error of its kind, anything else the right answer.
fn read_back(state: &State, whole: &[u8], flip: usize) -> bool {
    match content(state) {
        Ok(read) => {
            assert!(read == whole, "flip {flip}: a wrong value was served");
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "flip {flip}: {error}");
            assert!(
                state.damage().is_some(),
                "flip {flip}: {error} was not latched"
            );
            false
        }
    }
}

/// A write either fails or is readable.
fn write_on(applier: &mut Applier, state: &State, flip: usize) {
    let outcome = applier
        .apply(vec![entry(ENTRIES + 1)])
        .and_then(|_| applier.checkpoint());
    let read = state.range(&rpc::RangeRequest {
        key: Bytes::from_static(b"key-"),
        range_end: Bytes::from_static(b"key."),
        ..rpc::RangeRequest::default()
    });
    match outcome {
        // What is damaged may lie anywhere, under the new rows as well.
        Ok(()) => assert!(
            !matches!(&read, Err(error) if error.kind() != ErrorKind::Corrupt),
            "flip {flip}: {read:?}"
        ),
        Err(error) => assert!(is_fatal(&error), "flip {flip}: {error}"),
    }
}

fn is_fatal(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Corrupt | ErrorKind::Internal | ErrorKind::Exhausted
    )
}

fn flip_closed(bytes: &[u8], whole: &[u8], flip: usize) -> Tally {
    let mut dice = Dice::new(u64::try_from(flip).unwrap());
    let disk = Disk::new(bytes.to_vec(), false);
    disk.flip(pick(bytes, &mut dice));
    let mut tally = Tally::default();
    match open(disk) {
        Err(error) => {
            assert!(is_fatal(&error), "flip {flip}: {error}");
            tally.refused = 1;
        }
        Ok((mut applier, state)) => {
            if read_back(&state, whole, flip) {
                tally.harmless = 1;
            } else {
                tally.found = 1;
            }
            write_on(&mut applier, &state, flip);
        }
    }
    tally
}

fn flip_open(bytes: &[u8], whole: &[u8], flip: usize) -> Tally {
    let mut dice = Dice::new(u64::try_from(flip).unwrap());
    let disk = Disk::new(bytes.to_vec(), false);
    let (_applier, state) = open(disk.clone()).unwrap();
    disk.flip(pick(bytes, &mut dice));
    let mut tally = Tally::default();
    if read_back(&state, whole, flip) {
        tally.harmless = 1;
    } else {
        tally.found = 1;
    }
    tally
}

fn flip_all(flips: usize, one: impl Fn(&[u8], &[u8], usize) -> Tally + Sync) -> Tally {
    let (bytes, whole) = closed();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|worker| {
                let (bytes, whole, one) = (&bytes, &whole, &one);
                scope.spawn(move || {
                    let mut sum = Tally::default();
                    for flip in (worker..flips).step_by(THREADS) {
                        let tally = one(bytes, whole, flip);
                        sum.refused += tally.refused;
                        sum.harmless += tally.harmless;
                        sum.found += tally.found;
                    }
                    sum
                })
            })
            .collect();
        let mut sum = Tally::default();
        for worker in workers {
            let tally = worker.join().unwrap();
            sum.refused += tally.refused;
            sum.harmless += tally.harmless;
            sum.found += tally.found;
        }
        sum
    })
}

#[test]
fn a_flipped_bit_in_a_closed_file_is_never_served() {
    let flips = rounds(3_000, 30_000);
    let tally = flip_all(flips, flip_closed);
    println!("{tally:?}");
    assert_eq!(tally.refused + tally.harmless + tally.found, flips);
    assert!(
        tally.refused + tally.found > flips / 10,
        "the flips hit nothing: {tally:?}"
    );
}

#[test]
fn a_bit_that_flips_under_an_open_store_is_never_served() {
    let flips = rounds(1_000, 10_000);
    let tally = flip_all(flips, flip_open);
    println!("{tally:?}");
    assert_eq!(tally.harmless + tally.found, flips);
    assert!(tally.found > flips / 10, "the flips hit nothing: {tally:?}");
}
