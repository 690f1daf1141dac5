//! Writing a run: each delta takes the next place, create-only, and names the one before.

use holdfast_policies::{ClusterName, Generation};

use super::{Delta, Head, Predecessor, Sealed};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::follow::Gathered;
use crate::key::Signer;
use crate::manifest::{Link, Manifest, SourceHash};
use crate::part::PartRecord;
use crate::seal::{Encryption, Sealer};
use crate::vault::{ReadWrite, Vault, layout};

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunWriter {
    cluster: ClusterName,
    generation: Generation,
    next: u64,
    predecessor: Predecessor,
    to: i64,
}

impl RunWriter {
    /// The beginning of a run on a backup that is its generation's first to be followed.
    pub fn begin(manifest: &Manifest, link: &Link) -> Self {
        Self {
            cluster: manifest.cluster.clone(),
            generation: manifest.generation,
            next: 1,
            predecessor: Predecessor::Snapshot(link.clone()),
            to: manifest.content.revision,
        }
    }

    /// Goes on behind the last delta of a run. Whether somebody else does too shows when the next
    /// place is taken.
    pub fn resume(last: &Head) -> Self {
        let record = &last.record;
        Self {
            cluster: record.cluster.clone(),
            generation: record.generation,
            next: record.number.saturating_add(1),
            predecessor: Predecessor::Delta(last.digest),
            to: record.to,
        }
    }

    /// Whose changes it writes.
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// The generation of the run.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The newest revision committed.
    pub fn to(&self) -> i64 {
        self.to
    }

    /// Deltas committed.
    pub fn committed(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    /// Seals what was gathered for the next place. Store it with [`RunWriter::commit`], as often as
    /// it takes: the same bytes in their place already count as stored.
    pub fn seal(
        &self,
        gathered: Gathered,
        source_hash: SourceHash,
        (sealer, signer): (&Sealer, &Signer),
    ) -> Result<Sealed> {
        if gathered.from != self.to {
            return Err(Error::CaptureBroken {
                at: self.to,
                reason: format!("what was gathered begins after revision {}", gathered.from),
            });
        }
        let nothing = Digest::of(&[]);
        let delta = Delta {
            cluster: self.cluster.clone(),
            generation: self.generation,
            number: self.next,
            predecessor: self.predecessor.clone(),
            from: gathered.from,
            to: gathered.to,
            events: gathered.events,
            started: gathered.started,
            finished: gathered.finished,
            source: gathered.source,
            source_hash,
            encryption: Encryption::None,
            part: PartRecord {
                plain_bytes: 0,
                plain_digest: nothing,
                stored_bytes: 0,
                stored_digest: nothing,
            },
            writer: concat!("holdfast ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        delta.seal(&gathered.payload, sealer, signer)
    }

    /// Stores a sealed delta: from then on it is part of the run. Somebody else in its place means
    /// that this writer was replaced, and ends the run.
    pub async fn commit(&mut self, vault: &Vault<ReadWrite>, sealed: &Sealed) -> Result<()> {
        let record = &sealed.record;
        if record.number != self.next || record.predecessor != self.predecessor {
            return Err(Error::CaptureBroken {
                at: self.to,
                reason: format!("delta {} was sealed for another place", record.number),
            });
        }
        let name = layout::delta(&self.cluster, self.generation, self.next);
        vault.put_new(&name, sealed.object.clone()).await?;
        self.to = record.to;
        self.next = self.next.saturating_add(1);
        self.predecessor = Predecessor::Delta(sealed.digest);
        Ok(())
    }
}
