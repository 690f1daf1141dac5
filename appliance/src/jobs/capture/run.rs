//! One run: a backup, what was missed before it, and then every change until the run ends.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use holdfast_policies::{CapturePolicy, Generation, Rpo, Span};
use holdfast_restore::delta::gap::DeltaGap;
use holdfast_restore::delta::{Fence, Followed, RunWriter, Session, SessionOptions};
use holdfast_restore::office::Office;
use holdfast_restore::{Captured, Error, ReadWrite, Sealer, Signer, Trust, Vault};
use tokio::sync::{mpsc, oneshot, watch};

use super::super::backup::{self, Base};
use super::super::shop::{BackupRequest, Shop, stopping};
use super::bridge;
use super::tally::Counter;
use crate::config::Source;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::{keys, sources, vaults};

/// The first wait after a failure that lost nothing; each next one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Longest wait after such a failure.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The capture of one source in one turn.
pub(super) struct Job {
    shop: Arc<Shop>,
    source: Arc<Source>,
    door: mpsc::Sender<BackupRequest>,
    office: Option<Arc<dyn Office>>,
    policy: CapturePolicy,
    rpo: Option<Rpo>,
    counter: Counter,
}

/// How the run before ended in this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Last {
    /// Its generation.
    generation: Option<Generation>,
    /// Why nothing behind it can be captured in it; `None` where it may go on.
    broken: Option<String>,
}

/// What a run works with.
pub(super) struct Tools {
    pub(super) vault: Vault<ReadWrite>,
    pub(super) sealer: Sealer,
    pub(super) signer: Signer,
    pub(super) trust: Trust,
}

/// A run that begins.
pub(super) struct Begun {
    tools: Tools,
    session: Session,
    source: Box<dyn Followed>,
    generation: Generation,
}

impl Job {
    /// The capture of `source`, whose backups are asked for at `door`, as long as `office` is held.
    pub(super) fn new(
        shop: Arc<Shop>,
        source: Arc<Source>,
        door: mpsc::Sender<BackupRequest>,
        office: Option<Arc<dyn Office>>,
    ) -> Result<Self, Failure> {
        let policies = shop.settings.policies()?;
        Ok(Self {
            counter: shop.tallies.of(source.name.as_str()),
            policy: policies.capture,
            rpo: policies.objective.rpo,
            shop,
            source,
            door,
            office,
        })
    }

    /// Takes the backup, and closes or records what lies between it and the run before.
    pub(super) async fn begin(&self, last: &Last) -> Result<Begun, Failure> {
        self.counter.now("taking the backup to begin with");
        let tools = self.tools().await?;
        let base = self.base(last.generation).await?;
        if last.generation >= Some(base.manifest.generation) {
            // It waits on this host for the vault, where nothing could be claimed.
            let failure = Failure::new(ErrorName::Unavailable, "no new generation was claimed");
            return Err(failure);
        }
        self.counter.now("looking at what was captured before");
        let gap = self.gap(&tools, last, &base).await?;
        if let Some(gap) = &gap {
            self.record(&tools, gap).await?;
        }
        let manifest = &base.manifest;
        let writer = RunWriter::begin(manifest, &base.link);
        let heartbeat = self.policy.heartbeat(self.rpo).as_delta();
        let options = SessionOptions {
            heartbeat,
            ..SessionOptions::new(self.every().as_duration())
        };
        let fence = Fence {
            trust: tools.trust.clone(),
            office: self.office.clone(),
        };
        tracing::info!(
            source = self.source.name.as_str(), generation = manifest.generation.0,
            snapshot_id = %manifest.id, revision = manifest.content.revision,
            every = %self.every(), "changes are captured from this backup on"
        );
        Ok(Begun {
            source: self.followed(manifest.source.cluster_id.clone())?,
            session: Session::new(writer, options).fenced(fence),
            generation: manifest.generation,
            tools,
        })
    }

    /// Captures until the run ends.
    pub(super) async fn follow(&self, begun: Begun) -> Last {
        let Begun {
            tools,
            mut session,
            source,
            generation,
        } = begun;
        let now = || self.now();
        let mut wait = FIRST_WAIT;
        loop {
            self.counter.now(format!(
                "following, stored up to revision {}",
                session.stored()
            ));
            let keys = (&tools.sealer, &tools.signer);
            match session
                .step(source.as_ref(), &tools.vault, keys, &now)
                .await
            {
                Ok(stored) => {
                    wait = FIRST_WAIT;
                    if let Some(stored) = &stored {
                        self.counter.stored(stored);
                        tracing::debug!(
                            source = self.source.name.as_str(),
                            number = stored.number,
                            to = stored.to,
                            events = stored.events,
                            "changes stored"
                        );
                    }
                }
                Err(error) if error.ends_run() => {
                    self.told_failure(&error.to_string());
                    return Last {
                        generation: Some(generation),
                        broken: reason(&error),
                    };
                }
                // Nothing is lost: what was gathered is kept, and the source keeps the rest.
                Err(error) => {
                    self.told_failure(&error.to_string());
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(WAIT_MAX);
                }
            }
        }
    }

    /// Tells that something went wrong.
    pub(super) fn told_failure(&self, why: &str) {
        self.counter.failed(why);
        tracing::warn!(source = self.source.name.as_str(), why, "capture");
    }

    /// A backup of this daemon, in a generation of its own.
    async fn base(&self, newer_than: Option<Generation>) -> Result<Captured, Failure> {
        let (reply, answer) = oneshot::channel();
        let (taken, mut seen) = watch::channel(None);
        let request = BackupRequest {
            accept_new_cluster: false,
            base: Some(Base { newer_than, taken }),
            reply,
        };
        self.door.send(request).await.map_err(|_gone| stopping())?;
        tokio::select! {
            biased;
            Ok(taken) = seen.wait_for(Option::is_some) => return taken.clone().ok_or_else(stopping),
            answer = answer => answer.map_err(|_gone| stopping())??,
        };
        let taken = seen.borrow().clone();
        taken.ok_or_else(stopping)
    }

    /// What is missing between the run before and `base`.
    async fn gap(
        &self,
        tools: &Tools,
        last: &Last,
        base: &Captured,
    ) -> Result<Option<DeltaGap>, Failure> {
        let before = self.until_it_works(|| bridge::before(tools, &base.manifest));
        let Some(before) = before.await? else {
            return Ok(None);
        };
        let source = self.followed(before.record.source.cluster_id.clone())?;
        let now = || self.now();
        let end = bridge::close(
            tools,
            &before,
            last.broken.as_deref(),
            base.manifest.content.revision,
            (source.as_ref(), &now),
        );
        let end = end.await;
        Ok(end.gap(&before, &base.manifest, self.now()))
    }

    async fn record(&self, tools: &Tools, gap: &DeltaGap) -> Result<(), Failure> {
        tracing::error!(
            source = self.source.name.as_str(), alarm = "capture_gap", from = gap.from,
            since = %gap.since, to = gap.to, until = %gap.until, reason = gap.reason,
            "changes were not captured"
        );
        self.until_it_works(|| gap.record(&tools.vault, &tools.signer))
            .await?;
        self.counter.gap();
        self.shop.refresh.send_replace(());
        Ok(())
    }

    /// Tries again what must not be left out while the vault does not answer.
    async fn until_it_works<T, F>(&self, mut work: impl FnMut() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut wait = FIRST_WAIT;
        loop {
            match work().await {
                Err(error @ (Error::Vault { .. } | Error::Io { .. })) => {
                    self.told_failure(&error.to_string());
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(WAIT_MAX);
                }
                done => return done.or_fail("the run of changes was not begun"),
            }
        }
    }

    async fn tools(&self) -> Result<Tools, Failure> {
        let settings = &self.shop.settings;
        let sealer = backup::sealer(settings)?;
        let signer = keys::signer(settings)?;
        Ok(Tools {
            vault: vaults::write(settings, &signer, self.now()).await?,
            trust: keys::trust(settings)?,
            sealer,
            signer,
        })
    }

    fn followed(&self, cluster_id: Option<String>) -> Result<Box<dyn Followed>, Failure> {
        let shop = &self.shop;
        sources::follow(
            &shop.settings,
            &self.source,
            shop.member.as_ref(),
            cluster_id,
        )
    }

    fn every(&self) -> Span {
        self.policy.every().unwrap_or(Span::from_secs(10))
    }

    fn now(&self) -> DateTime<Utc> {
        self.shop.clock.now()
    }
}

/// Why nothing behind a run can be captured; one that another writer took over may go on there.
fn reason(error: &Error) -> Option<String> {
    match error {
        Error::Replaced { .. } | Error::OfficeLost { .. } => None,
        Error::CaptureBroken { reason, .. } => Some(reason.clone()),
        _ => Some(error.to_string()),
    }
}
