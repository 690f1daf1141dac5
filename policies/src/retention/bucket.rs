//! The hour, day, week, month or year a backup belongs to.

use chrono::{DateTime, Datelike as _, NaiveDate, Offset as _, TimeZone as _, Utc, Weekday};
use chrono_tz::Tz;

/// A length of calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calendar {
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Calendar {
    /// A number for the hour, day, ... that `time` lies in on the clocks of `zone`. Equal numbers
    /// mean the same one; the two passes of a repeated hour are two hours.
    pub(super) fn bucket(self, time: DateTime<Utc>, zone: Tz) -> i64 {
        let local = time.with_timezone(&zone);
        let date = local.date_naive();
        let days = |date: NaiveDate| i64::from(date.num_days_from_ce());
        match self {
            Self::Hour => {
                let offset = zone.offset_from_utc_datetime(&time.naive_utc()).fix();
                let offset = i64::from(offset.local_minus_utc());
                (time.timestamp() + offset).div_euclid(3600) * 3600 - offset
            }
            Self::Day => days(date),
            Self::Week => days(date.week(Weekday::Mon).checked_first_day().unwrap_or(date)),
            Self::Month => i64::from(date.year()) * 12 + i64::from(date.month0()),
            Self::Year => i64::from(date.year()),
        }
    }
}
