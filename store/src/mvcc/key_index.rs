//! The versions of one key.
//!
//! A *generation* runs from a put of an absent key to the delete that ends it; `version` counts
//! its revisions. Rules of compaction are etcd's, because hashes depend on them.

use super::revision::Revision;

/// What a key was at some revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where its value is.
    pub(crate) modified: Revision,
    /// Main revision of the put that created it.
    pub(crate) created: i64,
    /// Revisions since then, this one included.
    pub(crate) version: i64,
}

impl Found {
    /// A key that a put at `revision` creates.
    pub(crate) const fn created_at(revision: Revision) -> Self {
        Self {
            modified: revision,
            created: revision.main,
            version: 1,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Generation {
    /// 0 when the beginning was compacted away.
    created: i64,
    /// Version at the newest revision.
    version: i64,
    /// Never empty, ascending; the oldest may have been compacted away.
    revisions: Vec<Revision>,
    /// Whether the newest revision is a tombstone.
    is_closed: bool,
}

impl Generation {
    fn first(&self) -> i64 {
        self.revisions.first().map_or(0, |revision| revision.main)
    }

    fn last(&self) -> i64 {
        self.revisions.last().map_or(0, |revision| revision.main)
    }

    /// Index of the newest revision at or before `at`.
    fn position(&self, at: i64) -> Option<usize> {
        self.revisions
            .partition_point(|revision| revision.main <= at)
            .checked_sub(1)
    }

    fn found(&self, position: usize) -> Option<Found> {
        let modified = self.revisions.get(position).copied()?;
        let newer = self.revisions.len() - 1 - position;
        let version = self.version - i64::try_from(newer).unwrap_or(0);
        Some(Found {
            modified,
            created: self.created,
            version,
        })
    }
}

/// All versions of one key. Most keys have one: those take no extra memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyIndex(Shape);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    /// One open generation of one known revision.
    One(Found),
    /// Anything else; oldest first; all but the last are closed.
    Many(Vec<Generation>),
}

impl KeyIndex {
    /// A key whose oldest known row is a put.
    pub(crate) fn restored(found: Found) -> Self {
        Self(Shape::One(found))
    }

    /// A key whose oldest known row is a tombstone.
    pub(crate) fn restored_tombstone(revision: Revision) -> Self {
        Self(Shape::Many(vec![Generation {
            created: 0,
            version: 1,
            revisions: vec![revision],
            is_closed: true,
        }]))
    }

    /// The key as one revision, when that is all there is to it.
    pub(crate) fn as_one(&self) -> Option<Found> {
        match &self.0 {
            Shape::One(found) => Some(*found),
            Shape::Many(_) => None,
        }
    }

    fn generations(&mut self) -> &mut Vec<Generation> {
        if let Shape::One(found) = self.0 {
            self.0 = Shape::Many(vec![Generation {
                created: found.created,
                version: found.version,
                revisions: vec![found.modified],
                is_closed: false,
            }]);
        }
        match &mut self.0 {
            Shape::Many(generations) => generations,
            Shape::One(_) => unreachable!("it has just been made many"),
        }
    }

    /// Whether the key exists at the newest revision.
    pub(crate) fn is_live(&self) -> bool {
        match &self.0 {
            Shape::One(_) => true,
            Shape::Many(generations) => generations
                .last()
                .is_some_and(|generation| !generation.is_closed),
        }
    }

    /// The newest main revision; 0: none is known.
    pub(crate) fn last(&self) -> i64 {
        match &self.0 {
            Shape::One(found) => found.modified.main,
            Shape::Many(generations) => generations.last().map_or(0, Generation::last),
        }
    }

    /// What the key was at `at`; `None` when it did not exist.
    pub(crate) fn get(&self, at: i64) -> Option<Found> {
        match &self.0 {
            Shape::One(found) => (found.modified.main <= at).then_some(*found),
            Shape::Many(generations) => {
                for generation in generations.iter().rev() {
                    if generation.is_closed && generation.last() <= at {
                        return None;
                    }
                    if generation.first() <= at {
                        return generation.found(generation.position(at)?);
                    }
                }
                None
            }
        }
    }

    /// Adds a put; what the key is now.
    pub(crate) fn put(&mut self, revision: Revision) -> Found {
        let generations = self.generations();
        match generations.last_mut() {
            Some(generation) if !generation.is_closed => {
                generation.revisions.push(revision);
                generation.version += 1;
                Found {
                    modified: revision,
                    created: generation.created,
                    version: generation.version,
                }
            }
            _ => {
                let found = Found::created_at(revision);
                generations.push(Generation {
                    created: found.created,
                    version: 1,
                    revisions: vec![revision],
                    is_closed: false,
                });
                found
            }
        }
    }

    /// Adds a delete; whether there was anything to delete.
    pub(crate) fn tombstone(&mut self, revision: Revision) -> bool {
        match self.generations().last_mut() {
            Some(generation) if !generation.is_closed => {
                generation.revisions.push(revision);
                generation.version += 1;
                generation.is_closed = true;
                true
            }
            _ => false,
        }
    }

    /// The generation that `at` falls into or before, and its newest revision at or before `at`.
    /// One that ended at `at` counts only when no other began in the same revision.
    fn cut(generations: &[Generation], at: i64) -> (usize, Option<usize>) {
        let began = |index: usize| {
            generations
                .get(index)
                .is_some_and(|generation| generation.first() <= at)
        };
        let first = generations
            .iter()
            .enumerate()
            .position(|(index, generation)| {
                let last = generation.last();
                !generation.is_closed || last > at || (last == at && !began(index + 1))
            })
            .unwrap_or(generations.len());
        (
            first,
            generations
                .get(first)
                .and_then(|generation| generation.position(at)),
        )
    }

    /// Drops what a compaction at `at` drops. Answers the revision whose row has to stay although
    /// it is not newer than `at`, and whether anything is left of the key.
    pub(crate) fn compact(&mut self, at: i64) -> (Option<Revision>, bool) {
        let generations = match &mut self.0 {
            Shape::One(found) => {
                return ((found.modified.main <= at).then_some(found.modified), true);
            }
            Shape::Many(generations) => generations,
        };
        let (first, position) = Self::cut(generations, at);
        generations.drain(..first);
        let mut kept = None;
        if let (Some(generation), Some(position)) = (generations.first_mut(), position) {
            generation.revisions.drain(..position);
            generation.revisions.shrink_to_fit();
            kept = generation.revisions.first().copied();
        }
        let is_left = !generations.is_empty();
        if let [generation] = generations.as_slice()
            && let [modified] = generation.revisions.as_slice()
            && !generation.is_closed
        {
            let found = Found {
                modified: *modified,
                created: generation.created,
                version: generation.version,
            };
            self.0 = Shape::One(found);
        }
        (kept, is_left)
    }

    /// The revision that a hash at `at` counts among those a compaction keeps: as
    /// [`KeyIndex::compact`], but never a tombstone.
    pub(crate) fn kept_for_hash(&self, at: i64) -> Option<Revision> {
        match &self.0 {
            Shape::One(found) => (found.modified.main <= at).then_some(found.modified),
            Shape::Many(generations) => {
                let (first, position) = Self::cut(generations, at);
                let generation = generations.get(first)?;
                let position = position?;
                let is_tombstone =
                    generation.is_closed && position + 1 == generation.revisions.len();
                if is_tombstone {
                    None
                } else {
                    generation.revisions.get(position).copied()
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(main: i64) -> Revision {
        Revision::new(main, 0)
    }

    #[test]
    fn a_key_deleted_and_put_in_one_revision_survives_a_compaction_there() {
        let mut key = KeyIndex::restored(Found::created_at(revision(2)));
        assert!(key.tombstone(Revision::new(3, 0)));
        key.put(Revision::new(3, 1));
        assert_eq!(key.kept_for_hash(3), Some(Revision::new(3, 1)));
        assert_eq!(key.compact(3), (Some(Revision::new(3, 1)), true));
        assert!(key.get(3).is_some());
    }

    /// Put at 2 and 4, deleted at 6, put at 8, deleted at 10.
    fn history() -> KeyIndex {
        let mut key = KeyIndex::restored(Found::created_at(revision(2)));
        key.put(revision(4));
        assert!(key.tombstone(revision(6)));
        assert!(!key.tombstone(revision(7)));
        key.put(revision(8));
        assert!(key.tombstone(revision(10)));
        key
    }

    #[test]
    fn a_key_is_found_as_it_was_at_each_revision() {
        let key = history();
        let found = |main, created, version| {
            Some(Found {
                modified: revision(main),
                created,
                version,
            })
        };
        let expected = [
            None,
            None,
            found(2, 2, 1),
            found(2, 2, 1),
            found(4, 2, 2),
            found(4, 2, 2),
            None,
            None,
            found(8, 8, 1),
            found(8, 8, 1),
            None,
            None,
        ];
        for (at, expected) in (0..).zip(expected) {
            assert_eq!(key.get(at), expected, "at {at}");
        }
    }

    #[test]
    fn a_compaction_keeps_what_can_still_be_read() {
        for at in 1..=11 {
            let mut compacted = history();
            let (kept, is_left) = compacted.compact(at);
            assert_eq!(is_left, at <= 10, "at {at}");
            if is_left {
                for later in at..=12 {
                    assert_eq!(
                        compacted.get(later),
                        history().get(later),
                        "at {at}, {later}"
                    );
                }
            }
            let expected = match at {
                2..=3 => Some(2),
                4..=5 => Some(4),
                6 => Some(6),
                8..=9 => Some(8),
                10 => Some(10),
                _ => None,
            };
            assert_eq!(kept.map(|revision| revision.main), expected, "at {at}");
        }
    }

    #[test]
    fn a_hash_never_keeps_a_tombstone() {
        for at in 1..=11 {
            let expected = match at {
                2..=3 => Some(2),
                4..=5 => Some(4),
                8..=9 => Some(8),
                _ => None,
            };
            let kept = history().kept_for_hash(at).map(|revision| revision.main);
            assert_eq!(kept, expected, "at {at}");
        }
    }
}
