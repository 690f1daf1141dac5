//! One field of a cron line: a list of numbers, ranges and steps.

use std::collections::BTreeSet;

/// What a field may hold.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) first: u32,
    pub(super) last: u32,
    /// Three-letter names of the values, beginning at `first`.
    pub(super) names: &'static [&'static str],
    pub(super) allows_question_mark: bool,
}

pub(super) const MINUTE: Kind = Kind {
    name: "minute",
    first: 0,
    last: 59,
    names: &[],
    allows_question_mark: false,
};
pub(super) const HOUR: Kind = Kind {
    name: "hour",
    first: 0,
    last: 23,
    names: &[],
    allows_question_mark: false,
};
pub(super) const DAY: Kind = Kind {
    name: "day of month",
    first: 1,
    last: 31,
    names: &[],
    allows_question_mark: true,
};
pub(super) const MONTH: Kind = Kind {
    name: "month",
    first: 1,
    last: 12,
    names: &[
        "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
    ],
    allows_question_mark: false,
};
pub(super) const WEEKDAY: Kind = Kind {
    name: "day of week",
    first: 0,
    last: 7,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    allows_question_mark: true,
};

/// A field that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    /// The values it names, Sunday as 0 or 7 as written.
    pub(super) values: BTreeSet<u32>,
    /// It is exactly `*` (or `?`); `*/2` is a restriction.
    pub(super) is_unrestricted: bool,
    /// It has a `*`: it follows the clock and does not name times.
    pub(super) is_wildcard: bool,
}

impl Field {
    pub(super) fn parse(text: &str, kind: &Kind) -> Result<Self, String> {
        if text == "*" || (text == "?" && kind.allows_question_mark) {
            let values = (kind.first..=kind.last).collect();
            return Ok(Self {
                values,
                is_unrestricted: true,
                is_wildcard: true,
            });
        }
        let mut values = BTreeSet::new();
        for item in text.split(',') {
            values.extend(parse_item(item, kind)?);
        }
        Ok(Self {
            values,
            is_unrestricted: false,
            is_wildcard: has_wildcard(text),
        })
    }

    /// The values as a comma-separated list, each shown by `show`.
    pub(super) fn list(&self, show: impl Fn(u32) -> String) -> String {
        let shown: Vec<String> = self.values.iter().map(|value| show(*value)).collect();
        shown.join(",")
    }
}

fn has_wildcard(text: &str) -> bool {
    text.split(',').any(|item| item.starts_with('*'))
}

/// Reads `a`, `a-b`, `*`, `a-b/n` or `*/n`.
fn parse_item(item: &str, kind: &Kind) -> Result<impl Iterator<Item = u32> + use<>, String> {
    let name = kind.name;
    let (range, step) = match item.split_once('/') {
        None => (item, None),
        Some((range, step)) => (range, Some(step)),
    };
    let (from, to) = match range.split_once('-') {
        _ if range == "*" => (kind.first, if kind.last == 7 { 6 } else { kind.last }),
        Some((from, to)) => parse_range(from, to, kind)?,
        None if step.is_some() => {
            return Err(format!(
                "{name}: a step needs a range or *, as in */5 or 10-50/5, not {item:?}"
            ));
        }
        None => {
            let value = parse_value(range, kind)?;
            (value, value)
        }
    };
    let step = match step {
        None => 1,
        Some(text) => parse_number(text)
            .filter(|step| (1..=kind.last).contains(step))
            .ok_or_else(|| format!("{name}: the step is 1 to {}, not {text:?}", kind.last))?,
    };
    let step = usize::try_from(step).map_err(|_too_large| format!("{name}: step too large"))?;
    Ok((from..=to).step_by(step))
}

fn parse_range(from: &str, to: &str, kind: &Kind) -> Result<(u32, u32), String> {
    let start = parse_value(from, kind)?;
    let mut end = parse_value(to, kind)?;
    // Sunday closes a week as well as it opens one: FRI-SUN.
    if kind.last == 7 && end == 0 && start > 0 && parse_number(to).is_none() {
        end = 7;
    }
    if start > end {
        return Err(format!(
            "{}: the range {from}-{to} ends before it begins",
            kind.name
        ));
    }
    Ok((start, end))
}

fn parse_value(text: &str, kind: &Kind) -> Result<u32, String> {
    let value = match kind
        .names
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text))
    {
        Some(place) => u32::try_from(place).ok().map(|place| kind.first + place),
        None => parse_number(text),
    };
    value
        .filter(|value| (kind.first..=kind.last).contains(value))
        .ok_or_else(|| {
            format!(
                "{}: expected {} to {}, not {text:?}",
                kind.name, kind.first, kind.last
            )
        })
}

/// Reads plain digits: no sign, no space, nothing longer than any field needs.
fn parse_number(text: &str) -> Option<u32> {
    let is_plain = (1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}
