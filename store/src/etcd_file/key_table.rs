//! The keys that exist at a point of a walk, each with what is known of it.
//!
//! Millions of small keys: they stand one behind the other in one buffer instead of in an
//! allocation each, and are found by a hash of their own.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState};

/// A key of the table.
#[derive(Debug)]
struct Slot<V> {
    start: usize,
    length: usize,
    /// Another key with the same hash.
    next: Option<usize>,
    /// None: the key was removed. Its name stays, for when it comes back.
    value: Option<V>,
}

/// Keys and their values.
#[derive(Debug)]
pub(super) struct KeyTable<V> {
    state: RandomState,
    /// The newest slot of each hash.
    places: HashMap<u64, usize, BuildHasherDefault<Hashed>>,
    slots: Vec<Slot<V>>,
    names: Vec<u8>,
    count: usize,
}

impl<V> KeyTable<V> {
    pub(super) fn new() -> Self {
        Self {
            state: RandomState::new(),
            places: HashMap::default(),
            slots: Vec::new(),
            names: Vec::new(),
            count: 0,
        }
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Sets or, with `None`, removes a key; answers what it was before.
    pub(super) fn set(&mut self, key: &[u8], value: Option<V>) -> Option<V> {
        let hash = self.state.hash_one(key);
        let first = self.places.get(&hash).copied();
        let mut at = first;
        while let Some(slot) = at.and_then(|place| self.slots.get_mut(place)) {
            let name = self.names.get(slot.start..slot.start + slot.length);
            if name == Some(key) {
                self.count += usize::from(value.is_some());
                let before = std::mem::replace(&mut slot.value, value);
                self.count -= usize::from(before.is_some());
                return before;
            }
            at = slot.next;
        }
        value.as_ref()?;
        self.places.insert(hash, self.slots.len());
        self.slots.push(Slot {
            start: self.names.len(),
            length: key.len(),
            next: first,
            value,
        });
        self.names.extend_from_slice(key);
        self.count += 1;
        None
    }

    /// Keys with their values, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> {
        self.slots
            .iter()
            .filter_map(|slot| Some((self.name(slot), slot.value.as_ref()?)))
    }

    /// Keys with their values, ascending.
    pub(super) fn into_sorted(mut self) -> Vec<(Box<[u8]>, V)> {
        let mut slots = std::mem::take(&mut self.slots);
        let mut sorted: Vec<(Box<[u8]>, V)> = slots
            .drain(..)
            .filter_map(|slot| Some((self.name(&slot).into(), slot.value?)))
            .collect();
        sorted.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        sorted
    }

    fn name(&self, slot: &Slot<V>) -> &[u8] {
        let name = self.names.get(slot.start..slot.start + slot.length);
        name.unwrap_or_default()
    }
}

/// A hash that is one already.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .iter()
            .fold(self.0, |sum, byte| sum.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_holds_what_a_sorted_map_holds() {
        let mut table = KeyTable::new();
        let mut model: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for step in 0..20_000_u32 {
            let key = (step.wrapping_mul(2_654_435_761) >> 20)
                .to_string()
                .into_bytes();
            let value = (step % 3 != 0).then_some(step);
            let before = match value {
                Some(value) => model.insert(key.clone(), value),
                None => model.remove(&key),
            };
            assert_eq!(table.set(&key, value), before, "step {step}");
            assert_eq!(table.len(), model.len());
        }
        assert_eq!(table.iter().count(), model.len());
        let sorted: Vec<(Vec<u8>, u32)> = table
            .into_sorted()
            .into_iter()
            .map(|(key, value)| (key.into_vec(), value))
            .collect();
        assert_eq!(sorted, model.into_iter().collect::<Vec<_>>());
    }
}
