//! When a job runs: `policies` decides, this waits.
//!
//! One scheduler runs one job, one run at a time: a request from outside waits for the run in
//! progress and then gets a run of its own. Whether somebody else runs the same job elsewhere is
//! not decided here: see [`super::turn`], and the vault's generation fences a stale runner.

use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use holdfast_policies::{MissedRun, RunDecision, RunState, Schedule};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::board::Entry;
use crate::clock::Clock;

/// Longest wait before the clock is looked at again: it may have been set in between.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Waits before each new try of a run that failed for want of an answer.
const RETRIES: [Duration; 3] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_mins(2),
];

/// Requests that may wait for the run in progress.
pub(crate) const REQUESTS_MAX: usize = 8;

/// An outcome that the scheduler and the board understand.
pub(crate) trait Outcome {
    /// Whether trying again soon makes sense.
    fn is_worth_retrying(&self) -> bool;
    /// One line for the status page.
    fn summary(&self) -> Result<String, String>;
}

/// How a run ended.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    is_worth_retrying: bool,
    summary: Result<String, String>,
}

impl Ended {
    /// The run broke off.
    pub(crate) fn broken(reason: &str) -> Self {
        Self {
            is_worth_retrying: false,
            summary: Err(reason.to_owned()),
        }
    }

    /// What the scheduler needs to know of an outcome.
    pub(crate) fn of(outcome: &impl Outcome) -> Self {
        Self {
            is_worth_retrying: outcome.is_worth_retrying(),
            summary: outcome.summary(),
        }
    }
}

/// When a job runs.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The schedule; `None` leaves only requests.
    pub(crate) schedule: Option<Schedule>,
    /// What becomes of missed runs.
    pub(crate) missed: MissedRun,
    /// When the schedule came into force.
    pub(crate) since: DateTime<Utc>,
    /// When the last run began, as the vault tells it.
    pub(crate) last_start: Option<DateTime<Utc>>,
}

/// What to do next: wait, then run or look again.
struct Step {
    wait: Duration,
    is_run: bool,
    until: Option<DateTime<Utc>>,
}

/// Runs `work` whenever it is due (without a request) or asked for (with it), until `stop`.
pub(crate) async fn run<R, W>(
    plan: Plan,
    clock: Clock,
    entry: Entry,
    stop: CancellationToken,
    requests: &mut mpsc::Receiver<R>,
    mut work: W,
) where
    W: FnMut(Option<R>) -> BoxFuture<'static, Ended>,
{
    let mut state = RunState {
        since: plan.since,
        last_start: plan.last_start,
        running_since: None,
    };
    let mut tries = 0;
    let mut retry = None;
    loop {
        let step = match retry {
            Some(pause) => Step {
                wait: pause,
                is_run: true,
                until: None,
            },
            None => next_step(&plan, &state, clock.now(), &entry),
        };
        entry.plan(step.until);
        let request = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Some(request) = requests.recv() => Some(request),
            () = tokio::time::sleep(step.wait) => None,
        };
        if request.is_none() && !step.is_run {
            continue;
        }
        let started = clock.now();
        state.last_start = Some(started);
        entry.begin(started);
        let is_asked_for = request.is_some();
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            ended = work(request) => ended,
        };
        entry.end(clock.now(), ended.summary);
        if ended.is_worth_retrying && !is_asked_for {
            retry = RETRIES.get(tries).copied();
            tries += 1;
        } else {
            (retry, tries) = (None, 0);
        }
    }
}

fn next_step(plan: &Plan, state: &RunState, now: DateTime<Utc>, entry: &Entry) -> Step {
    let look_again = |until| Step {
        wait: LOOK_AGAIN,
        is_run: false,
        until,
    };
    let Some(schedule) = &plan.schedule else {
        return look_again(None);
    };
    match schedule.decide(plan.missed, state, now) {
        RunDecision::Run(due) => {
            if due.missed > 0 {
                tracing::info!(
                    job = entry.name(),
                    missed = due.missed,
                    "one run makes up for missed ones"
                );
            }
            Step {
                wait: Duration::ZERO,
                is_run: true,
                until: Some(now),
            }
        }
        RunDecision::Wait {
            until: Some(until), ..
        } => Step {
            wait: wait_until(until, now),
            is_run: false,
            until: Some(until),
        },
        RunDecision::Wait { until: None, .. } | RunDecision::Busy { .. } => look_again(None),
    }
}

fn wait_until(until: DateTime<Utc>, now: DateTime<Utc>) -> Duration {
    let wait = (until - now).to_std().unwrap_or(Duration::ZERO);
    wait.clamp(Duration::from_millis(1), LOOK_AGAIN)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use chrono::TimeDelta;
    use holdfast_policies::TimeZone;
    use tokio::sync::oneshot;

    use super::super::board::Board;
    use super::*;

    fn ended(is_good: bool) -> BoxFuture<'static, Ended> {
        let summary = if is_good {
            Ok("done".to_owned())
        } else {
            Err("no answer".to_owned())
        };
        Box::pin(std::future::ready(Ended {
            is_worth_retrying: !is_good,
            summary,
        }))
    }

    fn start_of_2026() -> DateTime<Utc> {
        DateTime::from_timestamp(1_767_225_600, 0).unwrap()
    }

    fn plan_of(text: &str, since: DateTime<Utc>) -> Plan {
        let schedule = Some(Schedule::parse(text, TimeZone::UTC).unwrap());
        Plan {
            schedule,
            missed: MissedRun::Once,
            since,
            last_start: None,
        }
    }

    /// Plays `span` of a schedule by a clock of its own and says when it ran.
    fn play(plan: &Plan, span: TimeDelta) -> Vec<DateTime<Utc>> {
        let entry = Board::default().entry("backup", "bundled");
        let mut state = RunState {
            since: plan.since,
            last_start: plan.last_start,
            running_since: None,
        };
        let (mut now, mut runs) = (plan.since, Vec::new());
        while now < plan.since + span {
            let step = next_step(plan, &state, now, &entry);
            now += step.wait;
            if step.is_run {
                state.last_start = Some(now);
                runs.push(now);
            }
        }
        runs
    }

    #[test]
    fn a_job_runs_once_for_each_time_it_is_due() {
        let plan = plan_of("@every 1m", start_of_2026());
        assert_eq!(play(&plan, TimeDelta::seconds(601)).len(), 10);
        let plan = plan_of("*/15 * * * *", start_of_2026());
        let runs = play(&plan, TimeDelta::seconds(3601));
        assert_eq!(runs.len(), 4);
        assert_eq!(runs[0], start_of_2026() + TimeDelta::minutes(15));
    }

    #[test]
    fn one_run_makes_up_for_all_missed_ones_unless_they_are_to_be_skipped() {
        let mut plan = plan_of("@hourly", start_of_2026() + TimeDelta::minutes(10));
        plan.last_start = Some(plan.since - TimeDelta::hours(5));
        assert_eq!(play(&plan, TimeDelta::minutes(40)).len(), 1);
        plan.missed = MissedRun::Skip;
        assert_eq!(play(&plan, TimeDelta::minutes(40)).len(), 0);
    }

    #[tokio::test]
    async fn a_run_that_found_nobody_is_tried_again_by_the_clock() {
        let (board, stop, runs) = (
            Board::default(),
            CancellationToken::new(),
            AtomicUsize::new(0),
        );
        let entry = board.entry("backup", "bundled");
        let (_requests, mut receiver) = mpsc::channel::<()>(REQUESTS_MAX);
        let clock = Clock::system();
        let plan = plan_of("@every 1s", clock.now() - TimeDelta::seconds(2));
        let scheduler = run(plan, clock, entry, stop.clone(), &mut receiver, |_| {
            let is_good = runs.fetch_add(1, Ordering::SeqCst) > 0;
            ended(is_good)
        });
        let tried = tokio::time::timeout(RETRIES[0] + Duration::from_secs(3), scheduler).await;
        assert!(tried.is_err(), "the scheduler ended by itself");
        let (_, state) = board.snapshot().remove(0);
        assert_eq!(state.failed_runs, 1);
        assert!(state.good_runs >= 1, "{state:?}");
    }

    #[tokio::test]
    async fn a_request_runs_the_job_at_once() {
        let (board, stop) = (Board::default(), CancellationToken::new());
        let entry = board.entry("backup", "bundled");
        let (requests, mut receiver) = mpsc::channel(REQUESTS_MAX);
        let clock = Clock::system();
        let plan = plan_of("@yearly", clock.now());
        let scheduler = run(plan, clock, entry, stop.clone(), &mut receiver, |request| {
            let reply: Option<oneshot::Sender<u8>> = request;
            assert_eq!(reply.map(|reply| reply.send(7)), Some(Ok(())));
            ended(true)
        });
        let asking = async {
            let (reply, answer) = oneshot::channel();
            requests.send(reply).await.unwrap();
            let answer = answer.await.unwrap();
            stop.cancel();
            answer
        };
        let ((), answer) = tokio::join!(scheduler, asking);
        assert_eq!(answer, 7);
        assert_eq!(board.snapshot()[0].1.good_runs, 1);
    }
}
