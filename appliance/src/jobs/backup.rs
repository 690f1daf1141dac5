//! One backup from beginning to end: read the source, store it sealed, read it back, prove it, then
//! let go of what the rules release.
//!
//! The backup exists when `capture` returns. What comes after cannot make it go away: a failure to
//! prove or to prune is told beside it.

use std::path::PathBuf;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use holdfast_policies::{Generation, Level, Pool, SnapshotId};
use holdfast_restore::key::{Keys, Signer};
use holdfast_restore::office::Office;
use holdfast_restore::{
    CaptureOptions, Captured, Catalog, Proof, ReadBack, ReadWrite, Sealer, Source, Vault,
    VerifyOptions, capture, claim, locks, proof, prune, verify,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::prune::{Pruner, release_deltas};
use super::scheduler::Outcome;
use super::{acceptance, waiting};
use crate::clock::Clock;
use crate::config::{self, Settings};
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::progress::Meter;
use crate::{keys, vaults};

/// Members of a source that are tried before a backup is given up.
const ATTEMPTS: u32 = 3;

/// Parts of no backup are removed when they are older than this: no run takes that long.
const ORPHAN_AGE: TimeDelta = TimeDelta::hours(48);

/// What a backup came to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BackupReport {
    /// The source.
    pub(crate) source: String,
    /// The backup.
    pub(crate) id: SnapshotId,
    /// Its place in the chain.
    pub(crate) sequence: u64,
    /// What it was taken for.
    pub(crate) pool: Pool,
    /// Its generation.
    pub(crate) generation: Generation,
    /// Revision of its content.
    pub(crate) revision: i64,
    /// Live keys in it.
    pub(crate) keys: u64,
    /// Bytes of the snapshot.
    pub(crate) bytes: u64,
    /// Bytes in the vault.
    pub(crate) stored_bytes: u64,
    /// The level it was proven to.
    pub(crate) level: Option<Level>,
    /// `HashKV` recomputed from the backup.
    pub(crate) hash_kv: Option<u32>,
    /// Whether it is sealed.
    pub(crate) is_sealed: bool,
    /// Whether it waits on this host for the vault to be reached again.
    pub(crate) is_waiting: bool,
    /// How long it took, proof included.
    pub(crate) seconds: f64,
    /// Backups that retention put into the trash after it.
    pub(crate) pruned: Vec<SnapshotId>,
    /// What a person should know.
    pub(crate) notes: Vec<String>,
}

/// A backup, or why there is none.
pub(crate) type BackupOutcome = Result<BackupReport, Failure>;

impl Outcome for BackupOutcome {
    fn is_worth_retrying(&self) -> bool {
        self.as_ref()
            .is_err_and(|failure| failure.name() == ErrorName::Unavailable)
    }

    fn summary(&self) -> Result<String, String> {
        match self {
            Ok(report) if report.is_waiting => {
                let line = report.line();
                Err(format!("{line}; it waits on this host for the vault"))
            }
            Ok(report) => Ok(report.line()),
            Err(failure) => Err(failure.line()),
        }
    }
}

impl BackupReport {
    /// One line.
    pub(crate) fn line(&self) -> String {
        let level = self
            .level
            .map_or("unproven".to_owned(), |level| level.to_string());
        format!(
            "{} {level} revision {}, {} {} in {:.1} s",
            self.id,
            self.revision,
            self.keys,
            if self.keys == 1 { "key" } else { "keys" },
            self.seconds
        )
    }
}

/// How a backup is taken.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wishes<'a> {
    /// The source has become another cluster on purpose.
    pub(crate) accept_new_cluster: bool,
    /// What it is taken for.
    pub(crate) pool: Pool,
    /// This process owns the source: it claims a generation, keeps it here for its later runs, and
    /// is refused once another claimed a newer one.
    pub(crate) claimed: Option<&'a Mutex<Option<Generation>>>,
    /// The turn in which it is taken, where the members of a cluster take turns.
    pub(crate) office: Option<&'a Arc<dyn Office>>,
    /// The content is a state of the past, of this generation: see [`super::consolidation`].
    pub(crate) past: Option<(DateTime<Utc>, Generation)>,
    /// What is captured goes on from it.
    pub(crate) base: Option<&'a Base>,
}

/// A backup at which a run of changes begins.
#[derive(Debug)]
pub(crate) struct Base {
    /// The generation whose run ended: a new one is claimed.
    pub(crate) newer_than: Option<Generation>,
    /// Told as soon as the backup exists; it is proven afterwards.
    pub(crate) taken: watch::Sender<Option<Captured>>,
}

/// What one run works with.
struct Run<'a> {
    settings: &'a Settings,
    source: &'a config::Source,
    clock: &'a Clock,
    meter: &'a Meter,
    vault: Vault<ReadWrite>,
    signer: Signer,
    keys: Keys,
    is_sealed: bool,
    /// The vault cannot be reached: `vault` is the folder in which backups wait for it.
    is_waiting: bool,
    notes: Vec<String>,
}

/// Takes one backup of `opened`, which is `source` made ready.
pub(crate) async fn run(
    settings: &Settings,
    source: &config::Source,
    opened: &dyn Source,
    clock: &Clock,
    meter: &Meter,
    wishes: Wishes<'_>,
) -> BackupOutcome {
    let began = tokio::time::Instant::now();
    let sealer = sealer(settings)?;
    let signer = keys::signer(settings)?;
    let keys = keys::reading(settings)?;
    let place = (settings, source);
    let (vault, notes, is_waiting) = match vaults::write(settings, &signer, clock.now()).await {
        Ok(vault) => {
            let notes = waiting::before(place, &vault, &keys.trust).await;
            (vault, notes, false)
        }
        Err(failure) if waiting::is_reason(&failure) => {
            let note = format!("the backup waits on this host: {}", failure.line());
            let folder = waiting::folder(place, (&signer, clock.now()), &keys.trust).await;
            // What is wrong is the vault; that nothing can wait for it comes second.
            let folder = folder.map_err(|refusal| failure.because_of(refusal.line()))?;
            (folder, vec![note], true)
        }
        Err(failure) => return Err(failure),
    };
    let mut run = Run {
        settings,
        source,
        clock,
        meter,
        vault,
        signer,
        keys,
        is_sealed: sealer.is_encrypting(),
        is_waiting,
        notes,
    };
    let captured = run.capture(opened, &sealer, wishes).await?;
    if let Some(base) = wishes.base {
        base.taken.send_replace(Some(captured.clone()));
    }
    let proof = run.prove(&captured).await;
    let level = proof.as_ref().and_then(|proof| proof.level);
    run.lock().await;
    let pruned = run.prune(level).await;
    let content = &captured.manifest.content;
    Ok(BackupReport {
        source: source.name.to_string(),
        id: captured.manifest.id,
        sequence: captured.manifest.sequence.0,
        pool: captured.manifest.pool,
        generation: captured.manifest.generation,
        revision: content.revision,
        keys: content.keys,
        bytes: content.bytes,
        stored_bytes: captured.manifest.stored_bytes(),
        level,
        hash_kv: proof.and_then(|proof| proof.evidence.hash_kv),
        is_sealed: sealer.is_encrypting(),
        is_waiting: run.is_waiting,
        seconds: began.elapsed().as_secs_f64(),
        pruned,
        notes: run.notes,
    })
}

/// Whom backups are sealed for; fails closed.
pub(super) fn sealer(settings: &Settings) -> Result<Sealer, Failure> {
    match keys::recipients(settings)? {
        None => Ok(Sealer::none()),
        Some(recipients) => Sealer::to_recipients(recipients).or_fail("backups cannot be sealed"),
    }
}

impl Run<'_> {
    async fn capture(
        &mut self,
        opened: &dyn Source,
        sealer: &Sealer,
        wishes: Wishes<'_>,
    ) -> Result<Captured, Failure> {
        let (cluster, now) = (self.source.name.clone(), self.clock.now());
        let mut options = CaptureOptions::new(cluster, now, work_dir(self.settings)?);
        options.trust = self.keys.trust.clone();
        options.accept_new_cluster =
            wishes.accept_new_cluster || self.is_restored_here(opened).await;
        if let Some(claimed) = wishes.claimed {
            let is_accepted = options.accept_new_cluster;
            let newer_than = wishes.base.and_then(|base| base.newer_than);
            options.generation = self
                .generation(opened, claimed, newer_than, is_accepted)
                .await?;
        }
        if let Some((time, generation)) = wishes.past {
            options.now = time;
            options.generation = Some(generation);
        }
        options.pool = wishes.pool;
        options.office = wishes.office.cloned();
        options.read_back = ReadBack::Sizes;
        options.ledger = Some(ledger_file(self.settings, self.source)?);
        options.attempts = ATTEMPTS;
        let what = format!("no backup of `{}` was taken", self.source.name);
        let known = self.flaws_of_waiting().await?;
        let progress = self.meter.sink();
        let taken = capture(
            &options,
            opened,
            &self.vault,
            sealer,
            &self.signer,
            &progress,
        );
        let captured = match taken.await {
            // It went away meanwhile: what was read is lost, the source is there to read again.
            Err(error) if !self.is_waiting && waiting::is_of_vault(&error) => {
                let failure = Err::<Captured, _>(error).or_fail(what.clone());
                let why = failure.as_ref().err().map_or(String::new(), Failure::line);
                let place = (self.settings, self.source);
                let by = (&self.signer, self.clock.now());
                self.vault = match waiting::folder(place, by, &self.keys.trust).await {
                    Ok(folder) => folder,
                    Err(refusal) => {
                        return failure.map_err(|one| one.because_of(refusal.line()));
                    }
                };
                self.notes
                    .push(format!("the backup waits on this host: {why}"));
                self.is_waiting = true;
                return Box::pin(self.capture(opened, sealer, wishes)).await;
            }
            taken => taken.or_fail(what)?,
        };
        let warnings = captured.warnings.iter().cloned();
        self.notes
            .extend(warnings.filter(|one| !known.contains(one)));
        Ok(captured)
    }

    /// What is to be expected of the folder of waiting backups: the others are in the vault.
    async fn flaws_of_waiting(&self) -> Result<Vec<String>, Failure> {
        if !self.is_waiting {
            return Ok(Vec::new());
        }
        let catalog = self.catalog().await?;
        Ok(catalog.flaws.iter().map(ToString::to_string).collect())
    }

    /// The generation that the owner of the source writes, claimed at its first backup. An
    /// appliance whose source is another cluster, without consent, claims none: it is refused, and
    /// takes nothing from the one whose vault it is.
    async fn generation(
        &self,
        opened: &dyn Source,
        claimed: &Mutex<Option<Generation>>,
        newer_than: Option<Generation>,
        is_accepted: bool,
    ) -> Result<Option<Generation>, Failure> {
        let held = *claimed.lock();
        if held.is_some() && (newer_than.is_none() || held > newer_than) {
            return Ok(held);
        }
        if self.is_waiting {
            return waiting::last_claim(self.settings, self.source).map(Some);
        }
        let name = &self.source.name;
        let seen = opened.latest_revision().await;
        let seen = seen.or_fail(format!("no backup of `{name}` was taken"))?;
        let catalog = self.catalog().await?;
        // One that was taken over must not take it back: with its old generation it is refused.
        if held.is_some() && catalog.newest_generation() > held {
            return Ok(held);
        }
        let before = catalog
            .newest()
            .and_then(|newest| newest.manifest.source.cluster_id.as_ref());
        let is_another = before.is_some() && seen.cluster_id.is_some();
        if is_another && before != seen.cluster_id.as_ref() && !is_accepted {
            return Ok(None);
        }
        let generation = claim::claim(&self.vault, &catalog, self.clock.now(), &self.signer)
            .await
            .or_fail(format!("no generation of `{name}` was claimed"))?;
        *claimed.lock() = Some(generation);
        waiting::remember_claim(self.settings, self.source, generation)?;
        Ok(Some(generation))
    }

    /// Whether the source is a cluster that this host restored.
    async fn is_restored_here(&self, opened: &dyn Source) -> bool {
        let observed = opened
            .latest_revision()
            .await
            .ok()
            .and_then(|seen| seen.cluster_id);
        observed.is_some_and(|id| acceptance::is_accepted(self.settings, &self.source.name, &id))
    }

    /// Proves the new backup as far as the policy and the keys at hand allow.
    async fn prove(&mut self, captured: &Captured) -> Option<Proof> {
        let upto = self.settings.config.policies.backup.verify;
        let id = captured.manifest.id;
        match self.try_to_prove(id, upto).await {
            Ok(proof) => {
                self.notes
                    .extend(proof.flaws.iter().map(ToString::to_string));
                if proof.level < Some(upto) {
                    self.notes.extend(proof.evidence.notes.iter().cloned());
                }
                Some(proof)
            }
            Err(failure) => {
                self.notes.push(format!(
                    "the backup was stored and not proven: {}",
                    failure.line()
                ));
                None
            }
        }
    }

    async fn try_to_prove(&self, id: SnapshotId, upto: Level) -> Result<Proof, Failure> {
        let catalog = self.catalog().await?;
        let options = VerifyOptions {
            upto,
            now: self.clock.now(),
            work_dir: work_dir(self.settings)?,
        };
        let progress = self.meter.sink();
        let proof = verify(&self.vault, &catalog, id, &self.keys, &options, &progress)
            .await
            .or_fail(format!("the backup {id} was not verified"))?;
        proof::record(&self.vault, &proof, &self.signer)
            .await
            .or_fail(format!("the proof of {id} was not stored"))?;
        Ok(proof)
    }

    /// Keeps locked what retention keeps, where the vault has object lock.
    async fn lock(&mut self) {
        if self.vault.object_lock().is_none() {
            return;
        }
        let locked = match (
            self.vault.clock(&self.source.name).await,
            self.catalog().await,
        ) {
            (Ok(now), Ok(catalog)) => locks::keep_locked(&self.vault, &catalog, now).await,
            (Err(error), _) => {
                self.notes.push(format!("no lock was set: {error}"));
                return;
            }
            (_, Err(failure)) => {
                self.notes
                    .push(format!("no lock was set: {}", failure.line()));
                return;
            }
        };
        let refused = locked.refused.iter();
        self.notes
            .extend(refused.map(|(id, why)| format!("{id} is not locked: {why}")));
    }

    /// Lets go of what the rules release, after a newly verified backup only.
    async fn prune(&mut self, level: Option<Level>) -> Vec<SnapshotId> {
        if self.is_waiting {
            return Vec::new();
        }
        if level < Some(self.settings.config.policies.retention.count_from) {
            let counts = self.settings.config.policies.retention.count_from;
            let mut note =
                format!("nothing is pruned: the new backup does not count before {counts}");
            if self.keys.identities.is_none() && self.is_sealed {
                note.push_str(
                    "; without an identity here set `policies.retention.count_from: L0`, and \
                     `policies.drill.schedule: null`",
                );
            }
            self.notes.push(note);
            return Vec::new();
        }
        match self.try_to_prune().await {
            Ok(removed) => removed,
            Err(failure) => {
                self.notes
                    .push(format!("nothing was pruned: {}", failure.line()));
                Vec::new()
            }
        }
    }

    async fn try_to_prune(&mut self) -> Result<Vec<SnapshotId>, Failure> {
        let now = self.clock.now();
        let catalog = self.catalog().await?;
        let pruner = Pruner {
            settings: self.settings,
            vault: &self.vault,
            cluster: &self.source.name,
            signer: &self.signer,
            now,
        };
        let (_, pruned) = pruner.run(None).await?;
        let refused = pruned.refused.iter();
        self.notes
            .extend(refused.map(|(id, why)| format!("{id} stays: {why}")));
        self.notes.extend(pruned.left.iter().cloned());
        let by = (&self.signer, now);
        let deltas = release_deltas(self.settings, &self.vault, &self.source.name, by).await?;
        if deltas > 0 {
            self.notes.push(format!(
                "{deltas} deltas that no backup is followed by were removed"
            ));
        }
        let swept = prune::sweep_orphans(&self.vault, &catalog, now - ORPHAN_AGE)
            .await
            .or_fail("parts of no backup were not removed")?;
        if swept > 0 {
            self.notes
                .push(format!("{swept} parts of no backup were removed"));
        }
        Ok(pruned.trashed)
    }

    async fn catalog(&self) -> Result<Catalog, Failure> {
        vaults::catalog_in(
            &self.vault,
            self.settings,
            &self.source.name,
            &self.keys.trust,
        )
        .await
    }
}

/// A folder of this host for sealed spools.
pub(crate) fn work_dir(settings: &Settings) -> Result<PathBuf, Failure> {
    let dir = settings.data_dir().join("spool");
    keys::make_private_dir(&dir)?;
    Ok(dir)
}

fn ledger_file(settings: &Settings, source: &config::Source) -> Result<PathBuf, Failure> {
    let file = vaults::ledger_file(settings, &source.name);
    if let Some(dir) = file.parent() {
        keys::make_private_dir(dir)?;
    }
    Ok(file)
}

/// When the newest backup of `source` in the vault was begun.
pub(crate) fn last_start(catalog: &Catalog) -> Option<DateTime<Utc>> {
    catalog.newest().map(|backup| backup.manifest.started)
}
