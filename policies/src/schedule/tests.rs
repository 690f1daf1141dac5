use super::*;

fn schedule(text: &str, zone: &str) -> Schedule {
    Schedule::parse(text, zone.parse().unwrap()).unwrap()
}

fn at(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).unwrap().to_utc()
}

/// The next runs after a time, as local time with offset.
fn runs(text: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let shown = |time: &DateTime<Tz>| time.format("%m-%d %H:%M %z").to_string();
    schedule(text, zone)
        .preview(at(after), count)
        .iter()
        .map(shown)
        .collect()
}

fn refusal(text: &str) -> String {
    match Schedule::parse(text, TimeZone::UTC) {
        Ok(schedule) => panic!("{schedule:?} was read"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_run_in_the_spring_jump_of_new_york_happens_right_after_it() {
    assert_eq!(
        runs("30 2 * * *", "America/New_York", "2026-03-07T06:00:00Z", 3),
        [
            "03-07 02:30 -0500",
            "03-08 03:00 -0400",
            "03-09 02:30 -0400"
        ]
    );
}

#[test]
fn a_run_in_the_repeated_hour_of_new_york_happens_once() {
    assert_eq!(
        runs("30 1 * * *", "America/New_York", "2026-10-31T04:00:00Z", 3),
        [
            "10-31 01:30 -0400",
            "11-01 01:30 -0400",
            "11-02 01:30 -0500"
        ]
    );
    assert_eq!(
        runs(
            "30 0,1,2 * * *",
            "America/New_York",
            "2026-11-01T04:00:00Z",
            3
        ),
        [
            "11-01 00:30 -0400",
            "11-01 01:30 -0400",
            "11-01 02:30 -0500"
        ]
    );
}

#[test]
fn a_half_hourly_schedule_serves_the_repeated_hour_twice_and_in_order() {
    assert_eq!(
        runs(
            "*/30 * * * *",
            "America/New_York",
            "2026-11-01T04:45:00Z",
            5
        ),
        [
            "11-01 01:00 -0400",
            "11-01 01:30 -0400",
            "11-01 01:00 -0500",
            "11-01 01:30 -0500",
            "11-01 02:00 -0500"
        ]
    );
}

#[test]
fn a_half_hourly_schedule_makes_nothing_up_in_the_jump() {
    assert_eq!(
        runs("20 * * * *", "America/New_York", "2026-03-08T06:00:00Z", 3),
        [
            "03-08 01:20 -0500",
            "03-08 03:20 -0400",
            "03-08 04:20 -0400"
        ]
    );
}

#[test]
fn berlin_is_served_through_both_of_its_changes() {
    assert_eq!(
        runs("15 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 3),
        [
            "03-28 02:15 +0100",
            "03-29 03:00 +0200",
            "03-30 02:15 +0200"
        ]
    );
    assert_eq!(
        runs("15 2 * * *", "Europe/Berlin", "2026-10-24T00:00:00Z", 3),
        [
            "10-24 02:15 +0200",
            "10-25 02:15 +0200",
            "10-26 02:15 +0100"
        ]
    );
    assert_eq!(
        runs("@hourly", "Europe/Berlin", "2026-10-25T01:30:00Z", 3),
        [
            "10-25 03:00 +0100",
            "10-25 04:00 +0100",
            "10-25 05:00 +0100"
        ]
    );
    assert_eq!(
        runs("@hourly", "Europe/Berlin", "2026-10-24T23:30:00Z", 3),
        [
            "10-25 02:00 +0200",
            "10-25 02:00 +0100",
            "10-25 03:00 +0100"
        ]
    );
}

#[test]
fn a_midnight_run_survives_a_jump_at_midnight() {
    assert_eq!(
        runs("@daily", "Africa/Cairo", "2026-04-23T12:00:00Z", 2),
        ["04-24 01:00 +0300", "04-25 00:00 +0300"]
    );
    assert_eq!(
        runs("@daily", "America/Santiago", "2026-09-05T12:00:00Z", 2),
        ["09-06 01:00 -0300", "09-07 00:00 -0300"]
    );
}

#[test]
fn odd_clocks_are_followed_too() {
    // Half an hour in Lord Howe, a whole day in Samoa.
    assert_eq!(
        runs(
            "10 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T12:00:00Z",
            2
        ),
        ["10-04 02:30 +1100", "10-05 02:10 +1100"]
    );
    assert_eq!(
        runs("0 12 * * *", "Pacific/Apia", "2011-12-29T20:00:00Z", 3),
        [
            "12-29 12:00 -1000",
            "12-31 00:00 +1400",
            "12-31 12:00 +1400"
        ]
    );
}

#[test]
fn either_day_field_will_do_when_both_are_restricted() {
    // 2026-01-02 is a Friday.
    assert_eq!(
        runs("0 0 5 * FRI", "UTC", "2026-01-01T00:00:00Z", 4),
        [
            "01-02 00:00 +0000",
            "01-05 00:00 +0000",
            "01-09 00:00 +0000",
            "01-16 00:00 +0000"
        ]
    );
    // A step over all days is a restriction; only a plain * is none.
    assert_eq!(
        runs("0 0 */15 * SUN", "UTC", "2026-01-01T00:00:00Z", 4),
        [
            "01-04 00:00 +0000",
            "01-11 00:00 +0000",
            "01-16 00:00 +0000",
            "01-18 00:00 +0000"
        ]
    );
    assert_eq!(
        runs("0 0 ? * SUN", "UTC", "2026-01-01T00:00:00Z", 2),
        ["01-04 00:00 +0000", "01-11 00:00 +0000"]
    );
}

#[test]
fn weekdays_are_counted_from_sunday_whatever_the_engine_counts() {
    let next = |day: &str| {
        let after = at("2026-01-01T00:00:00Z");
        let line = format!("0 0 * * {day}");
        schedule(&line, "UTC")
            .next_after(after)
            .unwrap()
            .format("%a")
            .to_string()
    };
    let expected = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    for (number, name) in expected.iter().enumerate() {
        assert_eq!(next(&number.to_string()), *name);
        assert_eq!(next(&name.to_uppercase()), *name);
    }
    assert_eq!(
        runs("0 0 * * sat-sun", "UTC", "2026-01-01T00:00:00Z", 3),
        [
            "01-03 00:00 +0000",
            "01-04 00:00 +0000",
            "01-10 00:00 +0000"
        ]
    );
}

#[test]
fn aliases_and_periods_are_read() {
    let after = "2026-01-01T00:30:00Z";
    for (text, next) in [
        ("@yearly", "2027-01-01T00:00:00Z"),
        ("@annually", "2027-01-01T00:00:00Z"),
        ("@monthly", "2026-02-01T00:00:00Z"),
        ("@weekly", "2026-01-04T00:00:00Z"),
        ("@daily", "2026-01-02T00:00:00Z"),
        ("@midnight", "2026-01-02T00:00:00Z"),
        ("@hourly", "2026-01-01T01:00:00Z"),
        ("@every 20m", "2026-01-01T00:50:00Z"),
        ("@every 1h30m", "2026-01-01T02:00:00Z"),
        (" @hourly ", "2026-01-01T01:00:00Z"),
    ] {
        assert_eq!(
            schedule(text, "UTC").next_after(at(after)),
            Some(at(next)),
            "{text}"
        );
    }
}

#[test]
fn schedules_that_would_never_run_are_refused() {
    for text in ["0 0 30 2 *", "0 0 31 2 *", "0 0 31 4,6,9,11 *"] {
        assert!(refusal(text).contains("never run"), "{text}");
    }
    assert!(Schedule::parse("0 0 29 2 *", TimeZone::UTC).is_ok());
    assert!(Schedule::parse("0 0 31 2 MON", TimeZone::UTC).is_ok());
}

#[test]
fn what_is_not_a_schedule_is_refused_with_the_reason() {
    assert!(refusal("0 /6 * * *").contains("hour: a step needs a range"));
    assert!(refusal("5/10 * * * *").contains("minute: a step needs a range"));
    assert!(refusal("* * * *").contains("expected 5 fields"));
    assert!(refusal("0 0 * * * *").contains("found 6"));
    assert!(refusal("60 * * * *").contains("minute: expected 0 to 59"));
    assert!(refusal("0 0 0 * *").contains("day of month: expected 1 to 31"));
    assert!(refusal("0 0 * * 8").contains("day of week: expected 0 to 7"));
    assert!(refusal("0 9-5 * * *").contains("ends before it begins"));
    assert!(refusal("*/0 * * * *").contains("the step is 1 to 59"));
    assert!(refusal("? * * * *").contains("minute"));
    assert!(refusal("@reboot").contains("the @ forms are"));
    assert!(refusal("@every 20").contains("with units"));
    assert!(refusal("@every 0s").contains("shortest"));
    for text in [
        "",
        "0 0 L * *",
        "0 0 15W * *",
        "0 0 * * 5#2",
        "+5 * * * *",
        "1,,2 * * * *",
    ] {
        refusal(text);
    }
}

#[test]
fn a_line_that_runs_every_minute_of_its_hours_is_remarked_on() {
    assert!(schedule("30 2 * * *", "UTC").remarks().is_empty());
    assert!(schedule("@every 1m", "UTC").remarks().is_empty());
    assert_eq!(schedule("* 2 * * *", "UTC").remarks().len(), 1);
}

#[test]
fn the_first_run_of_a_period_is_not_told_before_its_beginning_is_known() {
    let (last, now) = (at("2026-01-01T00:00:00Z"), at("2026-01-01T00:07:00Z"));
    let every = schedule("@every 20m", "UTC");
    assert_eq!(every.next_run(None, now), None);
    assert_eq!(
        every.next_run(Some(last), now),
        Some(at("2026-01-01T00:20:00Z"))
    );
    let hourly = schedule("@hourly", "UTC");
    assert_eq!(hourly.next_run(None, now), Some(at("2026-01-01T01:00:00Z")));
}
