//! The daemon: it owns every task, ends them together and says which one ended by itself.
//!
//! Order of the end: nothing new begins (schedulers, control socket, admin port), a run in progress
//! is dropped (killed at any point it leaves the vault whole), then the store stops.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::{Admin, Shared};
use crate::cli::dispatch::Context;
use crate::clock::Clock;
use crate::config::Settings;
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::jobs::board::Board;
use crate::jobs::{self, Doors, Shop};
use crate::stores::RunningStore;
use crate::{health, keys};

/// Longest wait for tasks to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the vault is read for the status page and the metrics, at least.
const EVIDENCE_PERIOD: Duration = Duration::from_mins(1);

/// A task's name and how it ended.
type Ended = (String, Result<(), Failure>);

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    tasks: JoinSet<Ended>,
    stop: CancellationToken,
    store: Option<RunningStore>,
    _lock: File,
}

impl Daemon {
    /// Starts everything the settings ask for.
    pub(crate) async fn start(settings: Settings, context: &Context) -> Result<Self, Failure> {
        keys::make_private_dir(&settings.data_dir())?;
        let lock = lock(&settings)?;
        if let Some(made) = keys::ensure(&settings)? {
            tracing::warn!(
                identity_file = %made.identity_file.display(),
                recipient = made.recipient.text(),
                "keys were made: keep a copy of the identity away from this host and the vault, \
                 without it the backups are lost"
            );
        }
        // Fail closed before anything is served.
        keys::recipients(&settings)?;
        keys::signer(&settings)?;
        let store = start_store(&settings).await?;
        let mut daemon = Self {
            tasks: JoinSet::new(),
            stop: CancellationToken::new(),
            store,
            _lock: lock,
        };
        match daemon.start_tasks(settings, context).await {
            Ok(()) => Ok(daemon),
            Err(failure) => {
                daemon.shut_down().await;
                Err(failure)
            }
        }
    }

    async fn start_tasks(&mut self, settings: Settings, context: &Context) -> Result<(), Failure> {
        let settings = Arc::new(settings);
        let board = Board::default();
        let (evidence, seen) = watch::channel(Vec::new());
        let (refresh, asked) = watch::channel(());
        let member = self.store.as_ref().map(RunningStore::member);
        if settings.config.appliance.admin.enabled {
            let shared = Shared {
                board: board.clone(),
                evidence: seen,
                member: member.clone(),
            };
            let admin = Admin::bind(&settings.config.appliance.admin.listen, shared).await?;
            tracing::info!(address = %admin.address()?, "status page, health and metrics");
            self.own("admin", admin.serve(self.stop.clone()));
        }
        let mut doors = Doors::default();
        let shop = Arc::new(Shop {
            settings: Arc::clone(&settings),
            clock: context.clock.clone(),
            global: context.global().clone(),
            member: member.clone(),
            board,
            refresh,
            rehearsing: tokio::sync::Mutex::default(),
        });
        for source in &settings.config.restore.sources {
            for (name, task) in shop.tasks(source, &mut doors, &self.stop).await? {
                self.own(&name, task);
            }
        }
        let listener = jobs::control::listen(&settings.data_dir())?;
        self.own(
            "control",
            jobs::answer_all(listener, doors, self.stop.clone()),
        );
        let stop = self.stop.clone();
        self.own(
            "evidence",
            keep_evidence(settings, context.clock.clone(), evidence, asked, stop),
        );
        if let Some(member) = member {
            let stop = self.stop.clone();
            self.own("store", async move {
                tokio::select! {
                    () = stop.cancelled() => Ok(()),
                    reason = member.failed() => Err(Failure::new(
                        ErrorName::Unavailable, "the bundled store cannot go on").because_of(reason)),
                }
            });
        }
        Ok(())
    }

    /// Waits for SIGTERM or SIGINT, or for a task that ends by itself, and ends everything.
    pub(crate) async fn run_until_told_to_stop(mut self) -> Result<ExitCode, Failure> {
        let mut terminate = signal(SignalKind::terminate()).or_fail("signals cannot be heard")?;
        let mut interrupt = signal(SignalKind::interrupt()).or_fail("signals cannot be heard")?;
        tracing::info!("holdfast is up");
        let failure = tokio::select! {
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
            ended = self.tasks.join_next() => Some(told(ended)),
        };
        match &failure {
            None => tracing::info!("stopping as told"),
            Some(failure) => tracing::error!(failure = failure.line(), "stopping"),
        }
        self.shut_down().await;
        match failure {
            None => Ok(ExitCode::Done),
            Some(failure) => Err(failure),
        }
    }

    async fn shut_down(mut self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(STOP_TIMEOUT, async {
            while let Some(ended) = self.tasks.join_next().await {
                if let Ok((name, Err(failure))) = ended {
                    tracing::error!(task = name, failure = failure.line(), "a task ended badly");
                }
            }
        });
        if ended.await.is_err() {
            tracing::warn!("some tasks did not end in time and were dropped");
            self.tasks.abort_all();
        }
        if let Some(store) = self.store.take()
            && let Err(failure) = store.stop().await
        {
            tracing::error!(failure = failure.line(), "the store did not stop in order");
        }
    }

    fn own(
        &mut self,
        name: &str,
        task: impl Future<Output = Result<(), Failure>> + Send + 'static,
    ) {
        let name = name.to_owned();
        self.tasks.spawn(async move { (name, task.await) });
    }
}

/// One daemon on a data directory.
fn lock(settings: &Settings) -> Result<File, Failure> {
    let path = settings.data_dir().join("daemon.lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .or_fail(format!("the lock {} cannot be opened", path.display()))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
        Failure::new(
            ErrorName::InUse,
            format!("another daemon works in {}", settings.data_dir().display()),
        )
        .because(&error)
        .next("stop it, or set `appliance.data_dir` to another folder")
    })?;
    Ok(file)
}

async fn start_store(settings: &Settings) -> Result<Option<RunningStore>, Failure> {
    if !settings.config.store.enabled {
        return Ok(None);
    }
    RunningStore::start(settings).await.map(Some)
}

/// Why the daemon stops although nobody told it to.
fn told(ended: Option<Result<Ended, tokio::task::JoinError>>) -> Failure {
    match ended {
        Some(Ok((name, Err(failure)))) => failure.because_of(format!("the task `{name}` ended")),
        Some(Ok((name, Ok(())))) => Failure::new(
            ErrorName::Unexpected,
            format!("the task `{name}` ended by itself"),
        ),
        Some(Err(error)) => Failure::unexpected("a task broke off", &error),
        None => Failure::new(ErrorName::Usage, "there is nothing to run")
            .next("enable the store, or name a source"),
    }
}

/// Reads the vault after each job and every minute.
async fn keep_evidence(
    settings: Arc<Settings>,
    clock: Clock,
    evidence: watch::Sender<Vec<health::SourceStatus>>,
    mut asked: watch::Receiver<()>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    loop {
        let mut all = Vec::new();
        for source in &settings.config.restore.sources {
            match health::gather(&settings, source, clock.now()).await {
                Ok(status) => all.push(status),
                Err(failure) => {
                    let (source, failure) = (source.name.as_str(), failure.line());
                    tracing::warn!(
                        source,
                        failure,
                        "the vault was not read for the status page"
                    );
                }
            }
        }
        evidence.send_replace(all);
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(EVIDENCE_PERIOD) => {}
            Ok(()) = asked.changed() => {}
        }
    }
}
