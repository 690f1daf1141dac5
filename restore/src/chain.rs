//! Whether the manifests of a cluster form the chain they claim to. Pure.
//!
//! Sequences run from 1 without a gap. A place is filled by a manifest that its successor names by
//! digest, or by a release record of the same digest. Anything else was removed or replaced by
//! somebody who is not the retention.

use std::collections::BTreeMap;

use holdfast_policies::{ClusterName, Sequence};

use crate::flaw::{Flaw, FlawKind};
use crate::manifest::Link;
use crate::vault::layout;

/// Most missing places named one by one.
const MISSING_NAMED_MAX: usize = 100;

/// What stands at a place of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A genuine manifest in its own place.
    Sound {
        /// Its name.
        own: Link,
        /// The name of the one before, as it says.
        predecessor: Option<Link>,
    },
    /// Something that is not a genuine manifest of this place; reported when it was read.
    Unsound,
}

/// Everything known about a chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) places: BTreeMap<Sequence, Place>,
    pub(crate) released: BTreeMap<Sequence, Link>,
    pub(crate) head: Option<Link>,
}

impl Chain {
    /// The newest place ever filled; 0 when none was.
    pub(crate) fn newest(&self) -> Sequence {
        let present = self.places.keys().next_back().copied().unwrap_or_default();
        let released = self
            .released
            .keys()
            .next_back()
            .copied()
            .unwrap_or_default();
        let known = self
            .head
            .as_ref()
            .map(|head| head.sequence)
            .unwrap_or_default();
        present.max(released).max(known)
    }

    /// What is known of the manifest at a place, wherever from.
    pub(crate) fn link_at(&self, sequence: Sequence) -> Option<&Link> {
        let known = self.head.as_ref().filter(|head| head.sequence == sequence);
        match self.places.get(&sequence) {
            Some(Place::Sound { own, .. }) => Some(own),
            _ => self.released.get(&sequence).or(known),
        }
    }

    /// Places that hold something which is not their manifest.
    pub(crate) fn unsound(&self) -> impl Iterator<Item = Sequence> {
        self.places
            .iter()
            .filter(|(_, place)| matches!(place, Place::Unsound))
            .map(|(sequence, _)| *sequence)
    }

    /// Everything that is wrong with the chain as a whole.
    pub(crate) fn flaws(&self, cluster: &ClusterName) -> Vec<Flaw> {
        let mut flaws = self.missing(cluster);
        for (sequence, place) in &self.places {
            let Place::Sound { predecessor, .. } = place else {
                continue;
            };
            flaws.extend(self.contradiction(cluster, *sequence, predecessor.as_ref()));
        }
        if let (Some(head), Some(Place::Sound { own, .. })) = (
            &self.head,
            self.head
                .as_ref()
                .and_then(|head| self.places.get(&head.sequence)),
        ) && head != own
        {
            flaws.push(replaced(cluster, head.sequence, "the ledger"));
        }
        flaws
    }

    /// The predecessor named by the manifest at `sequence` against what stands before it.
    fn contradiction(
        &self,
        cluster: &ClusterName,
        sequence: Sequence,
        named: Option<&Link>,
    ) -> Option<Flaw> {
        let named = named?;
        let found = match self.places.get(&named.sequence) {
            Some(Place::Sound { own, .. }) => own,
            Some(Place::Unsound) => return None,
            None => self.released.get(&named.sequence)?,
        };
        let witness = format!("the manifest after it, {sequence},");
        (found != named).then(|| replaced(cluster, named.sequence, &witness))
    }

    fn missing(&self, cluster: &ClusterName) -> Vec<Flaw> {
        let present = self.places.keys().next_back().copied().unwrap_or_default();
        let mut flaws = Vec::new();
        let mut expected = Sequence(1);
        let end = self.newest().next().unwrap_or_default();
        let filled = self.places.keys().chain(self.released.keys()).copied();
        let mut filled: Vec<Sequence> = filled.chain(std::iter::once(end)).collect();
        filled.sort_unstable();
        for place in filled {
            while expected < place && flaws.len() < MISSING_NAMED_MAX {
                let kind = if expected > present {
                    FlawKind::HeadMissing
                } else {
                    FlawKind::ManifestMissing
                };
                let object = layout::manifest(cluster, expected);
                flaws.push(Flaw::new(
                    kind,
                    object,
                    "gone without a record of its release",
                ));
                expected = expected.next().unwrap_or(place);
            }
            expected = expected.max(place.next().unwrap_or(place));
        }
        flaws
    }
}

fn replaced(cluster: &ClusterName, sequence: Sequence, witness: &str) -> Flaw {
    let object = layout::manifest(cluster, sequence);
    Flaw::new(
        FlawKind::ManifestReplaced,
        object,
        format!("{witness} knows another digest of it"),
    )
}

#[cfg(test)]
mod tests {
    use holdfast_policies::SnapshotId;

    use super::*;
    use crate::digest::Digest;

    fn link(sequence: u64) -> Link {
        let digest = Digest::of(&sequence.to_le_bytes());
        let at = chrono::DateTime::UNIX_EPOCH;
        let byte = u8::try_from(sequence % 251).unwrap();
        let random = [byte; holdfast_policies::ID_RANDOM_BYTES];
        Link {
            sequence: Sequence(sequence),
            id: SnapshotId::new(at, random),
            digest,
        }
    }

    fn chain(present: impl IntoIterator<Item = u64>) -> Chain {
        let sound = |n: u64| Place::Sound {
            own: link(n),
            predecessor: (n > 1).then(|| link(n - 1)),
        };
        let places = present
            .into_iter()
            .map(|n| (Sequence(n), sound(n)))
            .collect();
        Chain {
            places,
            ..Chain::default()
        }
    }

    fn kinds(chain: &Chain) -> Vec<(FlawKind, String)> {
        let cluster = "c".parse().unwrap();
        let short = |flaw: Flaw| {
            (
                flaw.kind,
                flaw.object.rsplit('/').next().unwrap().to_owned(),
            )
        };
        chain.flaws(&cluster).into_iter().map(short).collect()
    }

    #[test]
    fn an_unbroken_chain_has_no_flaw_and_an_empty_one_neither() {
        assert_eq!(kinds(&Chain::default()), []);
        assert_eq!(kinds(&chain(1..=5)), []);
        assert_eq!(chain(1..=5).newest(), Sequence(5));
    }

    #[test]
    fn a_deleted_middle_manifest_is_named_unless_it_was_released() {
        let mut broken = chain([1, 2, 4, 5]);
        assert_eq!(
            kinds(&broken),
            [(FlawKind::ManifestMissing, "000000000003.json".to_owned())]
        );
        broken.released.insert(Sequence(3), link(3));
        assert_eq!(kinds(&broken), []);
        broken.released.insert(Sequence(3), link(9));
        assert_eq!(kinds(&broken)[0].0, FlawKind::ManifestReplaced);
    }

    #[test]
    fn deleted_newest_manifests_are_noticed_by_the_ledger() {
        let mut rolled_back = chain(1..=3);
        rolled_back.head = Some(link(5));
        let found = kinds(&rolled_back);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|(kind, _)| *kind == FlawKind::HeadMissing));
        assert_eq!(rolled_back.newest(), Sequence(5));
    }

    #[test]
    fn a_manifest_that_its_successor_does_not_name_is_reported() {
        let mut forged = chain(1..=3);
        let other = Place::Sound {
            own: link(7),
            predecessor: Some(link(1)),
        };
        forged.places.insert(Sequence(2), other);
        assert_eq!(
            kinds(&forged),
            [(FlawKind::ManifestReplaced, "000000000002.json".to_owned())]
        );
    }

    #[test]
    fn a_manifest_the_ledger_knows_with_another_digest_is_reported() {
        let mut forged = chain(1..=3);
        forged.head = Some(Link {
            digest: Digest::of(b"other"),
            ..link(3)
        });
        assert_eq!(
            kinds(&forged),
            [(FlawKind::ManifestReplaced, "000000000003.json".to_owned())]
        );
    }

    #[test]
    fn an_absurd_gap_is_reported_in_bounded_time() {
        let far = chain([1, u64::MAX - 1]);
        assert_eq!(far.flaws(&"c".parse().unwrap()).len(), MISSING_NAMED_MAX);
    }
}
