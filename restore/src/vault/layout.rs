//! Names of the objects in a vault.
//!
//! ```text
//! vault.json                                      marker: this is a vault, of this format
//! clusters/NAME/manifests/SEQUENCE.json           commit records, one a backup, create-only
//! clusters/NAME/parts/ID/INDEX                    sealed parts
//! clusters/NAME/envelopes/ID/N.age                further envelopes, from a rewrap
//! clusters/NAME/proofs/ID/PROOF.json              what was verified, when, with what evidence
//! clusters/NAME/pins/ID/N.json                    an operator's wish to keep a backup; last wins
//! clusters/NAME/releases/ID.json                  step 0 of a backup on its way out
//! clusters/NAME/releases/ID.N.json                step N of it
//! clusters/NAME/confirmations/SEQUENCE.json       times up to there were found right
//! clusters/NAME/ledger/REVISION-DIGEST.json       revisions observed
//! clusters/NAME/drills/ID.json                    drill reports
//! clusters/NAME/claims/GENERATION.json             who writes backups from a generation on
//! clusters/NAME/deltas/GENERATION/NUMBER           changes after a revision up to another
//! clusters/NAME/deltas/GENERATION/released-NUMBER.json    what of them was let go
//! clusters/NAME/uses/ID/READER-UUID-N.json        marks of those who read a backup now
//! ```

use std::fmt;

use holdfast_policies::{ClusterName, DrillId, Generation, Sequence, SnapshotId};

/// An object's name within a vault: `/` separated, no empty, `.` or `..` segment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(String);

impl ObjectName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name as a listing gave it; `None` when it is not one of a vault's.
    pub(crate) fn listed(text: &str) -> Option<Self> {
        let is_sound = |segment: &str| !segment.is_empty() && segment != "." && segment != "..";
        text.split('/').all(is_sound).then(|| Self(text.to_owned()))
    }

    /// The last segment.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The segment before the last.
    pub(crate) fn folder_name(&self) -> &str {
        self.0.rsplit('/').nth(1).unwrap_or_default()
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The marker object.
pub fn marker() -> ObjectName {
    ObjectName("vault.json".to_owned())
}

/// The folder all clusters are in.
pub(crate) const CLUSTERS: &str = "clusters";

/// Folders of one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folder {
    /// Commit records.
    Manifests,
    /// Sealed parts.
    Parts,
    /// Further envelopes.
    Envelopes,
    /// Verification results.
    Proofs,
    /// Wishes to keep.
    Pins,
    /// Steps of backups that were let go.
    Releases,
    /// Words of operators about times.
    Confirmations,
    /// Observed revisions.
    Ledger,
    /// Drill reports.
    Drills,
    /// Marks of readers.
    Uses,
    /// Generations taken.
    Claims,
    /// Changes between backups.
    Deltas,
}

impl Folder {
    const fn name(self) -> &'static str {
        match self {
            Self::Manifests => "manifests",
            Self::Parts => "parts",
            Self::Envelopes => "envelopes",
            Self::Proofs => "proofs",
            Self::Pins => "pins",
            Self::Releases => "releases",
            Self::Confirmations => "confirmations",
            Self::Ledger => "ledger",
            Self::Drills => "drills",
            Self::Uses => "uses",
            Self::Claims => "claims",
            Self::Deltas => "deltas",
        }
    }

    /// Every folder of a cluster.
    const ALL: [Self; 11] = [
        Self::Manifests,
        Self::Parts,
        Self::Envelopes,
        Self::Proofs,
        Self::Pins,
        Self::Releases,
        Self::Ledger,
        Self::Drills,
        Self::Uses,
        Self::Claims,
        Self::Deltas,
    ];

    /// The folder with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|folder| folder.name() == name)
    }

    /// The folder of one cluster.
    pub fn of(self, cluster: &ClusterName) -> ObjectName {
        ObjectName(format!("{CLUSTERS}/{cluster}/{}", self.name()))
    }

    /// The folder of one backup within it.
    pub fn of_backup(self, cluster: &ClusterName, id: SnapshotId) -> ObjectName {
        ObjectName(format!("{}/{id}", self.of(cluster)))
    }
}

/// Everything of one cluster.
pub(crate) fn cluster_folder(cluster: &ClusterName) -> ObjectName {
    ObjectName(format!("{CLUSTERS}/{cluster}"))
}

/// A manifest.
pub fn manifest(cluster: &ClusterName, sequence: Sequence) -> ObjectName {
    ObjectName(format!(
        "{}/{:012}.json",
        Folder::Manifests.of(cluster),
        sequence.0
    ))
}

/// The sequence a manifest's name claims.
pub(crate) fn manifest_sequence(name: &ObjectName) -> Option<Sequence> {
    let digits = name.file_name().strip_suffix(".json")?;
    let sequence = Sequence(digits.parse().ok()?);
    (format!("{:012}", sequence.0) == digits).then_some(sequence)
}

/// A part.
pub fn part(cluster: &ClusterName, id: SnapshotId, index: usize) -> ObjectName {
    ObjectName(format!(
        "{}/{index:06}",
        Folder::Parts.of_backup(cluster, id)
    ))
}

/// A further envelope.
pub(crate) fn envelope(cluster: &ClusterName, id: SnapshotId, number: usize) -> ObjectName {
    ObjectName(format!(
        "{}/{number:06}.age",
        Folder::Envelopes.of_backup(cluster, id)
    ))
}

/// A proof.
pub(crate) fn proof(cluster: &ClusterName, id: SnapshotId, name: &str) -> ObjectName {
    ObjectName(format!(
        "{}/{name}.json",
        Folder::Proofs.of_backup(cluster, id)
    ))
}

/// A pin record.
pub(crate) fn pin(cluster: &ClusterName, id: SnapshotId, number: usize) -> ObjectName {
    ObjectName(format!(
        "{}/{number:06}.json",
        Folder::Pins.of_backup(cluster, id)
    ))
}

/// A step of a backup on its way out.
pub(crate) fn release(cluster: &ClusterName, id: SnapshotId, number: u64) -> ObjectName {
    let folder = Folder::Releases.of(cluster);
    ObjectName(match number {
        0 => format!("{folder}/{id}.json"),
        number => format!("{folder}/{id}.{number:06}.json"),
    })
}

/// An operator's word about the times up to a place.
pub(crate) fn confirmation(cluster: &ClusterName, sequence: Sequence) -> ObjectName {
    let folder = Folder::Confirmations.of(cluster);
    ObjectName(format!("{folder}/{:012}.json", sequence.0))
}

/// An object that is stored only to see the time at which the vault says it was.
pub(crate) fn probe(cluster: &ClusterName, unique: crate::unique::UniqueId) -> ObjectName {
    ObjectName(format!("{CLUSTERS}/{cluster}/clock/{unique}"))
}

/// A ledger record.
pub(crate) fn ledger(cluster: &ClusterName, revision: i64, digest: &str) -> ObjectName {
    ObjectName(format!(
        "{}/{revision:020}-{digest}.json",
        Folder::Ledger.of(cluster)
    ))
}

/// A drill's report.
pub fn drill(cluster: &ClusterName, id: DrillId) -> ObjectName {
    ObjectName(format!("{}/{id}.json", Folder::Drills.of(cluster)))
}

/// A claim of a generation.
pub(crate) fn claim(cluster: &ClusterName, generation: Generation) -> ObjectName {
    ObjectName(format!(
        "{}/{:020}.json",
        Folder::Claims.of(cluster),
        generation.0
    ))
}

/// A delta.
pub fn delta(cluster: &ClusterName, generation: Generation, number: u64) -> ObjectName {
    ObjectName(format!(
        "{}/{:020}/{number:012}",
        Folder::Deltas.of(cluster),
        generation.0
    ))
}

/// The generation and the number that a delta's name claims.
pub(crate) fn delta_place(name: &ObjectName) -> Option<(Generation, u64)> {
    let (run, digits) = (name.folder_name(), name.file_name());
    let (generation, number) = (run.parse().ok()?, digits.parse().ok()?);
    let is_canonical = format!("{generation:020}") == run && format!("{number:012}") == digits;
    is_canonical.then_some((Generation(generation), number))
}

/// A record of deltas let go.
pub(crate) fn delta_release(
    cluster: &ClusterName,
    generation: Generation,
    through: u64,
) -> ObjectName {
    ObjectName(format!(
        "{}/{:020}/{RELEASED}{through:012}.json",
        Folder::Deltas.of(cluster),
        generation.0
    ))
}

/// Whether a name in the folder of deltas is that of a release record.
pub(crate) fn is_delta_release(name: &ObjectName) -> bool {
    name.file_name().starts_with(RELEASED)
}

/// How the names of such records begin.
const RELEASED: &str = "released-";

/// A mark of a reader.
pub(crate) fn usage(
    cluster: &ClusterName,
    id: SnapshotId,
    label: &str,
    number: usize,
) -> ObjectName {
    ObjectName(format!(
        "{}/{label}-{number:06}.json",
        Folder::Uses.of_backup(cluster, id)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_names_sort_as_their_sequences_and_have_one_form() {
        let cluster: ClusterName = "prod".parse().unwrap();
        let (nine, ten) = (
            manifest(&cluster, Sequence(9)),
            manifest(&cluster, Sequence(10)),
        );
        assert!(nine < ten);
        assert_eq!(nine.as_str(), "clusters/prod/manifests/000000000009.json");
        assert_eq!(manifest_sequence(&nine), Some(Sequence(9)));
        for odd in [
            "clusters/prod/manifests/9.json",
            "clusters/prod/manifests/000000000009",
        ] {
            assert_eq!(manifest_sequence(&ObjectName(odd.to_owned())), None);
        }
    }

    #[test]
    fn a_listed_name_cannot_leave_the_vault() {
        for bad in ["", "/x", "a//b", "../x", "a/../b", "a/."] {
            assert_eq!(ObjectName::listed(bad), None, "{bad}");
        }
        assert!(ObjectName::listed("clusters/a/parts/x").is_some());
    }
}
