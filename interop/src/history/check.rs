//! Whether a history could have come from one store that does one thing at a time.

use std::collections::{BTreeMap, BTreeSet};

use super::{Call, Event, History, Key, Nanos, Operation, Outcome, Timeline, Violation};

/// What a history held that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Operations that were answered.
    pub answered: usize,
    /// Operations with an unknown outcome that did take effect.
    pub late: usize,
    /// Operations with an unknown outcome that never took effect.
    pub lost: usize,
    /// Revisions written.
    pub revisions: i64,
    /// Revisions at which a lease ran out.
    pub expired: usize,
}

/// Where an operation stands in the one order: a read after the write of its revision.
type Place = (i64, bool);

/// An operation that took effect, or read, at a known place.
struct Placed {
    place: Place,
    start: Nanos,
    end: Nanos,
    client: u32,
}

/// Checks that there is one order of all operations that explains every answer, agrees with every
/// revision, and puts what ended before something else began before it.
///
/// # Errors
/// The first violation found.
pub fn check(history: &History) -> Result<Summary, Violation> {
    let timeline = Timeline::replay(history.base, &history.events)?;
    let mut checker = Checker {
        timeline: &timeline,
        placed: Vec::new(),
        claimed: BTreeSet::new(),
        open_deletes: BTreeMap::new(),
        summary: Summary {
            revisions: timeline.newest() - timeline.base(),
            ..Summary::default()
        },
    };
    for operation in &history.operations {
        checker.place(operation)?;
    }
    let unclaimed = checker.claim_deletes()?;
    let mut placed = checker.placed;
    placed.sort_by_key(|placed| placed.place);
    check_time(&placed)?;
    let mut summary = checker.summary;
    summary.expired = check_expiries(history, &timeline, &placed, &unclaimed)?;
    Ok(summary)
}

struct Checker<'timeline> {
    timeline: &'timeline Timeline,
    placed: Vec<Placed>,
    /// Revisions whose author is known.
    claimed: BTreeSet<i64>,
    /// Deletes whose outcome is unknown, by key.
    open_deletes: BTreeMap<Key, Vec<(Nanos, u32)>>,
    summary: Summary,
}

impl Checker<'_> {
    fn place(&mut self, operation: &Operation) -> Result<(), Violation> {
        match operation.outcome {
            Outcome::Done {
                revision,
                has_written,
                shown,
            } => {
                self.summary.answered += 1;
                if has_written {
                    self.write_at(operation, revision, operation.end)
                } else {
                    self.compare_read(operation, revision, shown)?;
                    self.put_down(operation, (revision, true), operation.end);
                    Ok(())
                }
            }
            Outcome::Unknown => self.place_unknown(operation),
            Outcome::Refused => {
                match value_of(operation.call).and_then(|value| self.timeline.written(value)) {
                    Some(at) => Err(Violation::new(
                        at,
                        format!("{:?} was refused and took effect", operation.call),
                    )),
                    None => Ok(()),
                }
            }
        }
    }

    fn place_unknown(&mut self, operation: &Operation) -> Result<(), Violation> {
        if let Call::Delete { key } = operation.call {
            let open = self.open_deletes.entry(key).or_default();
            open.push((operation.start, operation.client));
            return Ok(());
        }
        let at = value_of(operation.call).and_then(|value| self.timeline.written(value));
        if let Some(revision) = at {
            self.summary.late += 1;
            self.write_at(operation, revision, Nanos::MAX)
        } else {
            self.summary.lost += 1;
            Ok(())
        }
    }

    /// The write must be what the revision holds, and nothing else may be there.
    fn write_at(
        &mut self,
        operation: &Operation,
        revision: i64,
        end: Nanos,
    ) -> Result<(), Violation> {
        let changes = self.timeline.changes(revision);
        if !is_of(operation.call, changes) {
            let what = format!(
                "client {} was told that {:?} took effect; the revision holds {changes:?}",
                operation.client, operation.call
            );
            return Err(Violation::new(revision, what));
        }
        if let Call::Swap { key, expected, .. } = operation.call {
            let before = self.timeline.at(key, revision - 1);
            let modified = before.map_or(0, |shown| shown.modified);
            if modified != expected {
                let what = format!(
                    "{:?} took effect on a key last modified at {modified}",
                    operation.call
                );
                return Err(Violation::new(revision, what));
            }
        }
        if !self.claimed.insert(revision) {
            let what = format!("{:?} is the second write there", operation.call);
            return Err(Violation::new(revision, what));
        }
        self.put_down(operation, (revision, false), end);
        Ok(())
    }

    /// A read, or a write that found nothing to do, must show what is there at its revision.
    fn compare_read(
        &self,
        operation: &Operation,
        revision: i64,
        shown: Option<super::Shown>,
    ) -> Result<(), Violation> {
        let wrong = |what: String| {
            Err(Violation::new(
                revision,
                format!("client {}: {what}", operation.client),
            ))
        };
        if revision > self.timeline.newest() || revision < self.timeline.base() {
            return wrong(format!("{:?} was answered from nowhere", operation.call));
        }
        match operation.call {
            Call::Get { key } | Call::Swap { key, .. } => {
                let there = self.timeline.at(key, revision);
                if shown != there {
                    return wrong(format!("k{key} was read as {shown:?} and is {there:?}"));
                }
                if let Call::Swap { expected, .. } = operation.call
                    && there.map_or(0, |there| there.modified) == expected
                {
                    return wrong(format!("{:?} should have written", operation.call));
                }
            }
            Call::Delete { key } => {
                if let Some(there) = self.timeline.at(key, revision) {
                    return wrong(format!("k{key} was not found to delete and is {there:?}"));
                }
            }
            Call::Put { .. } | Call::PutBoth { .. } => {
                return wrong(format!("{:?} was answered without a write", operation.call));
            }
        }
        Ok(())
    }

    fn put_down(&mut self, operation: &Operation, place: Place, end: Nanos) {
        self.placed.push(Placed {
            place,
            start: operation.start,
            end,
            client: operation.client,
        });
    }

    /// Gives removals without an author to deletes whose outcome is unknown, the earliest to the
    /// earliest: such a delete may take effect at any time after it began. The rest is returned.
    fn claim_deletes(&mut self) -> Result<Vec<i64>, Violation> {
        for open in self.open_deletes.values_mut() {
            open.sort_unstable();
            open.reverse();
        }
        let mut unclaimed = Vec::new();
        for revision in self.timeline.base() + 1..=self.timeline.newest() {
            if self.claimed.contains(&revision) {
                continue;
            }
            let changes = self.timeline.changes(revision);
            if let Some(change) = changes.iter().find(|change| change.shown.is_some()) {
                let what = format!("{change:?} was written by nobody");
                return Err(Violation::new(revision, what));
            }
            match self.author(changes) {
                Some((start, client)) => {
                    self.summary.late += 1;
                    self.placed.push(Placed {
                        place: (revision, false),
                        start,
                        end: Nanos::MAX,
                        client,
                    });
                }
                None => unclaimed.push(revision),
            }
        }
        self.summary.lost += self.open_deletes.values().map(Vec::len).sum::<usize>();
        Ok(unclaimed)
    }

    /// The earliest delete that may have made these changes. A key with a lease is left to it.
    fn author(&mut self, changes: &[Event]) -> Option<(Nanos, u32)> {
        let [change] = changes else { return None };
        let before = self.timeline.at(change.key, change.revision - 1)?;
        if before.lease != 0 {
            return None;
        }
        self.open_deletes.get_mut(&change.key)?.pop()
    }
}

/// What ended before something else began stands before it.
fn check_time(placed: &[Placed]) -> Result<(), Violation> {
    // The latest start of everything that stands strictly before.
    let mut latest: Option<&Placed> = None;
    let mut from = 0;
    for (index, operation) in placed.iter().enumerate() {
        while let Some(before) = placed.get(from)
            && from < index
            && before.place < operation.place
        {
            if latest.is_none_or(|latest| latest.start < before.start) {
                latest = Some(before);
            }
            from += 1;
        }
        if let Some(latest) = latest
            && latest.start > operation.end
        {
            let what = format!(
                "client {} ended {} ns before client {} began, whose answer is from {}",
                operation.client,
                latest.start - operation.end,
                latest.client,
                latest.place.0
            );
            return Err(Violation::new(operation.place.0, what));
        }
    }
    Ok(())
}

/// Removals that no client asked for must be of leases whose time was over.
fn check_expiries(
    history: &History,
    timeline: &Timeline,
    placed: &[Placed],
    unclaimed: &[i64],
) -> Result<usize, Violation> {
    // The earliest end of everything that stands at or after a place: it had happened by then.
    let mut known: Vec<Nanos> = placed.iter().map(|placed| placed.end).collect();
    for index in (0..known.len().saturating_sub(1)).rev() {
        if let (Some(next), Some(own)) = (known.get(index + 1).copied(), known.get_mut(index)) {
            *own = next.min(*own);
        }
    }
    for &revision in unclaimed {
        let changes = timeline.changes(revision);
        let ids: BTreeSet<i64> = changes
            .iter()
            .map(|change| {
                let before = timeline.at(change.key, revision - 1);
                before.map_or(0, |before| before.lease)
            })
            .collect();
        let mut ids = ids.into_iter();
        let (first, second) = (ids.next(), ids.next());
        let lease = history
            .leases
            .iter()
            .find(|lease| Some(lease.id) == first && second.is_none());
        let Some(lease) = lease else {
            let what = format!("{changes:?} was removed by nobody");
            return Err(Violation::new(revision, what));
        };
        let place = placed.partition_point(|placed| placed.place < (revision, false));
        let by = known.get(place).copied().unwrap_or(Nanos::MAX);
        let due = lease.renewed.saturating_add(lease.ttl);
        if !lease.is_revoked && by < due {
            let what = format!("lease {} ran out {} ns before its time", lease.id, due - by);
            return Err(Violation::new(revision, what));
        }
    }
    Ok(unclaimed.len())
}

fn value_of(call: Call) -> Option<u64> {
    match call {
        Call::Put { value, .. } | Call::PutBoth { value, .. } | Call::Swap { value, .. } => {
            Some(value)
        }
        Call::Get { .. } | Call::Delete { .. } => None,
    }
}

/// Whether `changes` are exactly what the call writes.
fn is_of(call: Call, changes: &[Event]) -> bool {
    let wrote = |change: &Event, key: Key, value: u64, lease: i64| {
        change.key == key
            && change
                .shown
                .is_some_and(|shown| shown.value == value && shown.lease == lease)
    };
    match (call, changes) {
        (Call::Put { key, value, lease }, [change]) => wrote(change, key, value, lease),
        (Call::Swap { key, value, .. }, [change]) => wrote(change, key, value, 0),
        (Call::PutBoth { keys, value }, [first, second]) => {
            wrote(first, keys[0], value, 0) && wrote(second, keys[1], value, 0)
        }
        (Call::Delete { key }, [change]) => change.key == key && change.shown.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
