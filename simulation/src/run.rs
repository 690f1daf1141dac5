//! One simulation, from an empty cluster to a verdict.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use holdfast_store::member::Member;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tempfile::TempDir;
use turmoil::Sim;

use crate::clients::Book;
use crate::disk::Disk;
use crate::faults::{self, DELAY_DEFAULT, Fault, Planned};
use crate::history::{self, History, Summary, calls};
use crate::host::{self, Seat, World, name};
use crate::invariants::{Place, Sight};
use crate::observer::Observer;

/// One step of simulated time.
const TICK: Duration = Duration::from_millis(1);
/// Segments on their way on one connection.
const CONNECTION_SEGMENTS_MAX: usize = 1 << 16;
/// A cluster without faults serves on all members within this time.
const SETTLE_MAX: Duration = Duration::from_mins(1);
/// Operations that must be answered once everything is mended.
const PROGRESS: u64 = 50;
/// All requests have their answer within this time, and all members the same state.
const REST_MAX: Duration = Duration::from_secs(30);
/// The revision of a new store.
const BASE_REVISION: i64 = 1;

/// What a simulation is made of; all of it follows from the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The seed.
    pub seed: u64,
    /// Members of the cluster.
    pub members: usize,
    /// Clients of each.
    pub clients: usize,
    /// Entries after which a log is purged, and how many are kept behind that.
    pub log_entries: (u64, u64),
    /// When the first fault may come.
    pub faults_from: Duration,
    /// When everything is mended.
    pub faults_to: Duration,
}

impl Settings {
    /// Those of `seed`.
    pub fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0x5e77_1265);
        let faults_from = Duration::from_millis(random.random_range(0..4000));
        Self {
            seed,
            members: if random.random_bool(0.6) { 3 } else { 5 },
            clients: random.random_range(1..4),
            // Short logs strand members that were away: they need a snapshot.
            log_entries: if random.random_bool(0.5) {
                (random.random_range(20..200), random.random_range(1..50))
            } else {
                (10_000, 5_000)
            },
            faults_from,
            faults_to: faults_from + Duration::from_secs(20),
        }
    }
}

/// What a simulation without a violation did.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Simulated time.
    pub simulated: Duration,
    /// Crashes of members.
    pub crashes: u64,
    /// What the clients' history held.
    pub history: Summary,
}

/// What must not be.
#[derive(Debug)]
pub struct Violation {
    /// The seed it was found with.
    pub seed: u64,
    /// What it is.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {0}: {1}\nagain, most likely: HOLDFAST_SEED={0} cargo test -p \
             holdfast-simulation --test it seeds -- --ignored",
            self.seed, self.what
        )
    }
}

impl std::error::Error for Violation {}

/// Runs the simulation of `settings`.
///
/// # Errors
/// The first violation seen.
pub fn run(settings: Settings) -> Result<Outcome, Violation> {
    let blame = |what: String| Violation {
        seed: settings.seed,
        what,
    };
    let mut run = Run::new(settings).map_err(|error| blame(error.to_string()))?;
    let result = run.all();
    // What was seen first tells more than what came of it.
    match (run.world.observer.violation(), result) {
        (Some(what), _) | (None, Err(what)) => Err(blame(what)),
        (None, Ok(outcome)) => Ok(outcome),
    }
}

struct Run<'sim> {
    settings: Settings,
    world: Arc<World>,
    sim: Sim<'sim>,
    root: TempDir,
    crashes: u64,
}

/// A folder in memory, where there is one.
fn fast_folder() -> io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        return TempDir::new_in(memory);
    }
    TempDir::new()
}

impl Run<'_> {
    fn new(settings: Settings) -> io::Result<Self> {
        let root = fast_folder()?;
        let seats = (0..settings.members).map(|place| {
            let folder = root.path().join(format!("{place}-0"));
            std::fs::create_dir_all(&folder)?;
            Ok(Mutex::new(Seat {
                disk: Disk::new(&folder, disk_seed(settings.seed, place, 0))?,
                folder,
                starts: 0,
                member: None,
                is_ready: false,
                is_up: true,
            }))
        });
        let observer = Arc::new(Observer::default());
        let world = Arc::new(World {
            seed: settings.seed,
            clients: settings.clients,
            log_entries: settings.log_entries,
            book: Arc::new(Book::new(Arc::clone(&observer))),
            observer,
            seats: seats.collect::<io::Result<_>>()?,
        });
        let mut sim = turmoil::Builder::new()
            .rng_seed(settings.seed)
            .epoch(UNIX_EPOCH)
            .simulation_duration(Duration::MAX)
            .tick_duration(TICK)
            .min_message_latency(Duration::ZERO)
            .max_message_latency(DELAY_DEFAULT)
            .tcp_capacity(CONNECTION_SEGMENTS_MAX)
            .enable_random_order()
            .build();
        for place in 0..settings.members {
            let world = Arc::clone(&world);
            sim.host(name(place), move || host::run(Arc::clone(&world), place));
        }
        Ok(Self {
            settings,
            world,
            sim,
            root,
            crashes: 0,
        })
    }

    fn all(&mut self) -> Result<Outcome, String> {
        let Settings {
            seed,
            members,
            faults_from,
            faults_to,
            ..
        } = self.settings;
        let mut faults = faults::plan(seed, members, faults_from, faults_to).into_iter();
        let mut next = faults.next();
        while self.sim.elapsed() < faults_to || next.is_some() {
            while let Some(Planned { at, fault }) = next
                && at <= self.sim.elapsed()
            {
                self.inflict(fault)?;
                next = faults.next();
            }
            self.step()?;
        }
        self.settle()?;
        self.judge()
    }

    fn step(&mut self) -> Result<(), String> {
        self.sim.step().map_err(|error| error.to_string())?;
        for place in 0..self.settings.members {
            let is_lost = {
                let seat = self.world.seat(place).lock();
                seat.is_up && seat.disk.is_off()
            };
            if is_lost {
                self.crash(place)?;
            }
        }
        match self.world.observer.violation() {
            Some(what) => Err(what),
            None => Ok(()),
        }
    }

    fn inflict(&mut self, fault: Fault) -> Result<(), String> {
        tracing::info!(?fault, at = ?self.sim.elapsed(), "a fault");
        match fault {
            Fault::Crash(place) => self.crash(place)?,
            Fault::CrashInSync(place, syncs) => {
                self.world.seat(place).lock().disk.fail_after(syncs);
            }
            Fault::Restart(place) => self.restart(place),
            Fault::Cut(a, b) => self.sim.partition(name(a), name(b)),
            Fault::CutOneWay(a, b) => self.sim.partition_oneway(name(a), name(b)),
            Fault::Mend(a, b) => self.sim.repair(name(a), name(b)),
            Fault::Hold(a, b) => self.sim.hold(name(a), name(b)),
            Fault::Release(a, b) => self.sim.release(name(a), name(b)),
            Fault::Delay(delay) => self.sim.set_max_message_latency(delay),
        }
        Ok(())
    }

    fn crash(&mut self, place: Place) -> Result<(), String> {
        let failed = |error: io::Error| format!("the simulated disk failed: {error}");
        let old: PathBuf;
        {
            let mut seat = self.world.seat(place).lock();
            if !seat.is_up {
                return Ok(());
            }
            let starts = seat.starts + 1;
            let folder = self.root.path().join(format!("{place}-{starts}"));
            seat.disk.crash(&seat.folder, &folder).map_err(failed)?;
            let seed = disk_seed(self.settings.seed, place, starts);
            seat.disk = Disk::new(&folder, seed).map_err(failed)?;
            old = std::mem::replace(&mut seat.folder, folder);
            seat.starts = starts;
            seat.member = None;
            seat.is_ready = false;
            seat.is_up = false;
        }
        self.crashes += 1;
        self.sim.crash(name(place));
        std::fs::remove_dir_all(old).map_err(failed)
    }

    fn restart(&mut self, place: Place) {
        {
            let mut seat = self.world.seat(place).lock();
            seat.disk.never_fail();
            if std::mem::replace(&mut seat.is_up, true) {
                return;
            }
        }
        self.sim.bounce(name(place));
    }

    /// Steps until `is_done`, for at most `patience`.
    fn until(
        &mut self,
        patience: Duration,
        what: &str,
        is_done: impl Fn(&World) -> bool,
    ) -> Result<(), String> {
        let end = self.sim.elapsed() + patience;
        while !is_done(&self.world) {
            if self.sim.elapsed() > end {
                return Err(format!("{what}, {patience:?} after the last fault"));
            }
            self.step()?;
        }
        Ok(())
    }

    /// From the last fault to a cluster at rest: it must serve again, and all members agree.
    fn settle(&mut self) -> Result<(), String> {
        for place in 0..self.settings.members {
            self.restart(place);
        }
        self.until(SETTLE_MAX, "a member is not ready", |world| {
            world.seats.iter().all(|seat| seat.lock().is_ready)
        })?;
        let goal = self.world.book.answered() + PROGRESS;
        self.until(SETTLE_MAX, "clients get no answers", |world| {
            world.book.answered() >= goal
        })?;
        self.world.book.close();
        self.until(REST_MAX, "a client waits for an answer", |world| {
            !world.book.is_waiting()
        })?;
        self.until(REST_MAX, "the members differ", |world| {
            let members = members(world);
            let mut applied = members.iter().map(|member| member.state().applied());
            let first = applied.next();
            applied.all(|at| Some(at) == first)
        })
    }

    fn judge(&self) -> Result<Outcome, String> {
        let mut history = History {
            base: BASE_REVISION,
            ..History::default()
        };
        for (place, member) in members(&self.world).into_iter().enumerate() {
            host::look_at_state(&self.world, place, member.state());
            let newest = member.state().revision();
            let events = member.state().events(BASE_REVISION + 1, newest, usize::MAX);
            let events = events.map_err(|error| error.to_string())?.events;
            self.world.observer.see(&Sight::Finished {
                member: place,
                events: &events,
            });
            history.events = events
                .iter()
                .filter_map(|change| calls::event(change).ok())
                .collect();
        }
        (history.operations, history.leases) = self.world.book.entries();
        let summary = history::check(&history).map_err(|error| error.to_string())?;
        Ok(Outcome {
            simulated: self.sim.elapsed(),
            crashes: self.crashes,
            history: summary,
        })
    }
}

fn members(world: &World) -> Vec<Member> {
    let members = world.seats.iter();
    members
        .filter_map(|seat| seat.lock().member.clone())
        .collect()
}

fn disk_seed(seed: u64, place: Place, starts: u64) -> u64 {
    let place = u64::try_from(place).unwrap_or(0);
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (place << 56) ^ starts
}
