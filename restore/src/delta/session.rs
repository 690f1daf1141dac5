//! One run from its backup to its end: gathers while it stores, and goes on where it was after any
//! failure that lost nothing.
//!
//! What is gathered becomes a sealed delta; while that is stored the next is gathered already, so
//! that a slow vault does not keep a watch from being read. A delta that could not be stored is
//! kept and stored again; a feed that failed is opened anew after what is kept. What ends the run
//! says [`Error::ends_run`]: a gap, a place that is taken, somebody who took over.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};

use super::{RunWriter, Sealed};
use crate::claim;
use crate::error::{Error, Result};
use crate::follow::{Feed, Follower, Gathered, Now};
use crate::key::{Signer, Trust};
use crate::manifest::SourceHash;
use crate::office::Office;
use crate::part::length_of;
use crate::seal::Sealer;
use crate::vault::{ReadWrite, Vault};

/// A source that can be followed.
#[async_trait]
pub trait Followed: Send + Sync {
    /// Its changes from a revision on.
    async fn feed(&self, revision: i64) -> Result<Box<dyn Feed>>;

    /// Its HashKV at a revision, as far as it can tell.
    async fn hash_kv(&self, revision: i64) -> Result<SourceHash>;
}

/// How a run is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// How long one delta is gathered.
    pub every: Duration,
    /// Without changes a delta is written so often, so that the vault alone tells how far it goes.
    pub heartbeat: TimeDelta,
    /// How often the source is asked for its hash.
    pub hash: TimeDelta,
}

impl SessionOptions {
    /// A delta each `every`, a heartbeat and a hash each five minutes.
    pub const fn new(every: Duration) -> Self {
        Self {
            every,
            heartbeat: TimeDelta::minutes(5),
            hash: TimeDelta::minutes(5),
        }
    }
}

/// A delta that is in the vault now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Its place in the run.
    pub number: u64,
    /// The newest revision in it.
    pub to: i64,
    /// Rows in it.
    pub events: u64,
    /// Bytes of the object.
    pub bytes: u64,
    /// Until when everything is in the vault, by the writer's clock.
    pub until: DateTime<Utc>,
}

/// What must hold before each delta is stored.
#[derive(Debug, Clone)]
pub struct Fence {
    /// Whose claims count: the run's generation must be the newest claimed.
    pub trust: Trust,
    /// What must still be held besides.
    pub office: Option<Arc<dyn Office>>,
}

impl Fence {
    async fn check(&self, writer: &RunWriter, vault: &Vault<ReadWrite>) -> Result<()> {
        let cluster = writer.cluster();
        if let Some(office) = &self.office {
            office
                .still_held()
                .await
                .map_err(|reason| Error::OfficeLost {
                    cluster: cluster.clone(),
                    reason,
                })?;
        }
        claim::confirm(vault, cluster, writer.generation(), &self.trust).await
    }
}

/// A run being written.
#[derive(Debug)]
pub struct Session {
    writer: RunWriter,
    options: SessionOptions,
    fence: Option<Fence>,
    follower: Option<Follower<Box<dyn Feed>>>,
    sealed: Option<Sealed>,
    gathered: Option<Gathered>,
    /// End of the last delta sealed.
    told: Option<DateTime<Utc>>,
    hashed: Option<DateTime<Utc>>,
}

impl Session {
    /// Goes on where `writer` stands.
    pub fn new(writer: RunWriter, options: SessionOptions) -> Self {
        Self {
            writer,
            options,
            fence: None,
            follower: None,
            sealed: None,
            gathered: None,
            told: None,
            hashed: None,
        }
    }

    /// Stores nothing once another writer took over.
    #[must_use]
    pub fn fenced(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// The newest revision in the vault.
    pub fn stored(&self) -> i64 {
        self.writer.to()
    }

    /// One interval: stores what was sealed before, gathers meanwhile, and seals that. Answers what
    /// was stored. After an error that does not end the run, call it again later; what was
    /// gathered is not lost. Do not drop its future where that matters: a gathering given up is
    /// read again from the source.
    pub async fn step(
        &mut self,
        source: &dyn Followed,
        vault: &Vault<ReadWrite>,
        keys: (&Sealer, &Signer),
        now: Now<'_>,
    ) -> Result<Option<Stored>> {
        let from = self.next_from();
        let (every, is_idle) = (self.options.every, self.gathered.is_none());
        // Taken out, so that a future that is dropped leaves no follower half read.
        let follower = self.follower.take();
        let gathering = async {
            if is_idle {
                gather(follower, source, from, every, now).await.map(Some)
            } else {
                Ok(None)
            }
        };
        let fence = self.fence.as_ref();
        let storing = store(&mut self.writer, &mut self.sealed, fence, vault);
        let (stored, gathered) = tokio::join!(storing, gathering);
        let failed = match gathered {
            Ok(Some((follower, gathered))) => {
                self.follower = Some(follower);
                self.gathered = Some(gathered);
                None
            }
            Ok(None) => None,
            Err(error) => Some(error),
        };
        let stored = stored?;
        self.seal(source, keys).await?;
        match failed {
            // Told by the next call again, when it still is so.
            Some(_) if stored.is_some() => Ok(stored),
            Some(error) => Err(error),
            None => Ok(stored),
        }
    }

    /// Stores what is sealed, at the end.
    pub async fn finish(&mut self, vault: &Vault<ReadWrite>) -> Result<Option<Stored>> {
        let fence = self.fence.as_ref();
        store(&mut self.writer, &mut self.sealed, fence, vault).await
    }

    /// The revision after which is read on.
    fn next_from(&self) -> i64 {
        let sealed = self.sealed.as_ref().map(|sealed| sealed.record.to);
        let gathered = self.gathered.as_ref().map(|gathered| gathered.to);
        gathered.or(sealed).unwrap_or_else(|| self.writer.to())
    }

    /// Seals what was gathered once the delta before it is stored, when it tells anything.
    async fn seal(&mut self, source: &dyn Followed, keys: (&Sealer, &Signer)) -> Result<()> {
        if self.sealed.is_some() {
            return Ok(());
        }
        let Some(gathered) = self.gathered.take() else {
            return Ok(());
        };
        let is_due = |last: Option<DateTime<Utc>>, span: TimeDelta| {
            last.is_none_or(|last| gathered.finished - last >= span)
        };
        if gathered.events == 0 && !is_due(self.told, self.options.heartbeat) {
            return Ok(());
        }
        let finished = gathered.finished;
        let is_asked = !gathered.is_cut && is_due(self.hashed, self.options.hash);
        let hash = if is_asked {
            let asked = source.hash_kv(gathered.to).await;
            asked.unwrap_or_else(|error| unavailable(&error.to_string()))
        } else {
            unavailable("not asked")
        };
        if matches!(hash, SourceHash::Told { .. }) {
            self.hashed = Some(finished);
        }
        self.sealed = Some(self.writer.seal(gathered, hash, keys)?);
        self.told = Some(finished);
        Ok(())
    }
}

fn unavailable(reason: &str) -> SourceHash {
    SourceHash::Unavailable {
        reason: reason.to_owned(),
    }
}

type Gathering = (Follower<Box<dyn Feed>>, Gathered);

async fn gather(
    follower: Option<Follower<Box<dyn Feed>>>,
    source: &dyn Followed,
    from: i64,
    every: Duration,
    now: Now<'_>,
) -> Result<Gathering> {
    let mut follower = match follower.filter(|follower| follower.to() == from) {
        Some(follower) => follower,
        None => Follower::new(source.feed(from).await?, from),
    };
    let gathered = follower.gather(every, now).await?;
    Ok((follower, gathered))
}

async fn store(
    writer: &mut RunWriter,
    pending: &mut Option<Sealed>,
    fence: Option<&Fence>,
    vault: &Vault<ReadWrite>,
) -> Result<Option<Stored>> {
    let Some(sealed) = pending.as_ref() else {
        return Ok(None);
    };
    if let Some(fence) = fence {
        fence.check(writer, vault).await?;
    }
    writer.commit(vault, sealed).await?;
    let record = &sealed.record;
    let stored = Stored {
        number: record.number,
        to: record.to,
        events: record.events,
        bytes: length_of(sealed.object.len()),
        until: record.finished,
    };
    *pending = None;
    Ok(Some(stored))
}

impl Error {
    /// Whether a run ends with it: nothing that comes after can be captured in it.
    pub fn ends_run(&self) -> bool {
        matches!(
            self,
            Self::CaptureBroken { .. }
                | Self::ObjectExists { .. }
                | Self::Replaced { .. }
                | Self::OfficeLost { .. }
        )
    }
}
