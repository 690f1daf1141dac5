//! Seeds: those that failed once, and others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use holdfast_simulation::run::run;
use holdfast_simulation::settings::Settings;
use parking_lot::Mutex;

use crate::long;

/// Seeds that failed once, and why: `docs/internals/track-record.md`.
const FAILED_ONCE: &str = include_str!("../seeds.txt");

/// The seeds to run: that of `HOLDFAST_SEED`, or those that failed once and `count` others.
fn seeds(count: usize) -> Vec<u64> {
    if let Ok(seed) = std::env::var("HOLDFAST_SEED") {
        return seed
            .split(',')
            .flat_map(|part| match part.split_once("..") {
                Some((from, to)) => number(from)..number(to),
                None => number(part)..number(part) + 1,
            })
            .collect();
    }
    let failed = FAILED_ONCE
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse().ok());
    let mut seeds: Vec<u64> = failed.collect();
    seeds.extend((1..).take(count));
    seeds
}

fn number(text: &str) -> u64 {
    let number = text.trim().parse();
    number.expect("HOLDFAST_SEED is like 7, 7..9 or 1,7..9")
}

/// A simulation that takes longer than this in real time does not go on.
const LASTS_MAX: Duration = Duration::from_mins(10);

/// The seeds that run, and since when.
#[derive(Default)]
struct Running(Mutex<BTreeMap<u64, Instant>>);

impl Running {
    /// Waits for the end. Before that, the seed of a simulation that stands still: a task that
    /// never waits lets no simulated time pass, and nothing inside can notice.
    fn find_stuck(&self, end: &Receiver<()>) -> Option<u64> {
        while end.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
            let running = self.0.lock();
            let stuck = running
                .iter()
                .find(|(_, start)| start.elapsed() > LASTS_MAX);
            if let Some((seed, _)) = stuck {
                return Some(*seed);
            }
        }
        None
    }
}

#[test]
fn a_cluster_keeps_its_promises_whatever_happens_to_it() {
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let log = tracing_subscriber::fmt().with_env_filter(filter);
        drop(log.with_test_writer().try_init());
    }
    let seeds = seeds(long::rounds(3, 2000));
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let running = Running::default();
    let work = || {
        let mut violations = Vec::new();
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let settings = Settings::of(*seed);
            #[expect(clippy::disallowed_methods, reason = "how long it really takes")]
            let start = Instant::now();
            running.0.lock().insert(*seed, start);
            let result = run(settings);
            running.0.lock().remove(seed);
            match result {
                Ok(outcome) => eprintln!(
                    "seed {seed}, {} members, in {:?}: {outcome:?}",
                    settings.members,
                    start.elapsed(),
                ),
                Err(violation) => {
                    eprintln!("{violation}");
                    violations.push(violation.to_string());
                }
            }
        }
        violations
    };
    let violations: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let (ended, end) = std::sync::mpsc::sync_channel::<()>(0);
        let running = &running;
        scope.spawn(move || {
            if let Some(seed) = running.find_stuck(&end) {
                eprintln!("seed {seed}: simulated time stands still, most likely: a task spins");
                std::process::abort();
            }
        });
        let results = workers.into_iter().map(|worker| worker.join().unwrap());
        let violations = results.flatten().collect();
        drop(ended);
        violations
    });
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}
