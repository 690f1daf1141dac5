//! When something runs: five-field cron lines, `@hourly` and its kin, `@every 20m`.
//!
//! A schedule lives in a time zone. Where the clock jumps forward over a run, the run happens at
//! the first instant after the jump; where the clock repeats an hour, a run happens once. A line
//! whose hours (or minutes) are a wildcard follows the clock instead: nothing is made up in a
//! jump of its wildcard hours, and the repeated hour is served twice.
//!
//! The `cron` crate is the engine for walking wall times; its grammar is not ours. It reads 1 as
//! Sunday, knows no five-field line, skips runs in a jump and repeats them out of order, so lines
//! are read here and handed to it field by field, as plain lists.

mod due;
mod field;
mod line;
mod wall;
mod zone;

use std::fmt;
use std::str::FromStr as _;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;

pub use due::{Due, LATE_MAX, MISSED_COUNT_MAX, MissedRun, RunDecision, RunState};
pub use zone::TimeZone;

use crate::{Error, Span};
use line::Line;

/// A schedule that was read, understood and found to run at some time.
#[derive(Clone)]
pub struct Schedule {
    text: String,
    zone: TimeZone,
    rule: Rule,
}

#[derive(Clone)]
enum Rule {
    Line(Box<Line>),
    Every(TimeDelta),
}

/// Shortest period of `@every`.
pub const PERIOD_MIN: Span = Span::from_secs(1);

impl Schedule {
    /// Reads an expression for a time zone. Refuses what would never run.
    pub fn parse(text: &str, zone: TimeZone) -> Result<Self, Error> {
        let text = text.trim();
        let refuse = |rule: String| Error::Schedule {
            rule,
            text: text.to_owned(),
        };
        let rule = if let Some(period) = text.strip_prefix("@every ") {
            Rule::Every(parse_period(period.trim()).map_err(refuse)?)
        } else {
            let line = if text.starts_with('@') {
                alias(text).ok_or_else(|| refuse(ALIASES.to_owned()))?
            } else {
                text
            };
            Rule::Line(Box::new(Line::parse(line).map_err(refuse)?))
        };
        Ok(Self {
            text: text.to_owned(),
            zone,
            rule,
        })
    }

    /// The first run after `after`. `None` beyond the year 2100.
    ///
    /// For `@every`, this is one period after `after`.
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match &self.rule {
            Rule::Every(period) => after.checked_add_signed(*period),
            Rule::Line(line) => wall::next_after(line, self.zone.tz(), after),
        }
    }

    /// The next run after `now`, where the last one began at `last`. `None` where the first run
    /// depends on when the daemon starts: `@every` counts from there.
    pub fn next_run(
        &self,
        last: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        match (&self.rule, last) {
            (Rule::Every(_), None) => None,
            (_, last) => self.next_after(last.unwrap_or(now)),
        }
    }

    /// The next `count` runs after `after`, in the schedule's time zone.
    pub fn preview(&self, after: DateTime<Utc>, count: usize) -> Vec<DateTime<Tz>> {
        let mut last = after;
        let mut runs = Vec::with_capacity(count.min(1024));
        while runs.len() < count {
            let Some(next) = self.next_after(last) else {
                break;
            };
            last = next;
            runs.push(next.with_timezone(&self.zone.tz()));
        }
        runs
    }

    /// The longest time between two of the next 3,000 runs; `None` when it does not run twice.
    pub fn longest_gap(&self) -> Option<Span> {
        let begin = DateTime::from_timestamp(GAPS_FROM, 0)?;
        let runs = self.preview(begin, GAPS_LOOKED_AT);
        let gaps = runs.iter().zip(runs.iter().skip(1));
        let longest = gaps.map(|(earlier, later)| *later - *earlier).max()?;
        longest.to_std().ok().map(Span::from)
    }

    /// The zone whose clock the schedule follows.
    pub fn zone(&self) -> TimeZone {
        self.zone
    }

    /// What a reader of this schedule may not expect; empty for an ordinary one.
    pub fn remarks(&self) -> Vec<String> {
        match &self.rule {
            Rule::Every(_) => Vec::new(),
            Rule::Line(line) => line.remarks(),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schedule({:?}, {})", self.text, self.zone)
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.zone == other.zone
    }
}

impl Eq for Schedule {}

fn parse_period(text: &str) -> Result<TimeDelta, String> {
    let period = Span::from_str(text)
        .map_err(|_unread| "write the period with units, as in @every 20m".to_owned())?;
    if period < PERIOD_MIN {
        return Err("the shortest period is 1s".to_owned());
    }
    Ok(period.as_delta())
}

/// Where the search for the longest gap begins: the first of January 2024, in seconds since 1970.
const GAPS_FROM: i64 = 1_704_067_200;
/// Runs it looks at: more than a week of one every five minutes.
const GAPS_LOOKED_AT: usize = 3000;

const ALIASES: &str = "the @ forms are @yearly @annually @monthly @weekly @daily @midnight \
                       @hourly and @every 20m";

fn alias(word: &str) -> Option<&'static str> {
    Some(match word {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
