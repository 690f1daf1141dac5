use super::*;

/// A number that looks random and is the same each time.
fn scattered(seed: i64) -> u64 {
    let seed = seed.cast_unsigned();
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

fn key(number: u64) -> Vec<u8> {
    format!("/registry/pods/{:04}", number % 900).into_bytes()
}

/// Counts in as many calls as it takes.
fn counted(index: &Index, span: Span<'_>, at: i64, steps: usize) -> usize {
    let (mut total, mut next) = index.count(span, Bound::Unbounded, at, steps);
    while let Some(from) = next {
        let (more, then) = index.count(span, Bound::Included(&*from), at, steps);
        total += more;
        next = then;
    }
    total
}

fn visited(index: &Index, span: Span<'_>, at: i64) -> usize {
    let mut total = 0;
    let next = index.visit(span, None, at, usize::MAX, |_key, _found| {
        total += 1;
        true
    });
    assert_eq!(next, None);
    total
}

fn compare(index: &Index, newest: i64) {
    let ends = [key(0), key(450), key(451), key(899), b"z".to_vec()];
    for at in [newest, newest - 1, newest - 60, newest / 2] {
        if at < index.compacted() {
            continue;
        }
        for (number, end) in (0..).zip(&ends) {
            let from = key(number * 170);
            for span in [
                Span::Range(&from, end),
                Span::From(&from),
                Span::From(b"\0"),
                Span::One(&from),
            ] {
                let wanted = visited(index, span, at);
                for steps in [1, 50, usize::MAX] {
                    let found = counted(index, span, at, steps);
                    assert_eq!(found, wanted, "{span:?} at {at} of {newest}");
                }
            }
        }
    }
}

#[test]
fn keys_are_counted_as_they_are_visited_whatever_was_put_deleted_and_compacted_between() {
    let mut index = Index::default();
    for main in 2..6_000 {
        let number = scattered(main);
        let (key, revision) = (key(number), Revision::new(main, 0));
        if number % 5 == 1 {
            index.tombstone(&key, revision);
        } else {
            index.put(&key, revision);
        }
        if main % 500 == 0 {
            compare(&index, main);
        }
        if main % 1_300 == 0 {
            let at = main - 100;
            index.begin_compaction(at);
            let (mut after, mut keep) = (None, Vec::new());
            loop {
                after = index.compact(at, after.as_deref(), 200, |kept, _| keep.push(kept));
                compare(&index, main);
                if after.is_none() {
                    break;
                }
            }
        }
    }
    let all = counted(&index, Span::From(b"\0"), 6_000, usize::MAX);
    assert_eq!(u64::try_from(all).unwrap(), index.live());
}

#[test]
fn what_is_known_of_a_block_is_forgotten_when_a_longer_history_in_it_changes() {
    let mut index = Index::default();
    for main in 2..5 {
        index.put(b"key", Revision::new(main, 0));
    }
    let count = |index: &Index, at| counted(index, Span::From(b"\0"), at, usize::MAX);
    assert_eq!(count(&index, 4), 1);
    assert!(index.tombstone(b"key", Revision::new(5, 0)));
    assert_eq!((count(&index, 4), count(&index, 5)), (1, 0));
    index.put(b"key", Revision::new(6, 0));
    assert_eq!((count(&index, 5), count(&index, 6)), (0, 1));
}
