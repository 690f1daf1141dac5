use super::*;

fn put(main: i64, key: &'static str, lease: i64) -> kv::Event {
    kv::Event {
        r#type: i32::from(kv::event::EventType::Put),
        kv: Some(kv::KeyValue {
            key: key.into(),
            create_revision: main,
            mod_revision: main,
            version: 1,
            value: "value".into(),
            lease,
        }),
        prev_kv: None,
    }
}

fn delete(main: i64, key: &'static str) -> kv::Event {
    kv::Event {
        r#type: i32::from(kv::event::EventType::Delete),
        kv: Some(kv::KeyValue {
            key: key.into(),
            mod_revision: main,
            ..Default::default()
        }),
        prev_kv: None,
    }
}

fn sample() -> Vec<u8> {
    let mut builder = Builder::new(4);
    builder
        .revision(&[put(5, "a", 0), put(5, "b", 77)])
        .unwrap();
    builder.mark(1_000);
    builder.revision(&[delete(6, "a")]).unwrap();
    builder.mark(1_500);
    builder.lease(77, 60);
    builder.close(1_600);
    assert_eq!((builder.from(), builder.to(), builder.events()), (4, 6, 3));
    assert_eq!(builder.leases().iter().copied().collect::<Vec<_>>(), [77]);
    builder.finish()
}

fn items(payload: &[u8]) -> Result<Vec<String>> {
    let mut items = Vec::new();
    read("delta", payload, (4, 6), |item| {
        items.push(match item {
            Item::Row { row, record } => {
                let key = Pair::decode(record).unwrap().key;
                let mark = if row.is_tombstone { "-" } else { "+" };
                format!("{}{mark}{}", row.revision, String::from_utf8_lossy(key))
            }
            Item::Time { revision, at_ms } => format!("{revision}@{at_ms}"),
            Item::Lease { id, ttl } => format!("lease {id}: {ttl}"),
        });
        Ok(())
    })?;
    Ok(items)
}

#[test]
fn a_payload_reads_back_as_it_was_written() {
    let expected = [
        "5.0+a",
        "5.1+b",
        "5@1000",
        "6.0-a",
        "lease 77: 60",
        "6@1600",
    ];
    assert_eq!(items(&sample()).unwrap(), expected);
}

#[test]
fn a_payload_has_the_bytes_of_its_format() {
    let mut builder = Builder::new(1);
    builder.revision(&[put(2, "k", 0)]).unwrap();
    builder.close(3);
    let mut expected = b"HFD\x01\x01".to_vec();
    expected.extend([0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16]);
    expected.extend(b"\x0a\x01k\x10\x02\x18\x02\x20\x01\x2a\x05value");
    expected.extend([3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
    assert_eq!(builder.finish(), expected);
}

#[test]
fn a_revision_that_is_not_the_next_is_refused() {
    let mut builder = Builder::new(4);
    for wrong in [4, 6, 400] {
        let refused = builder.revision(&[put(wrong, "a", 0)]).unwrap_err();
        assert!(
            matches!(refused, Error::CaptureBroken { at: 4, .. }),
            "{refused}"
        );
    }
    let split = [put(5, "a", 0), put(6, "b", 0)];
    assert!(Builder::new(4).revision(&split).is_err());
    assert!(Builder::new(4).revision(&[]).is_err());
}

#[test]
fn a_payload_cut_short_or_with_more_is_refused() {
    let whole = sample();
    let marks_only = whole.len() - 17;
    for length in 0..marks_only {
        // Up to the last mark every cut loses a row or breaks a record, but for those that end
        // right behind the last row.
        let part = &whole[..length];
        if let Ok(found) = items(part) {
            assert!(found.contains(&"6.0-a".to_owned()), "{length} bytes");
        }
    }
    let mut longer = whole.clone();
    longer.push(9);
    assert!(items(&longer).is_err());
    assert!(items(&whole[1..]).is_err());
}

#[test]
fn rows_of_another_range_are_refused() {
    let visit = |_item: Item<'_>| Ok(());
    for range in [(3, 6), (4, 5), (5, 6), (4, 7), (0, 0)] {
        assert!(read("delta", &sample(), range, visit).is_err(), "{range:?}");
    }
}

#[test]
fn an_interval_without_changes_has_a_time_alone() {
    let mut builder = Builder::new(9);
    builder.close(5);
    let mut count = 0;
    let payload = builder.finish();
    read("delta", &payload, (9, 9), |item| {
        count += 1;
        assert_eq!(
            item,
            Item::Time {
                revision: 9,
                at_ms: 5
            }
        );
        Ok(())
    })
    .unwrap();
    assert_eq!(count, 1);
}
