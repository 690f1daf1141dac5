use super::*;

fn found(main: i64) -> Held {
    Held::One(Found::created_at(Revision::new(main, 0)))
}

fn all(blocks: &Blocks) -> Vec<(Vec<u8>, Held)> {
    let mut all = Vec::new();
    blocks.visit(Bound::Unbounded, |key, held| {
        all.push((key.to_vec(), held));
        true
    });
    all
}

/// A number that looks random and is the same each time.
fn scattered(seed: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) % 5_000
}

fn key(number: u64) -> Vec<u8> {
    format!(
        "/registry/pods/{number:05}/{}",
        "x".repeat(usize::try_from(number % 40).unwrap())
    )
    .into_bytes()
}

#[test]
fn numbers_of_every_size_come_back_as_they_were() {
    let extreme = Found {
        modified: Revision::new(i64::MAX, i64::MAX - 1),
        created: 0,
        version: -1,
    };
    let held = [
        found(0),
        found(127),
        found(128),
        found(i64::MAX),
        Held::One(extreme),
        Held::Many(0),
        Held::Many(300),
    ];
    let mut blocks = Blocks::default();
    for (number, held) in (0..).zip(held) {
        blocks.set(&key(number), held);
    }
    for (number, held) in (0..).zip(held) {
        assert_eq!(blocks.get(&key(number)), Some(held));
    }
}

#[test]
fn blocks_hold_what_a_map_holds_whatever_the_order() {
    let mut blocks = Blocks::default();
    let mut map = BTreeMap::new();
    for step in 0..20_000 {
        let (number, held) = (scattered(step), found(i64::try_from(step).unwrap()));
        blocks.set(&key(number), held);
        map.insert(key(number), held);
    }
    assert_eq!(all(&blocks), map.clone().into_iter().collect::<Vec<_>>());
    for number in 0..5_100 {
        let key = key(number);
        assert_eq!(blocks.get(&key), map.get(&key).copied(), "key {number}");
        let mut next = None;
        blocks.visit(Bound::Excluded(&key), |key, held| {
            next = Some((key.to_vec(), held));
            false
        });
        let expected = map.range((Bound::Excluded(key), Bound::Unbounded)).next();
        assert_eq!(next, expected.map(|(key, held)| (key.clone(), *held)));
    }
    assert!(
        blocks
            .blocks
            .values()
            .all(|block| block.bytes.len() <= BLOCK_BYTES_MAX)
    );
}

#[test]
fn keys_that_come_in_order_fill_their_blocks() {
    let mut blocks = Blocks::default();
    for number in 0..10_000_u64 {
        blocks.set(format!("{number:016}").as_bytes(), found(1_000_000));
    }
    let bytes: usize = blocks
        .blocks
        .values()
        .map(|block| block.bytes.capacity())
        .sum();
    assert!(bytes < 10_000 * (16 + 8), "{bytes} bytes");
}

#[test]
fn a_key_larger_than_a_block_stands_among_others() {
    let mut blocks = Blocks::default();
    let large = |letter: u8| vec![letter; 3 * BLOCK_BYTES_MAX];
    for letter in [b'c', b'a', b'b', b'd'] {
        blocks.set(&large(letter), found(i64::from(letter)));
        blocks.set(&[letter], found(1));
    }
    let keys: Vec<usize> = all(&blocks).into_iter().map(|(key, _)| key.len()).collect();
    assert_eq!(keys, [1, 3072, 1, 3072, 1, 3072, 1, 3072]);
    for letter in b'a'..=b'd' {
        assert_eq!(blocks.get(&large(letter)), Some(found(i64::from(letter))));
    }
    assert_eq!(blocks.get(b""), None);
}

#[test]
fn a_rewrite_in_steps_asks_about_each_key_once() {
    let numbers: Vec<u64> = (0..3_000).collect();
    for steps in [1, 7, 1_000, 5_000] {
        let mut builder = Builder::default();
        for &number in &numbers {
            builder.push(
                format!("{number:08}").as_bytes(),
                Held::Many(usize::try_from(number).unwrap()),
            );
        }
        let mut blocks = builder.finish();
        let mut asked = Vec::new();
        let mut after: Option<Box<[u8]>> = None;
        loop {
            after = blocks.rewrite(after.as_deref(), steps, |held| {
                let Held::Many(place) = held else { return None };
                asked.push(u64::try_from(place).unwrap());
                match place % 3 {
                    // Every key of some blocks goes.
                    _ if (1_000..2_000).contains(&place) => None,
                    0 => None,
                    1 => Some(found(7)),
                    _ => Some(held),
                }
            });
            if after.is_none() {
                break;
            }
        }
        assert_eq!(asked, numbers, "{steps} steps");
        let left: Vec<_> = numbers
            .iter()
            .filter(|number| !(1_000..2_000).contains(*number) && *number % 3 != 0)
            .map(|number| {
                let held = if number % 3 == 1 {
                    found(7)
                } else {
                    Held::Many(usize::try_from(*number).unwrap())
                };
                (format!("{number:08}").into_bytes(), held)
            })
            .collect();
        assert_eq!(all(&blocks), left, "{steps} steps");
        assert!(
            blocks
                .blocks
                .iter()
                .all(|(first, block)| first.is_empty() || !block.bytes.is_empty())
        );
        blocks.set(b"00001500", found(9));
        assert_eq!(blocks.get(b"00001500"), Some(found(9)));
    }
}
