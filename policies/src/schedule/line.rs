//! A cron line of five fields, on wall time without a zone.

use std::str::FromStr as _;

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};

use super::field::{self, Field};

/// Minute, hour, day of month, month, day of week.
#[derive(Clone)]
pub(super) struct Line {
    minute: Field,
    hour: Field,
    /// One engine schedule, or two when both day fields are restricted: either day will do.
    engines: Vec<cron::Schedule>,
}

impl Line {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(format!(
                "expected 5 fields (minute hour day month weekday), found {}",
                fields.len()
            ));
        };
        let minute = Field::parse(minute, &field::MINUTE)?;
        let hour = Field::parse(hour, &field::HOUR)?;
        let day = Field::parse(day, &field::DAY)?;
        let month = Field::parse(month, &field::MONTH)?;
        let weekday = Field::parse(weekday, &field::WEEKDAY)?;

        let days = engine_list(&day, |value| value.to_string());
        let weekdays = engine_list(&weekday, weekday_name);
        let times = format!(
            "0 {} {}",
            minute.list(|value| value.to_string()),
            hour.list(|value| value.to_string())
        );
        let months = month.list(|value| value.to_string());
        let lines = if day.is_unrestricted || weekday.is_unrestricted {
            vec![format!("{times} {days} {months} {weekdays}")]
        } else {
            vec![
                format!("{times} {days} {months} *"),
                format!("{times} * {months} {weekdays}"),
            ]
        };
        let engines = lines
            .iter()
            .map(|line| cron::Schedule::from_str(line).map_err(|error| error.to_string()))
            .collect::<Result<_, _>>()?;
        let line = Self {
            minute,
            hour,
            engines,
        };
        // Eight years hold every date there is, the 29th of February among them.
        match line.first_from(DateTime::UNIX_EPOCH.naive_utc()) {
            Some(_) => Ok(line),
            None => Err("no month has such a day, it would never run".to_owned()),
        }
    }

    /// The first wall time at or after `from` (whole seconds). `None` beyond the year 2100.
    pub(super) fn first_from(&self, from: NaiveDateTime) -> Option<NaiveDateTime> {
        let before = from.checked_sub_signed(TimeDelta::seconds(1))?.and_utc();
        let next =
            |engine: &cron::Schedule| -> Option<DateTime<Utc>> { engine.after(&before).next() };
        self.engines
            .iter()
            .filter_map(next)
            .min()
            .map(|time| time.naive_utc())
    }

    /// The hours follow the clock: a run lost in a jump is not made up.
    pub(super) fn has_wildcard_hour(&self) -> bool {
        self.hour.is_wildcard
    }

    /// Hours or minutes follow the clock: a repeated hour is served twice.
    pub(super) fn repeats_in_a_fold(&self) -> bool {
        self.hour.is_wildcard || self.minute.is_wildcard
    }

    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.minute.is_unrestricted {
            let hours = if self.hour.is_unrestricted {
                "every hour"
            } else {
                "each of its hours"
            };
            remarks.push(format!("the minute is *: it runs 60 times in {hours}"));
        }
        remarks
    }
}

fn engine_list(field: &Field, show: impl Fn(u32) -> String) -> String {
    if field.is_unrestricted {
        "*".to_owned()
    } else {
        field.list(show)
    }
}

/// The engine counts weekdays from 1; names leave no doubt.
fn weekday_name(value: u32) -> String {
    let name = match value {
        1 => "MON",
        2 => "TUE",
        3 => "WED",
        4 => "THU",
        5 => "FRI",
        6 => "SAT",
        _ => "SUN",
    };
    name.to_owned()
}
