//! The daemon: it owns every task, ends them together and says which one ended by itself.
//!
//! Order of the end: nothing new begins (schedulers, control socket, admin port), a run in progress
//! is dropped (killed at any point it leaves the vault whole), then the store stops.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use holdfast_restore::source::SourceSpec;
use rustix::fs::{FlockOperation, flock};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::{Admin, Shared};
use crate::cli::dispatch::Context;
use crate::config::Settings;
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::jobs::board::Board;
use crate::jobs::{self, Doors, Shop, acceptance, turn};
use crate::stores::{RunningStore, lost};
use crate::{evidence, keys};

/// Longest wait for tasks to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// Starts everything the settings ask for. A bundled store that has backups and is not there is
    /// refused, unless a new cluster is accepted in its place.
    pub(crate) async fn start(
        settings: Settings,
        context: &Context,
        accept_new_cluster: bool,
    ) -> Result<Self, Failure> {
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
        let is_successor = lost::check(&settings, accept_new_cluster).await?;
        // Before the store serves: whoever finds that up finds the daemon too. What is asked
        // meanwhile waits.
        let listener = jobs::control::listen(&settings.data_dir())?;
        let store = start_store(&settings).await?;
        if let Some(store) = store.as_ref().filter(|_| is_successor) {
            accept(&settings, store)?;
        }
        let mut daemon = Self {
            tasks: JoinSet::new(),
            stop: CancellationToken::new(),
            store,
            _lock: lock,
        };
        match daemon.start_tasks(settings, listener, context).await {
            Ok(()) => Ok(daemon),
            Err(failure) => {
                daemon.shut_down().await;
                Err(failure)
            }
        }
    }

    async fn start_tasks(
        &mut self,
        settings: Settings,
        listener: UnixListener,
        context: &Context,
    ) -> Result<(), Failure> {
        let settings = Arc::new(settings);
        let board = Board::default();
        let (told, seen) = watch::channel(Vec::new());
        let (refresh, asked) = watch::channel(());
        let member = self.store.as_ref().map(RunningStore::member);
        let (turns, turn) = watch::channel(turn::first(member.as_ref()));
        let stop = self.stop.clone();
        self.own("turn", turn::follow(member.clone(), turns, stop));
        if settings.config.appliance.admin.enabled {
            let shared = Shared {
                board: board.clone(),
                evidence: seen,
                turn: turn.clone(),
                member: member.clone(),
            };
            let admin = Admin::bind(&settings.config.appliance.admin.listen, shared).await?;
            tracing::info!(address = %admin.address()?, "status page, health and metrics");
            self.own("admin", admin.serve(self.stop.clone()));
        }
        let (stop, clock) = (self.stop.clone(), context.clock.clone());
        let checks = jobs::checkup::keep(
            Arc::clone(&settings),
            clock,
            board.clone(),
            refresh.clone(),
            stop,
        );
        self.own("check", checks);
        let mut doors = Doors::new(turn.clone(), board.clone());
        let shop = Arc::new(Shop {
            settings: Arc::clone(&settings),
            clock: context.clock.clone(),
            global: context.global().clone(),
            member: member.clone(),
            turn,
            board: board.clone(),
            refresh,
            stored: watch::Sender::new(()),
            rehearsing: tokio::sync::Mutex::default(),
        });
        for source in &settings.config.restore.sources {
            for (name, task) in shop.tasks(source, &mut doors, &self.stop).await? {
                self.own(&name, task);
            }
        }
        self.own(
            "control",
            jobs::answer_all(listener, doors, Arc::clone(&settings), self.stop.clone()),
        );
        let stop = self.stop.clone();
        self.own(
            "evidence",
            evidence::keep(settings, context.clock.clone(), board, (told, asked), stop),
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

/// The backups of the bundled source go on with this store's cluster.
fn accept(settings: &Settings, store: &RunningStore) -> Result<(), Failure> {
    let id = store.member().cluster_id();
    let sources = &settings.config.restore.sources;
    let bundled = sources.iter().find(|one| one.kind == SourceSpec::Bundled);
    bundled.map_or(Ok(()), |source| {
        tracing::warn!(
            source = source.name.as_str(),
            cluster_id = format!("{id:x}"),
            "an empty store takes the place of the one in the vault, as told"
        );
        acceptance::accept(settings, &source.name, id)
    })
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
