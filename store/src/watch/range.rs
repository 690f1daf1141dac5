//! The keys one watch covers, and the index from a key to the watchers that cover it.

use std::collections::HashMap;

use bytes::Bytes;

use super::hub::WatcherId;

/// Where a range of keys ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum End {
    /// Before this key.
    Before(Bytes),
    /// Nowhere: every key from the start on.
    Open,
}

impl End {
    fn is_after(&self, key: &[u8]) -> bool {
        match self {
            End::Before(end) => key < end.as_ref(),
            End::Open => true,
        }
    }
}

/// The keys one watch covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum KeyRange {
    /// One key.
    Key(Bytes),
    /// From a key up to an end.
    Span(Bytes, End),
}

impl KeyRange {
    /// The range of a request: no `range_end` is one key, a single zero byte has no end.
    /// `None` when the range is empty.
    pub(super) fn new(key: Bytes, range_end: Bytes) -> Option<KeyRange> {
        let key = if key.is_empty() {
            Bytes::from_static(&[0])
        } else {
            key
        };
        match range_end.as_ref() {
            [] => Some(KeyRange::Key(key)),
            [0] => Some(KeyRange::Span(key, End::Open)),
            end if key.as_ref() < end => Some(KeyRange::Span(key, End::Before(range_end))),
            _ => None,
        }
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        match self {
            KeyRange::Key(only) => only.as_ref() == key,
            KeyRange::Span(start, end) => start.as_ref() <= key && end.is_after(key),
        }
    }
}

/// Watchers by the keys they cover.
#[derive(Debug, Default)]
pub(super) struct RangeIndex {
    keys: HashMap<Bytes, Vec<WatcherId>>,
    spans: Vec<Span>,
    slots: HashMap<(Bytes, End), usize>,
    /// Slots of `spans` ordered by start, read as a balanced tree: the middle of every part is its
    /// root. Built again by the first look-up after a span came or went.
    order: Vec<Node>,
    is_stale: bool,
}

/// All watchers of one span.
#[derive(Debug)]
struct Span {
    start: Bytes,
    end: End,
    watchers: Vec<WatcherId>,
}

#[derive(Debug)]
struct Node {
    slot: usize,
    start: Bytes,
    /// The latest end within the part of `order` that this node is the root of.
    latest: End,
}

impl RangeIndex {
    pub(super) fn insert(&mut self, range: &KeyRange, watcher: WatcherId) {
        match range {
            KeyRange::Key(key) => self.keys.entry(key.clone()).or_default().push(watcher),
            KeyRange::Span(start, end) => {
                let slot = *self
                    .slots
                    .entry((start.clone(), end.clone()))
                    .or_insert_with(|| {
                        self.spans.push(Span {
                            start: start.clone(),
                            end: end.clone(),
                            watchers: Vec::new(),
                        });
                        self.is_stale = true;
                        self.spans.len() - 1
                    });
                if let Some(span) = self.spans.get_mut(slot) {
                    span.watchers.push(watcher);
                }
            }
        }
    }

    pub(super) fn remove(&mut self, range: &KeyRange, watcher: WatcherId) {
        match range {
            KeyRange::Key(key) => {
                if let Some(watchers) = self.keys.get_mut(key) {
                    drop_one(watchers, watcher);
                    if watchers.is_empty() {
                        self.keys.remove(key);
                    }
                }
            }
            KeyRange::Span(start, end) => {
                let name = (start.clone(), end.clone());
                let Some(&slot) = self.slots.get(&name) else {
                    return;
                };
                let Some(span) = self.spans.get_mut(slot) else {
                    return;
                };
                drop_one(&mut span.watchers, watcher);
                if span.watchers.is_empty() {
                    self.slots.remove(&name);
                    self.spans.swap_remove(slot);
                    if let Some(moved) = self.spans.get(slot) {
                        self.slots
                            .insert((moved.start.clone(), moved.end.clone()), slot);
                    }
                    self.is_stale = true;
                }
            }
        }
    }

    /// Calls `found` once for every watcher that covers `key`.
    pub(super) fn each_watcher(&mut self, key: &[u8], mut found: impl FnMut(WatcherId)) {
        for watcher in self.keys.get(key).into_iter().flatten() {
            found(*watcher);
        }
        if self.is_stale {
            self.rebuild();
        }
        let mut parts: Vec<&[Node]> = vec![&self.order];
        while let Some(part) = parts.pop() {
            let Some((left, rest)) = part.split_at_checked(part.len() / 2) else {
                continue;
            };
            let Some((node, right)) = rest.split_first() else {
                continue;
            };
            if !node.latest.is_after(key) {
                continue;
            }
            parts.push(left);
            if node.start.as_ref() <= key {
                parts.push(right);
                if let Some(span) = self.spans.get(node.slot)
                    && span.end.is_after(key)
                {
                    for watcher in &span.watchers {
                        found(*watcher);
                    }
                }
            }
        }
    }

    fn rebuild(&mut self) {
        let mut order: Vec<Node> = self
            .spans
            .iter()
            .enumerate()
            .map(|(slot, span)| Node {
                slot,
                start: span.start.clone(),
                latest: span.end.clone(),
            })
            .collect();
        order.sort_by(|a, b| a.start.cmp(&b.start));
        set_latest(&mut order);
        self.order = order;
        self.is_stale = false;
    }
}

/// Fills `latest` from the leaves up; returns the part's own. The depth is the logarithm of the
/// length.
fn set_latest(part: &mut [Node]) -> Option<End> {
    let middle = part.len() / 2;
    let (left, rest) = part.split_at_mut_checked(middle)?;
    let (node, right) = rest.split_first_mut()?;
    for latest in [set_latest(left), set_latest(right)].into_iter().flatten() {
        if latest > node.latest {
            node.latest = latest;
        }
    }
    Some(node.latest.clone())
}

fn drop_one(watchers: &mut Vec<WatcherId>, watcher: WatcherId) {
    if let Some(at) = watchers.iter().position(|known| *known == watcher) {
        watchers.swap_remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyRange, RangeIndex};
    use crate::watch::hub::WatcherId;
    use bytes::Bytes;
    use proptest::prelude::{ProptestConfig, prop, prop_assert_eq, proptest};

    fn range(key: &[u8], end: &[u8]) -> Option<KeyRange> {
        KeyRange::new(Bytes::copy_from_slice(key), Bytes::copy_from_slice(end))
    }

    #[test]
    fn ranges_are_read_as_etcd_reads_them() {
        assert!(range(b"b", b"a").is_none());
        assert!(range(b"a", b"a").is_none());
        let single = range(b"", b"").unwrap();
        assert!(single.contains(&[0]) && !single.contains(b"a"));
        let from = range(b"b", &[0]).unwrap();
        assert!(from.contains(b"b") && from.contains(b"zz") && !from.contains(b"a"));
        let span = range(b"b", b"d").unwrap();
        assert!(span.contains(b"c") && !span.contains(b"d") && !span.contains(b"a"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_index_finds_exactly_the_watchers_that_cover_a_key(
            ranges in prop::collection::vec((prop::collection::vec(0_u8..4, 0..3), prop::collection::vec(0_u8..4, 0..3)), 0..40),
            removed in prop::collection::vec(prop::bool::ANY, 40),
            keys in prop::collection::vec(prop::collection::vec(0_u8..4, 1..4), 1..20),
        ) {
            let mut index = RangeIndex::default();
            let mut alive = Vec::new();
            for (number, (key, end)) in ranges.iter().enumerate() {
                if let Some(range) = range(key, end) {
                    let id = WatcherId(u64::try_from(number).unwrap());
                    index.insert(&range, id);
                    alive.push((id, range));
                }
            }
            index.each_watcher(b"x", |_| {});
            let mut flags = removed.iter();
            alive.retain(|(id, range)| {
                let goes = *flags.next().unwrap();
                if goes {
                    index.remove(range, *id);
                }
                !goes
            });
            for key in &keys {
                let mut found = Vec::new();
                index.each_watcher(key, |id| found.push(id));
                found.sort_unstable();
                let wanted: Vec<WatcherId> =
                    alive.iter().filter(|(_, range)| range.contains(key)).map(|(id, _)| *id).collect();
                prop_assert_eq!(found, wanted);
            }
        }
    }
}
