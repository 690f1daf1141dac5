//! What can be wrong with a vault's history or one of its backups, each kind by its name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kinds of damage and of tampering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlawKind {
    /// A part is not there.
    PartMissing,
    /// A part has another size.
    PartSize,
    /// A part has other bytes.
    PartChanged,
    /// A part holds another part's bytes.
    PartSwapped,
    /// A part's bytes are right and yet it does not open.
    PartUnreadable,
    /// The manifest's signature does not hold, or it is no manifest.
    ManifestEdited,
    /// The manifest is signed by a key that is not trusted here.
    ManifestStranger,
    /// The manifest is genuine, of another place in the chain: an older or a newer one was put
    /// here.
    ManifestReplaced,
    /// A manifest is gone without a record of its release.
    ManifestMissing,
    /// The newest manifests are gone: the ledger knows later ones.
    HeadMissing,
    /// The manifest, or what it describes, is of another cluster.
    WrongCluster,
    /// A released backup is still there or came back.
    ReleasedPresent,
    /// No identity at hand opens the backup.
    WrongIdentity,
    /// The content is not a sound etcd database.
    StructureBroken,
    /// The content contradicts the manifest.
    ContentMismatch,
    /// The recomputed HashKV is not the source's.
    HashMismatch,
    /// The vault's marker is not there or damaged.
    MarkerLost,
    /// A name in the vault that cannot be an object's.
    NameRefused,
    /// A record beside the manifests (proof, pin, release, ledger) cannot be believed.
    RecordRefused,
    /// A proof or a ledger record is signed by a key that is not trusted here: it does not count,
    /// and nothing that does is missing for it.
    RecordStranger,
    /// A delta is gone, and others that follow it are there.
    DeltaMissing,
    /// A delta cannot be read or believed: damaged, signed by a stranger, no delta.
    DeltaRefused,
    /// A delta is genuine, of another place.
    DeltaReplaced,
    /// A delta's payload has other bytes.
    DeltaChanged,
}

impl FlawKind {
    /// In words, for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::PartMissing => "part missing",
            Self::PartSize => "part has another size",
            Self::PartChanged => "part changed",
            Self::PartSwapped => "part swapped",
            Self::PartUnreadable => "part cannot be opened",
            Self::ManifestEdited => "manifest edited",
            Self::ManifestStranger => "manifest signed by a stranger",
            Self::ManifestReplaced => "manifest of another backup put in this place",
            Self::ManifestMissing => "manifest removed",
            Self::HeadMissing => "newest backups removed",
            Self::WrongCluster => "backup of another cluster",
            Self::ReleasedPresent => "released backup still present",
            Self::WrongIdentity => "no matching identity",
            Self::StructureBroken => "structure broken",
            Self::ContentMismatch => "content contradicts the manifest",
            Self::HashMismatch => "HashKV differs from the source's",
            Self::MarkerLost => "marker lost",
            Self::NameRefused => "name refused",
            Self::RecordRefused => "record refused",
            Self::RecordStranger => "record signed by a stranger",
            Self::DeltaMissing => "delta missing",
            Self::DeltaRefused => "delta refused",
            Self::DeltaReplaced => "delta of another place",
            Self::DeltaChanged => "delta changed",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flaw {
    /// What kind.
    pub kind: FlawKind,
    /// Which object.
    pub object: String,
    /// What was found.
    pub detail: String,
}

impl Flaw {
    pub(crate) fn new(
        kind: FlawKind,
        object: impl fmt::Display,
        detail: impl fmt::Display,
    ) -> Self {
        Self {
            kind,
            object: object.to_string(),
            detail: detail.to_string(),
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} ({})",
            self.kind.words(),
            self.object,
            self.detail
        )
    }
}
