//! Whether a job runs now.

use chrono::{DateTime, TimeDelta, Utc};
use holdfast_policies::schedule::{Due, MISSED_COUNT_MAX};
use holdfast_policies::{MissedRun, RunDecision, RunState, Schedule, TimeZone};

fn at(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).unwrap().to_utc()
}

fn schedule(text: &str) -> Schedule {
    Schedule::parse(text, TimeZone::UTC).unwrap()
}

fn since(text: &str) -> RunState {
    RunState {
        since: at(text),
        last_start: None,
        running_since: None,
    }
}

fn last(text: &str) -> RunState {
    RunState {
        last_start: Some(at(text)),
        ..since("2026-01-01T00:00:00Z")
    }
}

fn wait(until: &str, skipped: u32) -> RunDecision {
    RunDecision::Wait {
        until: Some(at(until)),
        skipped,
    }
}

fn run(planned: &str, missed: u32) -> RunDecision {
    RunDecision::Run(Due {
        at: at(planned),
        missed,
    })
}

#[test]
fn nothing_is_due_before_the_first_run() {
    let hourly = schedule("@hourly");
    let state = since("2026-05-01T10:20:00Z");
    let decision = hourly.decide(MissedRun::Once, &state, at("2026-05-01T10:59:59Z"));
    assert_eq!(decision, wait("2026-05-01T11:00:00Z", 0));
    let decision = hourly.decide(MissedRun::Skip, &state, at("2026-05-01T11:00:00Z"));
    assert_eq!(decision, run("2026-05-01T11:00:00Z", 0));
}

#[test]
fn a_run_that_has_begun_is_not_due_again() {
    let hourly = schedule("@hourly");
    let state = last("2026-05-01T11:00:00.250Z");
    let decision = hourly.decide(MissedRun::Once, &state, at("2026-05-01T11:00:30Z"));
    assert_eq!(decision, wait("2026-05-01T12:00:00Z", 0));
}

#[test]
fn a_job_never_overlaps_itself() {
    let minutely = schedule("* * * * *");
    let running = RunState {
        running_since: Some(at("2026-05-01T11:00:00Z")),
        ..last("2026-05-01T11:00:00Z")
    };
    let now = at("2026-05-01T11:07:30Z");
    let busy = RunDecision::Busy {
        since: at("2026-05-01T11:00:00Z"),
    };
    assert_eq!(minutely.decide(MissedRun::Once, &running, now), busy);
    // Once it is over, one run follows for the seven that fell due meanwhile.
    let over = RunState {
        running_since: None,
        ..running
    };
    let decision = minutely.decide(MissedRun::Once, &over, now);
    assert_eq!(decision, run("2026-05-01T11:07:00Z", 6));
}

#[test]
fn missed_runs_are_made_up_for_once_or_skipped() {
    let daily = schedule("0 3 * * *");
    let state = last("2026-05-01T03:00:00Z");
    let now = at("2026-05-06T12:00:00Z");
    assert_eq!(
        daily.decide(MissedRun::Once, &state, now),
        run("2026-05-06T03:00:00Z", 4)
    );
    assert_eq!(
        daily.decide(MissedRun::Skip, &state, now),
        wait("2026-05-07T03:00:00Z", 5)
    );
}

#[test]
fn a_run_is_on_time_for_a_minute() {
    let daily = schedule("0 3 * * *");
    let state = last("2026-05-01T03:00:00Z");
    for (now, decision) in [
        ("2026-05-02T03:01:00Z", run("2026-05-02T03:00:00Z", 0)),
        ("2026-05-02T03:01:01Z", wait("2026-05-03T03:00:00Z", 1)),
    ] {
        assert_eq!(daily.decide(MissedRun::Skip, &state, at(now)), decision);
    }
}

#[test]
fn periods_count_from_the_last_run() {
    let every = schedule("@every 20m");
    let state = last("2026-05-01T10:05:00Z");
    let decide = |policy, now| every.decide(policy, &state, at(now));
    assert_eq!(
        decide(MissedRun::Once, "2026-05-01T10:24:59Z"),
        wait("2026-05-01T10:25:00Z", 0)
    );
    assert_eq!(
        decide(MissedRun::Once, "2026-05-01T10:25:00Z"),
        run("2026-05-01T10:25:00Z", 0)
    );
    assert_eq!(
        decide(MissedRun::Once, "2026-05-01T11:30:00Z"),
        run("2026-05-01T11:25:00Z", 3)
    );
    assert_eq!(
        decide(MissedRun::Skip, "2026-05-01T11:30:00Z"),
        wait("2026-05-01T11:45:00Z", 4)
    );
}

#[test]
fn a_clock_set_back_does_not_silence_a_job() {
    let hourly = schedule("@hourly");
    let state = last("2036-05-01T11:00:00Z");
    let decision = hourly.decide(MissedRun::Once, &state, at("2026-05-01T11:30:00Z"));
    assert_eq!(decision, wait("2026-05-01T12:00:00Z", 0));
}

#[test]
fn a_long_absence_is_counted_to_a_limit_and_ends_with_the_latest_run() {
    let state = last("2020-01-01T00:00:00Z");
    for text in ["* * * * *", "@every 1m", "@every 1s"] {
        let now = at("2026-05-01T11:30:30Z");
        match schedule(text).decide(MissedRun::Once, &state, now) {
            RunDecision::Run(due) => {
                assert_eq!(due.missed, MISSED_COUNT_MAX, "{text}");
                assert!(now - due.at < TimeDelta::minutes(1), "{text}: {due:?}");
                assert!(due.at <= now, "{text}: {due:?}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    let yearly = schedule("@yearly").decide(MissedRun::Once, &state, at("2026-05-01T00:00:00Z"));
    assert_eq!(yearly, run("2026-01-01T00:00:00Z", 5));
}
