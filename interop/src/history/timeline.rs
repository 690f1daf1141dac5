//! The history replayed: every key at every revision.

use std::collections::BTreeMap;

use super::{Event, Key, Shown, Value, Violation};

/// Every key at every revision after a base, from one complete list of changes.
#[derive(Debug, Clone)]
pub struct Timeline {
    base: i64,
    by_revision: Vec<Vec<Event>>,
    by_key: BTreeMap<Key, Vec<(i64, Option<Shown>)>>,
    by_value: BTreeMap<Value, i64>,
}

impl Timeline {
    /// Replays `events`, the changes after revision `base`, when all keys were absent.
    ///
    /// # Errors
    /// When a revision is missing or comes late, a value was written at two revisions, or a field
    /// is not what the changes before it make it.
    pub fn replay(base: i64, events: &[Event]) -> Result<Self, Violation> {
        let mut timeline = Self {
            base,
            by_revision: Vec::new(),
            by_key: BTreeMap::new(),
            by_value: BTreeMap::new(),
        };
        for event in events {
            timeline.add(*event)?;
        }
        Ok(timeline)
    }

    fn add(&mut self, event: Event) -> Result<(), Violation> {
        let newest = self.newest();
        let at = event.revision;
        if at != newest && at != newest + 1 {
            let what = format!("a change follows revision {newest}");
            return Err(Violation::new(at, what));
        }
        let expected = self.after(&event);
        if event.shown != expected {
            let what = format!(
                "k{} became {:?}; by the changes before it {expected:?}",
                event.key, event.shown
            );
            return Err(Violation::new(at, what));
        }
        if let Some(shown) = event.shown {
            let first = *self.by_value.entry(shown.value).or_insert(at);
            if first != at {
                let what = format!("v{} was written at {first} already", shown.value);
                return Err(Violation::new(at, what));
            }
        }
        if at == newest {
            match self.by_revision.last_mut() {
                Some(last) => last.push(event),
                None => return Err(Violation::new(at, "a change at the base revision")),
            }
        } else {
            self.by_revision.push(vec![event]);
        }
        let versions = self.by_key.entry(event.key).or_default();
        versions.push((at, event.shown));
        Ok(())
    }

    /// What the key has to be after `event`, given the changes before it.
    fn after(&self, event: &Event) -> Option<Shown> {
        let shown = event.shown?;
        let before = self.at(event.key, event.revision);
        Some(Shown {
            created: before.map_or(event.revision, |before| before.created),
            modified: event.revision,
            version: before.map_or(1, |before| before.version + 1),
            ..shown
        })
    }

    /// The newest revision.
    pub fn newest(&self) -> i64 {
        self.base + i64::try_from(self.by_revision.len()).unwrap_or(i64::MAX)
    }

    /// The revision before the first change.
    pub fn base(&self) -> i64 {
        self.base
    }

    /// The changes of one revision.
    pub fn changes(&self, revision: i64) -> &[Event] {
        let place = usize::try_from(revision - self.base - 1).ok();
        place
            .and_then(|place| self.by_revision.get(place))
            .map_or(&[], Vec::as_slice)
    }

    /// A key as a read at `revision` shows it.
    pub fn at(&self, key: Key, revision: i64) -> Option<Shown> {
        let versions = self.by_key.get(&key)?;
        let count = versions.partition_point(|(at, _)| *at <= revision);
        versions.get(count.checked_sub(1)?)?.1
    }

    /// The revision at which a value was written.
    pub fn written(&self, value: Value) -> Option<i64> {
        self.by_value.get(&value).copied()
    }
}
