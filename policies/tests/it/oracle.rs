//! Random schedules, compared with another implementation.

use std::str::FromStr as _;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use holdfast_policies::Schedule;

use crate::random::Random;

const EXPRESSIONS: usize = 4000;
const RUNS_EACH: usize = 8;

const ZONES: [&str; 12] = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Africa/Cairo",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/Santiago",
    "America/St_Johns",
    "Europe/London",
    "Pacific/Auckland",
    "Asia/Kathmandu",
    "Africa/Casablanca",
];

fn item(random: &mut Random, (first, last): (u64, u64), names: &[&str]) -> String {
    let value = |random: &mut Random| first + random.below(last - first + 1);
    match random.below(5) {
        0 => format!("*/{}", 1 + random.below(last.min(20))),
        1 | 2 => {
            let (a, b) = (value(random), value(random));
            let range = format!("{}-{}", a.min(b), a.max(b));
            if random.one_in(2) {
                format!("{range}/{}", 1 + random.below(7))
            } else {
                range
            }
        }
        3 if !names.is_empty() => (*random.pick(names)).to_owned(),
        _ => value(random).to_string(),
    }
}

fn field(random: &mut Random, range: (u64, u64), names: &[&str]) -> String {
    match random.below(4) {
        0 => "*".to_owned(),
        1 => {
            let items: Vec<String> = (0..=random.below(3))
                .map(|_| item(random, range, names))
                .collect();
            items.join(",")
        }
        _ => item(random, range, names),
    }
}

fn expression(random: &mut Random) -> String {
    let months = ["JAN", "FEB", "MAR", "jun", "Oct", "DEC"];
    let days = ["SUN", "MON", "tue", "Wed", "THU", "FRI", "SAT"];
    [
        field(random, (0, 59), &[]),
        field(random, (0, 23), &[]),
        field(random, (1, 31), &[]),
        field(random, (1, 12), &months),
        field(random, (0, 7), &days),
    ]
    .join(" ")
}

/// Both treat a day of changing clocks alike when the hour is a wildcard, or when exactly one
/// time of day is named; in between (lists of hours) the other one falls back to wildcards.
fn is_judged_alike(text: &str) -> bool {
    let is_number = |field: &str| field.bytes().all(|b| b.is_ascii_digit());
    let mut fields = text.split(' ');
    let (minute, hour) = (fields.next().unwrap(), fields.next().unwrap());
    hour.split(',').any(|item| item.starts_with('*')) || (is_number(minute) && is_number(hour))
}

fn start(random: &mut Random) -> DateTime<Utc> {
    let day = i64::try_from(random.below(20 * 365)).unwrap();
    let second = i64::try_from(random.below(86_400)).unwrap();
    DateTime::from_timestamp(1_700_000_000 + day * 86_400 + second, 0).unwrap()
}

/// Days on which some clock of `ZONES` is set.
fn start_near_a_change(random: &mut Random) -> DateTime<Utc> {
    let days = [
        "2026-03-08",
        "2026-11-01",
        "2026-03-29",
        "2026-10-25",
        "2026-04-24",
        "2026-10-30",
        "2026-04-05",
        "2026-10-04",
        "2026-09-06",
        "2026-09-27",
        "2027-03-14",
        "2027-11-07",
    ];
    let day = random.pick(&days).parse::<chrono::NaiveDate>().unwrap();
    let seconds = i64::try_from(random.below(2 * 86_400)).unwrap() - 86_400;
    day.and_hms_opt(0, 0, 0).unwrap().and_utc() + TimeDelta::seconds(seconds)
}

fn compare(text: &str, zone: &str, start: DateTime<Utc>) -> usize {
    let oracle = croner::Cron::from_str(text).unwrap();
    let tz: Tz = zone.parse().unwrap();
    let mut oracle_at = start.with_timezone(&tz);
    let Ok(ours) = Schedule::parse(text, zone.parse().unwrap()) else {
        let found = oracle.find_next_occurrence(&oracle_at, false);
        assert!(
            found.is_err(),
            "{text:?} is refused here and runs there at {found:?}"
        );
        return 0;
    };
    let mut at = start;
    for run in 0..RUNS_EACH {
        let expected = oracle.find_next_occurrence(&oracle_at, false).unwrap();
        let next = ours.next_after(at).unwrap();
        assert_eq!(next, expected, "{text:?} in {zone} from {start}, run {run}");
        // From anywhere before it the next run is the same.
        let between = at + (next - at) / 2;
        assert_eq!(
            ours.next_after(between),
            Some(next),
            "{text:?} in {zone} from {between}"
        );
        (at, oracle_at) = (next, expected);
    }
    1
}

#[test]
fn random_schedules_agree_with_another_implementation() {
    let mut random = Random::new(1);
    let mut compared = 0;
    for _ in 0..EXPRESSIONS {
        let text = expression(&mut random);
        let zone = if is_judged_alike(&text) {
            *random.pick(&ZONES)
        } else {
            "UTC"
        };
        compared += compare(&text, zone, start(&mut random));
    }
    assert!(compared >= 3000, "only {compared} were compared");
}

#[test]
fn random_schedules_agree_on_the_days_when_clocks_are_set() {
    let mut random = Random::new(2);
    let mut compared = 0;
    for _ in 0..EXPRESSIONS {
        let hour = if random.one_in(2) {
            "*".to_owned()
        } else {
            random.below(4).to_string()
        };
        let minute = if hour == "*" {
            field(&mut random, (0, 59), &[])
        } else {
            random.below(60).to_string()
        };
        let text = format!("{minute} {hour} * * *");
        let zone = *random.pick(&ZONES);
        compared += compare(&text, zone, start_near_a_change(&mut random));
    }
    assert!(compared >= 3000, "only {compared} were compared");
}
