//! Clocks that run at different rates.
//!
//! The simulation's time is the slowest clock. A host's own clock, from which every timer and every
//! decision of its member comes, gains on it at a rate that is drawn at each start. What is
//! judged is the simulation's time alone.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Instant, advance, sleep};

use crate::history::Nanos;
use crate::invariants::Place;
use crate::observer::Observer;

/// What the fastest clock gains on the slowest, in thousandths: far more than any real one.
pub const GAIN_MAX: u32 = 250;
/// How often a fast clock is put forward.
const STEP: Duration = Duration::from_millis(20);
/// What a clock that is put forward in steps may be off by.
const UNEVEN: Nanos = 10_000_000;

/// What the clock of a host gains from its start on, in thousandths.
pub fn gain(seed: u64, place: Place, starts: u64) -> u32 {
    let place = u64::try_from(place).unwrap_or(0);
    let mut random = StdRng::seed_from_u64(seed ^ (place << 40) ^ (starts << 48) ^ 0x000c_10c4);
    // The extremes are what is of interest.
    match random.random_range(0..3) {
        0 => 0,
        1 => GAIN_MAX,
        _ => random.random_range(0..GAIN_MAX),
    }
}

/// The shortest time that may have passed while some host's clock measured `measured`.
pub fn least(measured: Nanos) -> Nanos {
    (measured / u64::from(1000 + GAIN_MAX) * 1000).saturating_sub(UNEVEN)
}

/// Lets the clock of this host gain, until the host goes down.
pub async fn run_fast(observer: Arc<Observer>, gain: u32) {
    if gain == 0 {
        return;
    }
    let (own, start) = (Instant::now(), observer.now());
    loop {
        sleep(STEP).await;
        let passed = Duration::from_nanos(observer.now().saturating_sub(start));
        let goal = passed + passed * gain / 1000;
        let behind = goal.saturating_sub(own.elapsed());
        // Timers fire at whole milliseconds: between two of them each would come one late.
        let behind = Duration::from_millis(u64::try_from(behind.as_millis()).unwrap_or(0));
        if !behind.is_zero() {
            advance(behind).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_is_judged_by_the_fastest_clock_there_may_be() {
        assert_eq!(least(5_000_000_000), 4_000_000_000 - UNEVEN);
        assert_eq!(least(0), 0);
        let gains: Vec<u32> = (0..50).map(|starts| gain(1, 0, starts)).collect();
        assert!(gains.iter().all(|gain| *gain <= GAIN_MAX));
        assert!(gains.contains(&0) && gains.contains(&GAIN_MAX), "{gains:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_clock_gains_what_it_was_told_to() {
        let observer = Arc::new(Observer::default());
        sleep(Duration::from_millis(1)).await;
        let (own, told) = (Instant::now(), Arc::clone(&observer));
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        drop(tokio::spawn(run_fast(told, 100)));
        for passed in 1..=10_000_u64 {
            observer.set_now(passed * 1_000_000);
            sleep(Duration::from_millis(1)).await;
        }
        let gained = own.elapsed().saturating_sub(Duration::from_secs(10));
        let wanted = Duration::from_secs(1);
        assert!(
            gained.abs_diff(wanted) < Duration::from_millis(30),
            "{gained:?}"
        );
    }
}
