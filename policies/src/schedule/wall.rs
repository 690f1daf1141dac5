//! From wall time to instants, through the days when clocks are set.

use chrono::{
    DateTime, MappedLocalTime, NaiveDateTime, Offset as _, TimeDelta, TimeZone as _, Utc,
};
use chrono_tz::Tz;

use super::line::Line;

/// No zone has moved its clock by more than a day; one hour of margin.
const SHIFT_MAX: TimeDelta = TimeDelta::hours(25);

/// Wall times looked at for one answer. A line of every minute, over twice the largest shift.
const STEPS_MAX: usize = 4 * 25 * 60;

/// The instants one wall time stands for, in order.
#[derive(Clone, Copy)]
struct Instants {
    first: DateTime<Utc>,
    second: Option<DateTime<Utc>>,
}

/// The first run of `line` after `after` on the clocks of `zone`.
pub(super) fn next_after(line: &Line, zone: Tz, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let wall = after.with_timezone(&zone).naive_local();
    let back = if is_clock_set_around(zone, after) {
        SHIFT_MAX
    } else {
        TimeDelta::zero()
    };
    let mut from = whole_seconds(wall.checked_sub_signed(back)?);
    let mut best: Option<DateTime<Utc>> = None;
    for _ in 0..STEPS_MAX {
        let Some(candidate) = line.first_from(from) else {
            break;
        };
        from = candidate.checked_add_signed(TimeDelta::seconds(1))?;
        let Some(instants) = resolve(line, zone, candidate) else {
            continue;
        };
        // First instants never decrease from one wall time to the next, so none later can win.
        if best.is_some_and(|best| instants.first >= best) {
            break;
        }
        let runs = [Some(instants.first), instants.second];
        let coming = runs.into_iter().flatten().filter(|run| *run > after).min();
        best = best.into_iter().chain(coming).min();
        if best.is_some() && instants.first > after {
            break;
        }
    }
    best
}

fn whole_seconds(wall: NaiveDateTime) -> NaiveDateTime {
    use chrono::Timelike as _;
    wall.with_nanosecond(0).unwrap_or(wall)
}

fn is_clock_set_around(zone: Tz, at: DateTime<Utc>) -> bool {
    let offset = |time: DateTime<Utc>| zone.offset_from_utc_datetime(&time.naive_utc()).fix();
    let here = offset(at);
    [-SHIFT_MAX, SHIFT_MAX]
        .into_iter()
        .filter_map(|shift| at.checked_add_signed(shift))
        .any(|near| offset(near) != here)
}

fn resolve(line: &Line, zone: Tz, wall: NaiveDateTime) -> Option<Instants> {
    match zone.from_local_datetime(&wall) {
        MappedLocalTime::Single(time) => Some(Instants {
            first: time.to_utc(),
            second: None,
        }),
        MappedLocalTime::Ambiguous(earlier, later) => Some(Instants {
            first: earlier.to_utc(),
            second: line.repeats_in_a_fold().then(|| later.to_utc()),
        }),
        MappedLocalTime::None if line.has_wildcard_hour() => None,
        MappedLocalTime::None => first_after_jump(zone, wall).map(|first| Instants {
            first,
            second: None,
        }),
    }
}

/// The instant at which the clock jumped over `wall`: bisected to the second.
fn first_after_jump(zone: Tz, wall: NaiveDateTime) -> Option<DateTime<Utc>> {
    let is_past = |time: DateTime<Utc>| time.with_timezone(&zone).naive_local() > wall;
    let mut low = wall.checked_sub_signed(SHIFT_MAX)?.and_utc();
    let mut high = wall.checked_add_signed(SHIFT_MAX)?.and_utc();
    if is_past(low) || !is_past(high) {
        return None;
    }
    while high - low > TimeDelta::seconds(1) {
        let middle = low + (high - low) / 2;
        let middle = DateTime::from_timestamp(middle.timestamp(), 0)?;
        if is_past(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}
