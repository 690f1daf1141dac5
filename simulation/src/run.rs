//! One simulation, from an empty cluster to a verdict.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::Mutex;
use tempfile::TempDir;
use turmoil::Sim;

use crate::clients::Book;
use crate::disk::Disk;
use crate::faults::{self, DELAY_DEFAULT, Fault, Planned};
use crate::history::Nanos;
use crate::host;
use crate::invariants::{Place, Sight};
use crate::observer::Observer;
use crate::settings::{Control, Settings};
use crate::verdict::{Outcome, Violation, judge};
use crate::world::{Role, Seat, World, name};

/// One step of simulated time.
const TICK: Duration = Duration::from_millis(1);
/// Segments on their way on one connection.
const CONNECTION_SEGMENTS_MAX: usize = 1 << 16;
/// Steps between two looks at who the members are.
const ROSTER_TURN: u64 = 50;
/// A cluster without faults serves on all members within this time.
const SETTLE_MAX: Duration = Duration::from_mins(1);
/// Operations that must be answered once everything is mended.
const PROGRESS: u64 = 50;
/// All requests have their answer within this time, and all members the same state.
const REST_MAX: Duration = Duration::from_secs(30);
/// Watches have seen everything this long after the last change.
const WATCH_MAX: Duration = Duration::from_secs(2);

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
    steps: u64,
    crashes: u64,
    joined: u64,
}

/// A folder in memory, where there is one.
fn fast_folder() -> io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        return TempDir::new_in(memory);
    }
    TempDir::new()
}

fn failed(error: &io::Error) -> String {
    format!("the simulated disk failed: {error}")
}

impl Run<'_> {
    fn new(settings: Settings) -> io::Result<Self> {
        let root = fast_folder()?;
        let seats = (0..settings.members + settings.spares).map(|place| {
            let folder = root.path().join(format!("{place}-0"));
            std::fs::create_dir_all(&folder)?;
            let is_founder = place < settings.members;
            Ok(Mutex::new(Seat {
                disk: Disk::new(&folder, disk_seed(settings.seed, place, 0))?,
                folder,
                starts: 0,
                role: if is_founder {
                    Role::Founder
                } else {
                    Role::Spare
                },
                id: None,
                member: None,
                is_ready: false,
                is_up: is_founder,
                has_ended: false,
            }))
        });
        let observer = Arc::new(Observer::default());
        let world = Arc::new(World {
            settings,
            book: Arc::new(Book::new(Arc::clone(&observer), settings.is_skewed)),
            observer,
            watches: Arc::default(),
            roster: Mutex::default(),
            orders: Mutex::default(),
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
        for place in 0..world.seats.len() {
            let world = Arc::clone(&world);
            sim.host(name(place), move || host::run(Arc::clone(&world), place));
        }
        Ok(Self {
            settings,
            world,
            sim,
            root,
            steps: 0,
            crashes: 0,
            joined: 0,
        })
    }

    fn all(&mut self) -> Result<Outcome, String> {
        let mut faults = planned(&self.settings).into_iter();
        let mut next = faults.next();
        while self.sim.elapsed() < self.settings.faults_to || next.is_some() {
            while let Some(Planned { at, fault }) = next
                && at <= self.sim.elapsed()
            {
                self.inflict(fault)?;
                next = faults.next();
            }
            self.step()?;
        }
        self.settle()?;
        let outcome = judge(&self.world)?;
        Ok(Outcome {
            crashes: self.crashes,
            joined: self.joined,
            ..outcome
        })
    }

    fn step(&mut self) -> Result<(), String> {
        let now = Nanos::try_from(self.sim.elapsed().as_nanos()).unwrap_or(Nanos::MAX);
        self.world.observer.set_now(now);
        self.sim.step().map_err(|error| error.to_string())?;
        self.steps += 1;
        for place in 0..self.world.seats.len() {
            let is_lost = {
                let seat = self.world.seat(place).lock();
                seat.is_up && seat.disk.is_off()
            };
            if is_lost {
                self.crash(place)?;
            }
        }
        if self.steps.is_multiple_of(ROSTER_TURN) {
            for (id, place) in self.world.hear() {
                self.begin_anew(place, id)?;
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
            Fault::Lie(place) => self.world.seat(place).lock().disk.lie(),
            Fault::Change(intent) => self.world.orders.lock().push_back(intent),
            Fault::StartEnded => self.start_ended(),
        }
        Ok(())
    }

    /// Takes the seat's data directory, as a crash leaves it or empty.
    fn change_folder(&mut self, place: Place, is_kept: bool) -> io::Result<PathBuf> {
        let mut seat = self.world.seat(place).lock();
        let starts = seat.starts + 1;
        let folder = self.root.path().join(format!("{place}-{starts}"));
        if is_kept {
            seat.disk.crash(&seat.folder, &folder)?;
        } else {
            std::fs::create_dir_all(&folder)?;
        }
        let seed = disk_seed(self.settings.seed, place, starts);
        seat.disk = Disk::new(&folder, seed)?;
        seat.starts = starts;
        seat.member = None;
        seat.is_ready = false;
        seat.is_up = false;
        seat.has_ended = false;
        Ok(std::mem::replace(&mut seat.folder, folder))
    }

    fn crash(&mut self, place: Place) -> Result<(), String> {
        if !self.world.seat(place).lock().is_up {
            return Ok(());
        }
        let has_ended = self.world.seat(place).lock().has_ended;
        let old = self.change_folder(place, true);
        let old = old.map_err(|error| failed(&error))?;
        self.world.seat(place).lock().has_ended = has_ended;
        self.crashes += 1;
        self.sim.crash(name(place));
        std::fs::remove_dir_all(old).map_err(|error| failed(&error))
    }

    fn restart(&mut self, place: Place) {
        {
            let mut seat = self.world.seat(place).lock();
            seat.disk.never_fail();
            if seat.role == Role::Spare || seat.has_ended {
                return;
            }
            if std::mem::replace(&mut seat.is_up, true) {
                return;
            }
        }
        self.sim.bounce(name(place));
    }

    /// Starts the member `id`, that was added, on the host that has its address.
    fn begin_anew(&mut self, place: Place, id: u64) -> Result<(), String> {
        tracing::info!(place, id, at = ?self.sim.elapsed(), "a member that was added begins");
        self.sim.crash(name(place));
        let old = self.change_folder(place, false);
        let old = old.map_err(|error| failed(&error))?;
        {
            let mut seat = self.world.seat(place).lock();
            seat.role = Role::Joiner;
            seat.id = Some(id);
            seat.is_up = true;
        }
        self.world.observer.see(&Sight::Emptied { member: place });
        self.joined += 1;
        self.sim.bounce(name(place));
        std::fs::remove_dir_all(old).map_err(|error| failed(&error))
    }

    /// Starts what was removed and has ended with the data it had.
    fn start_ended(&mut self) {
        for place in 0..self.world.seats.len() {
            let mut seat = self.world.seat(place).lock();
            if std::mem::replace(&mut seat.has_ended, false) {
                seat.is_up = true;
                drop(seat);
                self.sim.bounce(name(place));
            }
        }
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
                let seats = self.world.describe();
                return Err(format!(
                    "{what}, {patience:?} after the last fault: {seats}"
                ));
            }
            self.step()?;
        }
        Ok(())
    }

    /// From the last fault to a cluster at rest: it must serve again, and all members agree.
    fn settle(&mut self) -> Result<(), String> {
        self.world.orders.lock().clear();
        for place in 0..self.world.seats.len() {
            self.restart(place);
        }
        self.until(SETTLE_MAX, "a member is not ready", World::is_settled)?;
        let goal = self.world.book.answered() + PROGRESS;
        self.until(SETTLE_MAX, "clients get no answers", |world| {
            world.book.answered() >= goal
        })?;
        self.world.book.close();
        self.until(REST_MAX, "a client waits for an answer", |world| {
            !world.book.is_waiting()
        })?;
        // A change that was asked for last may still come.
        self.until(SETTLE_MAX, "a member is not ready", World::is_settled)?;
        self.until(REST_MAX, "the members differ", |world| {
            let members = world.members().into_iter();
            let mut applied = members.map(|(_, member)| member.state().applied());
            let first = applied.next();
            applied.all(|at| Some(at) == first)
        })?;
        let end = self.sim.elapsed() + WATCH_MAX;
        while self.sim.elapsed() < end {
            self.step()?;
        }
        Ok(())
    }
}

/// What happens in the simulation of `settings`.
fn planned(settings: &Settings) -> Vec<Planned> {
    let Settings {
        seed,
        members,
        faults_from: from,
        faults_to: to,
        ..
    } = *settings;
    let mut planned = match settings.control {
        None => faults::plan(seed, members, from, to),
        Some(control) => faults::power_loss(members, from, to, control == Control::LyingDisks),
    };
    if settings.spares > 0 {
        planned.extend(faults::plan_changes(seed, from, to));
        planned.sort_by_key(|planned| planned.at);
    }
    planned
}

fn disk_seed(seed: u64, place: Place, starts: u64) -> u64 {
    let place = u64::try_from(place).unwrap_or(0);
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (place << 56) ^ starts
}
