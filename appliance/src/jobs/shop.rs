//! The jobs of the daemon: one backup job and one drill job for each source, each with a door for
//! requests from outside.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use holdfast_policies::{Generation, Pool};
use holdfast_restore::office::Office;
use parking_lot::Mutex;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::backup::{self, BackupOutcome, Wishes};
use super::board::Board;
use super::consolidation;
use super::control::{self, Answer, Ask};
use super::copies;
use super::drill::{self, DrillOutcome};
use super::scheduler::{self, Ended, Plan, REQUESTS_MAX};
use super::turn::{self, Turn};
use super::waiting;
use crate::cli::args::Global;
use crate::clock::Clock;
use crate::config::{Settings, Source};
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::progress::Meter;
use crate::stores::RunningMember;
use crate::{keys, sources, vaults};

/// Connections to the control socket served at once.
const CONNECTIONS_MAX: usize = 16;

/// What every job works with.
#[derive(Debug)]
pub(crate) struct Shop {
    /// The settings, read once at start.
    pub(crate) settings: Arc<Settings>,
    /// What time it is.
    pub(crate) clock: Clock,
    /// The flags to hand on to children.
    pub(crate) global: Global,
    /// The bundled store, where there is one.
    pub(crate) member: Option<RunningMember>,
    /// Whose turn it is to run the jobs.
    pub(crate) turn: watch::Receiver<Turn>,
    /// What the jobs did.
    pub(crate) board: Board,
    /// Asks for the vault to be read again.
    pub(crate) refresh: watch::Sender<()>,
    /// Told when something new is in the first vault, for whoever copies it.
    pub(crate) stored: watch::Sender<()>,
    /// Held by the drill that runs: those of several sources fall due at the same moment and take
    /// turns, for two at once would measure each other.
    pub(crate) rehearsing: tokio::sync::Mutex<()>,
}

/// A backup asked for from outside.
#[derive(Debug)]
pub(crate) struct BackupRequest {
    accept_new_cluster: bool,
    reply: oneshot::Sender<BackupOutcome>,
}

/// Where requests from outside go, by source.
#[derive(Debug)]
pub(crate) struct Doors {
    turn: watch::Receiver<Turn>,
    board: Board,
    backups: BTreeMap<String, mpsc::Sender<BackupRequest>>,
    drills: BTreeMap<String, mpsc::Sender<oneshot::Sender<DrillOutcome>>>,
}

/// A task of the daemon and its name.
type Task = (String, BoxFuture<'static, Result<(), Failure>>);

impl Shop {
    /// The tasks of one source; their doors are added to `doors`.
    pub(crate) async fn tasks(
        self: &Arc<Self>,
        source: &Source,
        doors: &mut Doors,
        stop: &CancellationToken,
    ) -> Result<Vec<Task>, Failure> {
        // What cannot be used is told now, not first when it is this daemon's turn.
        self.plans(source).await?;
        let (name, source) = (source.name.to_string(), Arc::new(source.clone()));
        let (door, requests) = mpsc::channel(REQUESTS_MAX);
        doors.backups.insert(name.clone(), door);
        let (shop, of) = (Arc::clone(self), Arc::clone(&source));
        let backups = shop.back_up(of, requests, stop.clone());
        let (door, requests) = mpsc::channel(REQUESTS_MAX);
        doors.drills.insert(name.clone(), door);
        let merges = consolidation::watch_over(Arc::clone(self), Arc::clone(&source), stop.clone());
        let drills = Arc::clone(self).rehearse(Arc::clone(&source), requests, stop.clone());
        let mut tasks: Vec<Task> = vec![
            (format!("backup/{name}"), Box::pin(backups)),
            (format!("drill/{name}"), Box::pin(drills)),
            (format!("consolidation/{name}"), Box::pin(merges)),
        ];
        let (shop, of) = (Arc::clone(self), Arc::clone(&source));
        let handed = waiting::keep(shop, of, stop.clone());
        tasks.push((format!("{}/{name}", waiting::KIND), Box::pin(handed)));
        for copy in &self.settings.config.restore.copies {
            let place = copies::place(&name, copy.name.as_str());
            let (shop, source) = (Arc::clone(self), Arc::clone(&source));
            let kept = copies::keep(shop, source, copy.clone(), stop.clone());
            tasks.push((format!("{}/{place}", copies::KIND), Box::pin(kept)));
        }
        Ok(tasks)
    }

    /// When the jobs of a source run. The vault says when they last did; one that does not answer
    /// now must not keep the store from starting.
    async fn plans(&self, source: &Source) -> Result<(Plan, Plan), Failure> {
        let policies = self.settings.policies()?;
        let invalid = "the schedule cannot be used";
        let since = self.clock.now();
        let (last_backup, last_drill) = match self.last_starts(source).await {
            Ok(last) => last,
            Err(failure) if failure.name() == ErrorName::NoBackup => (None, None),
            Err(failure) => {
                let (source, failure) = (source.name.as_str(), failure.line());
                tracing::warn!(
                    source,
                    failure,
                    "the vault does not say when the last backup was"
                );
                (None, None)
            }
        };
        let backup = Plan {
            schedule: policies.backup.schedule().or_fail(invalid)?,
            missed: policies.backup.missed_run,
            since,
            last_start: last_backup,
        };
        let drill = Plan {
            schedule: policies.drill.schedule().or_fail(invalid)?,
            missed: policies.drill.missed_run,
            since,
            last_start: last_drill,
        };
        Ok((backup, drill))
    }

    async fn last_starts(&self, source: &Source) -> Result<(Moment, Moment), Failure> {
        let trust = keys::trust(&self.settings)?;
        let vault = vaults::read(&self.settings).await?;
        let catalog = vaults::catalog_in(&vault, &self.settings, &source.name, &trust).await?;
        let reports = drill::reports(&vault, &source.name, &trust).await?;
        Ok((
            backup::last_start(&catalog),
            reports.first().map(|one| one.started),
        ))
    }

    async fn back_up(
        self: Arc<Self>,
        source: Arc<Source>,
        mut requests: mpsc::Receiver<BackupRequest>,
        stop: CancellationToken,
    ) -> Result<(), Failure> {
        let entry = self.board.entry("backup", source.name.as_str());
        let refuse = |request: BackupRequest, why| drop(request.reply.send(Err(why)));
        let mut turn = self.turn.clone();
        while let Some(held) = turn::next(&mut turn, &mut requests, refuse, &stop).await {
            let (plan, _) = self.plans(&source).await?;
            let shift = stop.child_token();
            // Each turn claims a generation of its own.
            let claimed = Arc::new(Mutex::new(None));
            let office = held.office(self.member.as_ref());
            let (shop, of, until) = (Arc::clone(&self), Arc::clone(&source), shift.clone());
            let work = move |request| {
                let (shop, source, office) = (Arc::clone(&shop), Arc::clone(&of), office.clone());
                let (claimed, until) = (Arc::clone(&claimed), until.clone());
                let work = move || async move {
                    tokio::select! {
                        () = until.cancelled() => Ended::broken("the daemon stopped or stands by"),
                        ended = shop.backup_run(&source, request, &claimed, office) => ended,
                    }
                };
                let on_its_thread: BoxFuture<'static, Ended> = Box::pin(on_a_thread(work));
                on_its_thread
            };
            let (clock, place) = (self.clock.clone(), entry.clone());
            let runs = scheduler::run(plan, clock, place, shift.clone(), &mut requests, work);
            turn::during(&mut turn, &held, &shift, runs).await;
            entry.stand_by();
        }
        Ok(())
    }

    async fn backup_run(
        &self,
        source: &Source,
        request: Option<BackupRequest>,
        claimed: &Mutex<Option<Generation>>,
        office: Option<Arc<dyn Office>>,
    ) -> Ended {
        let wishes = Wishes {
            accept_new_cluster: request.as_ref().is_some_and(|one| one.accept_new_cluster),
            pool: match request {
                Some(_) => Pool::Manual,
                None => Pool::Scheduled,
            },
            claimed: Some(claimed),
            office: office.as_ref(),
            ..Wishes::default()
        };
        let outcome = self.one_backup(source, wishes).await;
        self.refresh.send_replace(());
        if outcome.as_ref().is_ok_and(|report| !report.is_waiting) {
            self.stored.send_replace(());
        }
        let ended = Ended::of(&outcome);
        if let Some(request) = request {
            // Whoever asked may have gone; the backup counts all the same.
            drop(request.reply.send(outcome));
        }
        ended
    }

    async fn one_backup(&self, source: &Source, wishes: Wishes<'_>) -> BackupOutcome {
        let opened = sources::open(&self.settings, source, self.member.as_ref())?;
        let meter = Meter::silent();
        let outcome = backup::run(
            &self.settings,
            source,
            opened.as_ref(),
            &self.clock,
            &meter,
            wishes,
        )
        .await;
        match &outcome {
            Ok(report) => {
                if report.is_waiting {
                    tracing::error!(
                        source = report.source, snapshot_id = %report.id,
                        "the vault cannot be reached: the backup waits on this host"
                    );
                }
                tracing::info!(
                    source = report.source, snapshot_id = %report.id, revision = report.revision,
                    level = report.level.map(tracing::field::display), seconds = report.seconds,
                    pruned = report.pruned.len(), "backup taken"
                );
                for note in &report.notes {
                    tracing::warn!(source = report.source, snapshot_id = %report.id, note, "backup note");
                }
            }
            Err(failure) => {
                let (source, failure) = (source.name.as_str(), failure.line());
                tracing::error!(source, failure, "no backup was taken");
            }
        }
        outcome
    }

    async fn rehearse(
        self: Arc<Self>,
        source: Arc<Source>,
        mut requests: mpsc::Receiver<oneshot::Sender<DrillOutcome>>,
        stop: CancellationToken,
    ) -> Result<(), Failure> {
        let entry = self.board.entry("drill", source.name.as_str());
        let refuse = |request: oneshot::Sender<DrillOutcome>, why| drop(request.send(Err(why)));
        let mut turn = self.turn.clone();
        while let Some(held) = turn::next(&mut turn, &mut requests, refuse, &stop).await {
            let (_, plan) = self.plans(&source).await?;
            let shift = stop.child_token();
            let (shop, of) = (Arc::clone(&self), Arc::clone(&source));
            let work = move |request| {
                let (shop, source) = (Arc::clone(&shop), Arc::clone(&of));
                let run: BoxFuture<'static, Ended> =
                    Box::pin(async move { shop.drill_run(&source, request).await });
                run
            };
            let (clock, place) = (self.clock.clone(), entry.clone());
            let runs = scheduler::run(plan, clock, place, shift.clone(), &mut requests, work);
            turn::during(&mut turn, &held, &shift, runs).await;
            entry.stand_by();
        }
        Ok(())
    }

    async fn drill_run(
        &self,
        source: &Source,
        request: Option<oneshot::Sender<DrillOutcome>>,
    ) -> Ended {
        let outcome = self.one_drill(source).await;
        self.refresh.send_replace(());
        let ended = Ended::of(&outcome);
        if let Some(request) = request {
            // Whoever asked may have gone; the drill counts all the same.
            drop(request.send(outcome));
        }
        ended
    }

    async fn one_drill(&self, source: &Source) -> DrillOutcome {
        let _turn = self.rehearsing.lock().await;
        let wishes = drill::Wishes {
            backup: None,
            newest_known: self.newest_known(source).await,
        };
        let outcome = drill::run(&self.settings, &self.global, source, &self.clock, wishes).await;
        let name = source.name.as_str();
        match &outcome {
            Ok(report) => {
                let line = drill::DrillWords::of(report).line();
                if drill::is_passed(report) {
                    tracing::info!(source = name, drill_id = %report.id, outcome = line, "drill");
                } else {
                    tracing::error!(source = name, drill_id = %report.id, outcome = line, "drill");
                }
            }
            Err(failure) => {
                tracing::error!(source = name, failure = failure.line(), "no drill was run");
            }
        }
        outcome
    }

    /// The newest revision of the source, where it answers soon.
    async fn newest_known(&self, source: &Source) -> Option<i64> {
        let opened = sources::open(&self.settings, source, self.member.as_ref()).ok()?;
        sources::newest_revision(opened.as_ref()).await
    }
}

/// Runs a backup on a thread of its own: what it does between two waits is heavy.
async fn on_a_thread<F>(work: impl FnOnce() -> F + Send + 'static) -> Ended
where
    F: Future<Output = Ended>,
{
    let runtime = tokio::runtime::Handle::current();
    let running = tokio::task::spawn_blocking(move || runtime.block_on(work()));
    running
        .await
        .unwrap_or_else(|error| Ended::broken(&error.to_string()))
}

type Moment = Option<chrono::DateTime<chrono::Utc>>;

/// Answers the control socket until `stop`.
pub(crate) async fn answer_all(
    listener: UnixListener,
    doors: Doors,
    settings: Arc<Settings>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let doors = Arc::new(doors);
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(_ended) = open.join_next() => {}
            accepted = listener.accept(), if open.len() < CONNECTIONS_MAX => {
                let (stream, _) = accepted.or_fail("the control socket does not accept")?;
                open.spawn(answer_one(stream, Arc::clone(&doors), Arc::clone(&settings)));
            }
        }
    }
}

async fn answer_one(mut stream: UnixStream, doors: Arc<Doors>, settings: Arc<Settings>) {
    let answer = match control::receive(&mut stream).await {
        Ok(request) => match request.check(&settings) {
            Ok(()) => doors.pass(request.ask).await.unwrap_or_else(Answer::Failed),
            Err(failure) => Answer::Failed(failure),
        },
        Err(failure) => Answer::Failed(failure),
    };
    if let Err(failure) = control::reply(&mut stream, &answer).await {
        tracing::debug!(failure = failure.line(), "whoever asked is gone");
    }
}

impl Doors {
    /// No doors yet, whose turn it is, and what the jobs did.
    pub(crate) fn new(turn: watch::Receiver<Turn>, board: Board) -> Self {
        Self {
            turn,
            board,
            backups: BTreeMap::new(),
            drills: BTreeMap::new(),
        }
    }

    async fn pass(&self, ask: Ask) -> Result<Answer, Failure> {
        match ask {
            Ask::Turn => Ok(Answer::Turn(self.turn.borrow().clone())),
            Ask::Failing => Ok(Answer::Failing(self.board.failing())),
            Ask::Backup {
                source,
                accept_new_cluster,
            } => {
                let (reply, answer) = oneshot::channel();
                let request = BackupRequest {
                    accept_new_cluster,
                    reply,
                };
                hand_in(self.backups.get(&source), &source, request)?;
                let outcome: BackupOutcome = answer.await.map_err(|_gone| stopping())?;
                outcome.map(|report| Answer::Backup(Box::new(report)))
            }
            Ask::Drill { source } => {
                let (reply, answer) = oneshot::channel();
                hand_in(self.drills.get(&source), &source, reply)?;
                let outcome: DrillOutcome = answer.await.map_err(|_gone| stopping())?;
                outcome.map(|report| Answer::Drill(Box::new(report)))
            }
        }
    }
}

fn hand_in<T>(door: Option<&mpsc::Sender<T>>, source: &str, request: T) -> Result<(), Failure> {
    let door = door.ok_or_else(|| {
        Failure::new(
            ErrorName::NotFound,
            format!("the daemon has no source `{source}`"),
        )
        .next("restart it when its configuration was changed")
    })?;
    door.try_send(request).map_err(|_full| {
        Failure::new(
            ErrorName::InUse,
            format!("too many requests wait for `{source}`"),
        )
        .next("wait for the runs in progress")
    })
}

fn stopping() -> Failure {
    Failure::new(
        ErrorName::Unavailable,
        "the daemon is stopping, or another one has become the active one",
    )
}
