//! Seeds: those that failed once, and others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use holdfast_simulation::run::{Settings, run};

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

#[test]
#[ignore = "asked for by name until hundreds of seeds have run: docs/internals/track-record.md"]
fn a_cluster_keeps_its_promises_whatever_happens_to_it() {
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let log = tracing_subscriber::fmt().with_env_filter(filter);
        drop(log.with_test_writer().try_init());
    }
    let seeds = seeds(long::rounds(8, 2000));
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut violations = Vec::new();
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let settings = Settings::of(*seed);
            #[expect(clippy::disallowed_methods, reason = "how long it really takes")]
            let start = Instant::now();
            match run(settings) {
                Ok(outcome) => eprintln!(
                    "seed {seed}: {} members, {} crashes, {:?} simulated in {:?}, {:?}",
                    settings.members,
                    outcome.crashes,
                    outcome.simulated,
                    start.elapsed(),
                    outcome.history
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
        let results = workers.into_iter().map(|worker| worker.join().unwrap());
        results.flatten().collect()
    });
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}
