//! Whether a watch saw what etcd promises: in order, once, without gaps, whole revisions, and no
//! progress past what it was given.

use super::{Event, Timeline, Violation, Watch};

/// Checks one watch against everything that happened; the number of changes it saw.
///
/// # Errors
/// The first broken promise.
pub fn check_watch(timeline: &Timeline, watch: &Watch) -> Result<usize, Violation> {
    let mut expected = (watch.from..=timeline.newest())
        .flat_map(|revision| timeline.changes(revision))
        .filter(|change| (watch.keys.0..watch.keys.1).contains(&change.key))
        .peekable();
    let mut seen = 0;
    for answer in &watch.answers {
        for event in &answer.events {
            check_event(expected.next(), event)?;
            seen += 1;
        }
        let next = expected.peek().map(|change| change.revision);
        let last = answer.events.last().map(|event| event.revision);
        if next.is_some() && next == last {
            let at = last.unwrap_or_default();
            return Err(Violation::new(at, "a watch was given part of a revision"));
        }
        if let Some(last) = last
            && answer.revision < last
        {
            let what = format!("a watch's header says {}", answer.revision);
            return Err(Violation::new(last, what));
        }
        if answer.events.is_empty()
            && let Some(next) = next
            && next <= answer.revision
        {
            let what = format!(
                "a watch was told that it has all up to {}, without this",
                answer.revision
            );
            return Err(Violation::new(next, what));
        }
    }
    Ok(seen)
}

fn check_event(expected: Option<&Event>, event: &Event) -> Result<(), Violation> {
    if expected == Some(event) {
        return Ok(());
    }
    let what = match expected {
        Some(expected) => format!("a watch was given {event:?} where {expected:?} comes next"),
        None => format!("a watch was given {event:?} after the last change"),
    };
    Err(Violation::new(event.revision, what))
}

#[cfg(test)]
mod tests {
    use super::super::{Key, Shown, WatchAnswer};
    use super::*;

    fn put(revision: i64, key: Key, created: i64, version: i64) -> Event {
        let value = u64::try_from(revision).unwrap();
        let shown = Shown {
            value,
            created,
            modified: revision,
            version,
            lease: 0,
        };
        Event {
            revision,
            key,
            shown: Some(shown),
        }
    }

    /// Three revisions; the second changes two keys.
    fn happened() -> Vec<Event> {
        vec![
            put(2, 1, 2, 1),
            put(3, 1, 2, 2),
            put(3, 2, 3, 1),
            put(4, 2, 3, 2),
        ]
    }

    fn watch(answers: Vec<WatchAnswer>) -> Result<usize, Violation> {
        let timeline = Timeline::replay(1, &happened()).unwrap();
        let watch = Watch {
            from: 2,
            keys: (0, 10),
            answers,
        };
        check_watch(&timeline, &watch)
    }

    fn answer(revision: i64, events: &[Event]) -> WatchAnswer {
        WatchAnswer {
            revision,
            events: events.to_vec(),
        }
    }

    #[test]
    fn a_watch_that_saw_everything_in_whole_revisions_passes() {
        let all = happened();
        let seen = watch(vec![
            answer(2, &all[..1]),
            answer(2, &[]),
            answer(4, &all[1..]),
            answer(4, &[]),
        ]);
        assert_eq!(seen, Ok(4));
        let part = watch(vec![answer(2, &all[..1])]);
        assert_eq!(part, Ok(1), "a watch that ended early saw less");
    }

    #[test]
    fn each_broken_promise_of_a_watch_is_named() {
        let all = happened();
        let cases = [
            (vec![answer(4, &all[1..])], "comes next"),
            (vec![answer(2, &[all[0], all[0]])], "comes next"),
            (vec![answer(3, &[all[0], all[2], all[1]])], "comes next"),
            (vec![answer(3, &all[..2])], "part of a revision"),
            (vec![answer(2, &all[..1]), answer(3, &[])], "without this"),
            (vec![answer(2, &all[..3])], "header"),
            (vec![answer(5, &[all[0], put(5, 1, 2, 3)])], "comes next"),
        ];
        for (answers, text) in cases {
            let violation = watch(answers).unwrap_err();
            assert!(violation.what.contains(text), "{violation}");
        }
        let mut more = all.clone();
        more.push(put(5, 1, 2, 3));
        let violation = watch(vec![answer(5, &more)]).unwrap_err();
        assert!(violation.what.contains("after the last"), "{violation}");
    }
}
