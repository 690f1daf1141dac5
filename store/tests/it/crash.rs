//! Power is lost at every operation of a fixed workload, with unsynced writes lost, reordered and
//! torn, and lost again while the store recovers. The store must open, hold everything that was
//! durable, be exactly the state of the log entry it says it is at, and reach the state of every
//! later entry that was acknowledged when the log, which is durable before, is applied again.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says what it expects and stops when it is not so"
)]

pub(crate) mod disk;
pub(crate) mod workload;

use self::disk::{Dice, Disk, Wreckage};
use self::workload::{Run, content, entry, open, run};
use crate::long::rounds;

/// One in so many loses power again while it recovers.
const AGAIN: usize = 8;
const THREADS: usize = 2;

#[test]
fn a_loss_of_power_at_any_write_leaves_what_was_durable() {
    let run = run();
    let operations = run.disk.operations();
    let looked_at = rounds(20_000, 200_000);
    // Before the first of these the file is not in its place yet.
    let first = run.durable[0].0;
    let moments = operations.len() + 1 - first;
    assert!(
        moments < looked_at,
        "{looked_at} images leave some of {moments} moments out"
    );
    let images: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|worker| {
                let (run, operations) = (&run, &operations);
                scope.spawn(move || {
                    let mut wreckage = Wreckage::new(Vec::new(), operations);
                    let mut images = 0;
                    for image in (worker..looked_at).step_by(THREADS) {
                        let at = first + image * moments / looked_at;
                        let mut dice = Dice::new(u64::try_from(image).unwrap());
                        let bytes = wreckage.disk(at, &mut dice);
                        examine(run, at, bytes, image, &mut dice);
                        images += 1;
                    }
                    images
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum()
    });
    assert_eq!(images, looked_at);
}

/// Opens a disk; `at` is the operation before which power was lost, `image` its number.
fn examine(run: &Run, at: usize, bytes: Vec<u8>, image: usize, dice: &mut Dice) {
    let promised = run
        .durable
        .iter()
        .rev()
        .find(|(position, _)| *position <= at);
    let disk = if image.is_multiple_of(AGAIN) {
        let first = Disk::new(bytes.clone(), true);
        drop(open(first.clone()).unwrap_or_else(|error| panic!("image {image}: {error:?}")));
        let recovery = first.operations();
        let at = dice.below(recovery.len() + 1);
        Wreckage::new(bytes, &recovery).disk(at, dice)
    } else {
        bytes
    };
    let opened = open(Disk::new(disk, false));
    let (mut applier, state) = opened.unwrap_or_else(|error| panic!("image {image}: {error:?}"));
    let index = applier.applied().map_or(0, |applied| applied.index);
    if let Some((_, promised)) = promised {
        assert!(
            index >= *promised,
            "image {image}: at {index}, {promised} was durable"
        );
    }
    assert!(
        content(&state).unwrap() == run.contents[&index],
        "image {image}: not the state after entry {index}"
    );
    if index >= 1 {
        assert_eq!(&applier.membership().unwrap().encoded[..], b"first");
    }
    // What was answered is in the log before: applied again, it is all there.
    let acknowledged = run.acknowledged(at);
    assert!(
        index <= acknowledged,
        "image {image}: at {index}, only {acknowledged} was acknowledged"
    );
    if index < acknowledged {
        let again: Vec<_> = (index + 1..=acknowledged).map(entry).collect();
        applier
            .apply(again)
            .unwrap_or_else(|error| panic!("image {image}: {error:?}"));
        assert!(
            content(&state).unwrap() == run.contents[&acknowledged],
            "image {image}: entries {index} to {acknowledged} did not come back"
        );
    }
}
