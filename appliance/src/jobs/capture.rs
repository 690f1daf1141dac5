//! Continuous capture: a source is followed between its backups, and what has changed is stored
//! every few seconds.
//!
//! One job for each source, while it is this daemon's turn. It begins with a full backup of its own
//! and follows it until something ends the run; then the gap is recorded and the next backup is
//! taken at once. What a run of before left open, of this daemon or of another one, is closed
//! first, as long as the source still has it: a restart is no gap.

mod bridge;
mod run;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::shop::{BackupRequest, Shop, on_a_thread};
use super::turn;
use crate::config::Source;
use crate::failure::Failure;
use run::{Job, Last};

pub(crate) use tally::{Tallies, Tally};

/// The first wait after a run that could not begin; each next one is twice as long.
const FIRST_REST: Duration = Duration::from_secs(5);

/// How often the wait is doubled.
const DOUBLINGS_MAX: u32 = 5;

/// A backup that took so long is not taken again before so many times that has passed: whatever
/// goes wrong, most of the time the source is left alone.
const REST_FACTOR: u32 = 10;

/// Longest wait.
const REST_MAX: Duration = Duration::from_hours(1);

/// Follows `source` whenever it is this daemon's turn, until `stop`.
pub(super) async fn follow(
    shop: Arc<Shop>,
    source: Arc<Source>,
    door: mpsc::Sender<BackupRequest>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let mut turns = shop.turn.clone();
    let (_nobody, mut requests) = mpsc::channel::<()>(1);
    while let Some(held) = turn::next(&mut turns, &mut requests, |(), _refused| (), &stop).await {
        let shift = stop.child_token();
        let office = held.office(shop.member.as_ref());
        let job = Job::new(Arc::clone(&shop), Arc::clone(&source), door.clone(), office)?;
        let (until, name) = (shift.clone(), source.name.clone());
        let work = async {
            let ended = on_a_thread(move || async move {
                tokio::select! {
                    () = until.cancelled() => {}
                    () = again_and_again(&job) => {}
                }
            });
            if let Err(error) = ended.await {
                tracing::error!(source = name.as_str(), %error, "capture broke off");
                tokio::time::sleep(FIRST_REST).await;
            }
        };
        turn::during(&mut turns, &held, &shift, work).await;
        shop.tallies.of(source.name.as_str()).stand_by();
    }
    Ok(())
}

/// One run after the other.
async fn again_and_again(job: &Job) {
    let (mut last, mut failures) = (Last::default(), 0);
    loop {
        let began = Instant::now();
        let (cost, lived) = match job.begin(&last).await {
            Ok(begun) => {
                failures = 0;
                let cost = began.elapsed();
                last = job.follow(begun).await;
                (cost, began.elapsed().saturating_sub(cost))
            }
            Err(failure) => {
                job.told_failure(&failure.line());
                failures += 1;
                (began.elapsed(), Duration::ZERO)
            }
        };
        tokio::time::sleep(rest(cost, lived, failures)).await;
    }
}

/// How long the source is left alone after a run whose beginning took `cost` and that `lived` so
/// long, the last of so many `failures` to begin one. Pure.
fn rest(cost: Duration, lived: Duration, failures: u32) -> Duration {
    let owed = cost.saturating_mul(REST_FACTOR).saturating_sub(lived);
    let doublings = failures.saturating_sub(1).min(DOUBLINGS_MAX);
    let patience = match failures {
        0 => Duration::ZERO,
        _ => FIRST_REST.saturating_mul(2_u32.saturating_pow(doublings)),
    };
    owed.max(patience).min(REST_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_lived_is_followed_by_a_backup_at_once() {
        let (cost, hour) = (Duration::from_mins(1), Duration::from_hours(1));
        assert_eq!(rest(cost, hour, 0), Duration::ZERO);
    }

    #[test]
    fn backups_that_lead_nowhere_take_a_tenth_of_the_sources_time_at_most() {
        let (cost, short) = (Duration::from_mins(1), Duration::from_secs(5));
        assert_eq!(rest(cost, short, 0), Duration::from_secs(595));
        assert_eq!(rest(cost, Duration::ZERO, 1), Duration::from_mins(10));
        assert_eq!(rest(cost * 100, Duration::ZERO, 0), REST_MAX);
    }

    #[test]
    fn a_source_that_does_not_answer_is_asked_less_and_less_often_up_to_a_limit() {
        let waits = [1, 2, 3, 9].map(|failures| rest(Duration::ZERO, Duration::ZERO, failures));
        let seconds = [5, 10, 20, 160].map(Duration::from_secs);
        assert_eq!(waits, seconds);
    }
}
