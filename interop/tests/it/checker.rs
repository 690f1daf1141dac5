//! The checker of histories gets one of very many operations: in bounded time and memory it lets a
//! right one pass and finds the one lie in the midst of it.

use std::collections::VecDeque;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::history::{
    Call, Event, History, Key, Operation, Outcome, Shown, Summary, Timeline, Violation, Watch,
    WatchAnswer, check, check_watch,
};
use holdfast_interop::{usage, wait};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::long;

const NAME: &str =
    "checker::a_lie_in_the_midst_of_very_many_operations_is_found_in_bounded_time_and_memory";
/// Set for the process whose memory is looked at.
const INSIDE: &str = "HOLDFAST_TEST_INSIDE";
const OPERATIONS: usize = 300_000;
const OPERATIONS_LONG: usize = 2_000_000;
/// Time for a million operations: making the history and checking it six times, in a build that is
/// not optimised, on a machine that does other things too.
const TIME_MAX: Duration = Duration::from_mins(4);
/// Memory of the whole process for each operation, with the history and its copy.
const BYTES_MAX: f64 = 600.0;
/// What the process takes by itself.
const MEMORY_MIB: f64 = 64.0;

const CLIENTS: u32 = 64;
const KEYS: Key = 64;
/// Time between the moments at which two operations take effect.
const STEP: u64 = 1_000;
/// How long before that it was sent, and after it answered, at most: less than until the client's
/// next one.
const SLACK: u64 = 25_000;
/// How old what a stale read shows is, in operations: longer than any of them takes.
const STALE: usize = 1_000;

/// What is wrong with a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// A read shows what was there a while ago.
    StaleRead,
    /// A write was acknowledged and not done.
    LostWrite,
    /// A write was done twice.
    Twice,
    /// A transaction wrote though its comparison did not hold.
    Unheld,
    /// A write that was refused was done.
    Refused,
}

/// A store that does one thing at a time, and the clients that ask it.
struct Maker {
    rng: StdRng,
    revision: i64,
    keys: Vec<Option<Shown>>,
    history: History,
    /// The newest revisions and keys, so many operations back.
    past: VecDeque<(i64, Vec<Option<Shown>>)>,
}

impl Maker {
    fn new() -> Self {
        Self {
            rng: StdRng::seed_from_u64(19),
            revision: 1,
            keys: vec![None; usize::from(KEYS)],
            history: History {
                base: 1,
                ..History::default()
            },
            past: VecDeque::new(),
        }
    }

    /// Makes `count` operations; from the middle on the first one that can be is the lie.
    fn make(mut self, count: usize, mut lie: Option<Lie>) -> Result<History> {
        for number in 0..count {
            if number + STALE >= count / 2 && number < count / 2 + STALE {
                self.past.push_back((self.revision, self.keys.clone()));
            }
            let is_due = number >= count / 2;
            let told = lie.filter(|_| is_due);
            if self.step(number, told)? {
                lie = None;
            }
        }
        ensure!(lie.is_none(), "no occasion for {lie:?}");
        Ok(self.history)
    }

    /// One operation; whether it was the lie.
    fn step(&mut self, number: usize, lie: Option<Lie>) -> Result<bool> {
        let value = u64::try_from(number)? + 1;
        let key = self.rng.random_range(0..KEYS);
        let there = self.keys[usize::from(key)];
        let (call, mut outcome) = match self.rng.random_range(0..100) {
            0..45 => self.put(key, value),
            45..65 => (Call::Get { key }, self.read(there)),
            65..72 => self.put_both(key, value),
            72..82 => self.delete(key),
            82..95 => self.swap(key, value),
            95..98 => (put(key, value), Outcome::Refused),
            _ => (put(key, value), Outcome::Unknown),
        };
        let is_lie = match (lie, call, outcome) {
            (Some(Lie::StaleRead), Call::Get { .. }, _) => match self.past.pop_front() {
                Some((revision, keys)) if keys[usize::from(key)] != there => {
                    outcome = read(revision, keys[usize::from(key)]);
                    true
                }
                _ => false,
            },
            (Some(Lie::LostWrite), Call::Get { .. }, _) => {
                let lost = (put(key, value), wrote(self.revision));
                self.record(number, lost.0, lost.1)?;
                return Ok(true);
            }
            (Some(Lie::Twice), Call::Put { .. }, Outcome::Done { .. })
            | (Some(Lie::Refused), Call::Put { .. }, Outcome::Refused) => {
                self.apply(&[key], Some(value));
                true
            }
            (Some(Lie::Unheld), Call::Get { .. }, _) if there.is_some() => {
                self.apply(&[key], Some(value));
                let expected = self.revision;
                let call = Call::Swap {
                    key,
                    expected,
                    value,
                };
                self.record(number, call, wrote(self.revision))?;
                return Ok(true);
            }
            _ => false,
        };
        // What is not known was done half of the time.
        if outcome == Outcome::Unknown && self.rng.random() {
            self.apply(&[key], Some(value));
        }
        self.record(number, call, outcome)?;
        Ok(is_lie)
    }

    fn record(&mut self, number: usize, call: Call, outcome: Outcome) -> Result<()> {
        let number = u64::try_from(number)?;
        let moment = SLACK + number * STEP;
        self.history.operations.push(Operation {
            client: u32::try_from(number % u64::from(CLIENTS))?,
            start: moment - self.rng.random_range(0..SLACK),
            end: moment + self.rng.random_range(0..SLACK),
            call,
            outcome,
        });
        Ok(())
    }

    /// Writes (`None`: removes) keys at the next revision.
    fn apply(&mut self, keys: &[Key], value: Option<u64>) {
        self.revision += 1;
        for key in keys {
            let before = self.keys[usize::from(*key)];
            let shown = value.map(|value| Shown {
                value,
                created: before.map_or(self.revision, |before| before.created),
                modified: self.revision,
                version: before.map_or(1, |before| before.version + 1),
                lease: 0,
            });
            self.keys[usize::from(*key)] = shown;
            self.history.events.push(Event {
                revision: self.revision,
                key: *key,
                shown,
            });
        }
    }

    fn put(&mut self, key: Key, value: u64) -> (Call, Outcome) {
        self.apply(&[key], Some(value));
        (put(key, value), wrote(self.revision))
    }

    fn put_both(&mut self, key: Key, value: u64) -> (Call, Outcome) {
        let keys = [key, (key + 1) % KEYS];
        self.apply(&keys, Some(value));
        (Call::PutBoth { keys, value }, wrote(self.revision))
    }

    fn delete(&mut self, key: Key) -> (Call, Outcome) {
        let call = Call::Delete { key };
        if self.keys[usize::from(key)].is_none() {
            return (call, self.read(None));
        }
        self.apply(&[key], None);
        (call, wrote(self.revision))
    }

    /// Half of the comparisons hold.
    fn swap(&mut self, key: Key, value: u64) -> (Call, Outcome) {
        let there = self.keys[usize::from(key)];
        let modified = there.map_or(0, |there| there.modified);
        let is_held = self.rng.random();
        let expected = if is_held { modified } else { modified + 1 };
        let call = Call::Swap {
            key,
            expected,
            value,
        };
        if is_held {
            self.apply(&[key], Some(value));
            (call, wrote(self.revision))
        } else {
            (call, self.read(there))
        }
    }

    fn read(&self, there: Option<Shown>) -> Outcome {
        read(self.revision, there)
    }
}

fn put(key: Key, value: u64) -> Call {
    Call::Put {
        key,
        value,
        lease: 0,
    }
}

fn wrote(revision: i64) -> Outcome {
    Outcome::Done {
        revision,
        has_written: true,
        shown: None,
    }
}

fn read(revision: i64, shown: Option<Shown>) -> Outcome {
    Outcome::Done {
        revision,
        has_written: false,
        shown,
    }
}

/// The violation in a history with `lie`.
fn found(count: usize, lie: Lie) -> Result<Violation> {
    let history = Maker::new().make(count, Some(lie))?;
    check(&history)
        .err()
        .with_context(|| format!("{lie:?} passed"))
}

/// A watch that saw everything, or all but one change in the middle.
fn watched(history: &History, is_whole: bool) -> Result<usize> {
    let timeline = Timeline::replay(history.base, &history.events)?;
    let middle = history.base + (timeline.newest() - history.base) / 2;
    let revisions = (history.base + 1..=timeline.newest()).filter(|at| is_whole || *at != middle);
    let watch = Watch {
        from: history.base + 1,
        keys: (0, KEYS),
        answers: revisions
            .map(|revision| WatchAnswer {
                revision,
                events: timeline.changes(revision).to_vec(),
            })
            .collect(),
    };
    Ok(check_watch(&timeline, &watch)?)
}

fn checks(count: usize) -> Result<Summary> {
    let history = Maker::new().make(count, None)?;
    let summary = check(&history)?;
    ensure!(watched(&history, true)? == history.events.len());
    let dropped = watched(&history, false).err().context("a gap passed")?;
    ensure!(dropped.to_string().contains("comes next"), "{dropped}");
    let revisions = i64::try_from(history.events.len())?;
    drop(history);
    for (lie, text) in [
        (Lie::StaleRead, "ended"),
        (Lie::LostWrite, "was told that"),
        (Lie::Twice, "was written at"),
        (Lie::Unheld, "took effect on a key last modified at"),
        (Lie::Refused, "was refused and took effect"),
    ] {
        let violation = found(count, lie)?;
        ensure!(violation.what.contains(text), "{lie:?}: {violation}");
        // It is where it was planted: in the middle.
        let part = violation.revision * 10 / revisions;
        ensure!(
            (3..=6).contains(&part),
            "{lie:?} of {revisions}: {violation}"
        );
    }
    Ok(summary)
}

/// Looks at its own memory, so it runs in a process of its own.
#[test]
fn a_lie_in_the_midst_of_very_many_operations_is_found_in_bounded_time_and_memory() -> Result<()> {
    if std::env::var_os(INSIDE).is_none() {
        let status = Command::new(std::env::current_exe()?)
            .args(["--exact", NAME, "--nocapture"])
            .env(INSIDE, "1")
            .status()?;
        ensure!(status.success(), "the test inside: {status}");
        return Ok(());
    }
    let count = long::rounds(OPERATIONS, OPERATIONS_LONG);
    let start = wait::now();
    let summary = checks(count)?;
    let took = start.elapsed();
    let peak_mib = usage::memory_mib(std::process::id(), "VmHWM")?;
    crate::cluster::tell(&format!(
        "{count} operations: {took:?}, {peak_mib:.0} MiB, {summary:?}"
    ));
    ensure!(summary.answered > count * 9 / 10, "{summary:?}");
    ensure!(summary.late > 0 && summary.lost > 0, "{summary:?}");
    let millions = f64::from(u32::try_from(count)?) / 1e6;
    ensure!(
        took.as_secs_f64() < TIME_MAX.as_secs_f64() * millions.max(0.25),
        "{took:?}"
    );
    let bytes = (peak_mib - MEMORY_MIB) * 1024.0 * 1024.0;
    ensure!(bytes < BYTES_MAX * millions * 1e6, "{peak_mib} MiB");
    Ok(())
}
