//! Durations and sizes as people write them: a number with its unit.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Error;
use crate::id::text_serde;

/// A length of time, written with units: `90s`, `1h30m`, `7d`, `2w`, `1y`.
///
/// Units: `ms`, `s`, `m` (minutes), `h`, `d` (24 h), `w` (7 d), `y` (365 d), largest first, each
/// at most once. There is no unit for months: `m` would have two meanings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(Duration);

/// Longest span: a thousand years of 365 days. Keeps every sum of a time and a span in range.
const SPAN_MAX: Duration = Duration::from_hours(1000 * 365 * 24);

const SPAN_UNITS: [(&str, Duration); 7] = [
    ("y", Duration::from_hours(365 * 24)),
    ("w", Duration::from_hours(7 * 24)),
    ("d", Duration::from_hours(24)),
    ("h", Duration::from_hours(1)),
    ("m", Duration::from_mins(1)),
    ("s", Duration::from_secs(1)),
    ("ms", Duration::from_millis(1)),
];

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// A span of whole seconds; more than a thousand years counts as a thousand years.
    pub const fn from_secs(seconds: u64) -> Self {
        let limit = SPAN_MAX.as_secs();
        Self(Duration::from_secs(if seconds < limit {
            seconds
        } else {
            limit
        }))
    }

    /// The span as the standard library's duration.
    pub const fn as_duration(self) -> Duration {
        self.0
    }

    /// The span as a signed duration for sums with times.
    pub fn as_delta(self) -> chrono::TimeDelta {
        chrono::TimeDelta::from_std(self.0).unwrap_or(chrono::TimeDelta::MAX)
    }
}

impl From<Duration> for Span {
    /// Keeps milliseconds; more than a thousand years counts as a thousand years.
    fn from(duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(Duration::from_millis(millis).min(SPAN_MAX))
    }
}

impl FromStr for Span {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |rule| Error::Quantity {
            kind: "duration",
            rule,
            text: text.to_owned(),
        };
        let mut total = Duration::ZERO;
        let mut largest_left: &[(&str, Duration)] = &SPAN_UNITS;
        let mut rest = text;
        if rest.is_empty() {
            return Err(refuse("it must not be empty"));
        }
        while !rest.is_empty() {
            let (count, after_count) =
                split_number(rest).ok_or_else(|| refuse("a number comes first, as in 1h30m"))?;
            let unit_len = after_count
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(after_count.len());
            let (unit, after_unit) = after_count.split_at(unit_len);
            let place = largest_left
                .iter()
                .position(|(name, _)| *name == unit)
                .ok_or_else(|| refuse("units are y w d h m s ms, largest first, each once"))?;
            let (_, length) = largest_left
                .get(place)
                .ok_or_else(|| refuse("unknown unit"))?;
            largest_left = largest_left.get(place + 1..).unwrap_or_default();
            let count = u32::try_from(count).map_err(|_too_large| refuse("too long"))?;
            total = length
                .checked_mul(count)
                .and_then(|part| total.checked_add(part))
                .filter(|sum| *sum <= SPAN_MAX)
                .ok_or_else(|| refuse("at most 1000y"))?;
            rest = after_unit;
        }
        Ok(Self(total))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() {
            return f.pad("0s");
        }
        let mut text = String::new();
        let mut left = self.0.as_millis();
        for (name, length) in SPAN_UNITS.iter().filter(|(name, _)| *name != "w") {
            let count = left / length.as_millis();
            left %= length.as_millis();
            if count > 0 {
                write!(text, "{count}{name}")?;
            }
        }
        f.pad(&text)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

text_serde!(Span);

/// A number of bytes, written with units: `64KiB`, `32MiB`, `10GB`, `512B`.
///
/// `KiB MiB GiB TiB` are powers of 1024, `kB MB GB TB` powers of 1000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(u64);

const SIZE_UNITS: [(&str, u64); 10] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("KB", 1000),
    ("B", 1),
];

impl ByteSize {
    /// A size of so many bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The size for people: at most four digits and the unit, rounded down.
    pub fn rounded(self) -> String {
        let unit = SIZE_UNITS
            .iter()
            .take(4)
            .find(|(_, length)| self.0 >= *length);
        match unit {
            None => format!("{} B", self.0),
            Some((name, length)) => {
                let whole = self.0 / length;
                let tenth = (self.0 % length).saturating_mul(10) / length;
                if whole >= 100 {
                    format!("{whole} {name}")
                } else {
                    format!("{whole}.{tenth} {name}")
                }
            }
        }
    }
}

impl FromStr for ByteSize {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |rule| Error::Quantity {
            kind: "size",
            rule,
            text: text.to_owned(),
        };
        let (count, unit) =
            split_number(text).ok_or_else(|| refuse("a number comes first, as in 64MiB"))?;
        let (_, length) = SIZE_UNITS
            .iter()
            .find(|(name, _)| *name == unit.trim_start_matches(' '))
            .ok_or_else(|| refuse("units are B kB MB GB TB KiB MiB GiB TiB"))?;
        count
            .checked_mul(*length)
            .map(Self)
            .ok_or_else(|| refuse("too large"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |(_, length): &&(&str, u64)| self.0 > 0 && self.0.is_multiple_of(*length);
        let (name, length) = SIZE_UNITS.iter().take(4).find(exact).unwrap_or(&("B", 1));
        f.pad(&format!("{}{name}", self.0 / length))
    }
}

impl fmt::Debug for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

text_serde!(ByteSize);

/// Splits the leading decimal digits off; `None` without any, or when they exceed 64 bits.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_back_from_their_text() {
        for text in [
            "0s",
            "90s",
            "1h30m",
            "7d",
            "1y2d3h4m5s6ms",
            "250ms",
            "1000y",
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.to_string().parse::<Span>().unwrap(), span, "{text}");
        }
        assert_eq!("2w".parse::<Span>().unwrap().to_string(), "14d");
        assert_eq!("90m".parse::<Span>().unwrap().to_string(), "1h30m");
    }

    #[test]
    fn spans_without_a_clear_meaning_are_refused() {
        for text in [
            "", "5", "h", "5x", "5 m", "-5m", "5m5m", "5m1h", "1mo", "1.5h", "1001y", "5M",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text:?} was read");
        }
    }

    #[test]
    fn sizes_read_back_from_their_text() {
        for (text, bytes, shown) in [
            ("0B", 0, "0B"),
            ("512B", 512, "512B"),
            ("64KiB", 65_536, "64KiB"),
            ("10GB", 10_000_000_000, "9765625KiB"),
            ("2 GiB", 2 << 30, "2GiB"),
            ("2048MiB", 2 << 30, "2GiB"),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, shown));
            assert_eq!(shown.parse::<ByteSize>().unwrap(), size);
        }
        for text in ["", "5", "MiB", "5mb", "-1B", "1.5GiB", "99999999TiB", "1B "] {
            assert!(text.parse::<ByteSize>().is_err(), "{text:?} was read");
        }
    }

    #[test]
    fn sizes_for_people_are_short() {
        assert_eq!(ByteSize::new(999).rounded(), "999 B");
        assert_eq!(ByteSize::new(1536).rounded(), "1.5 KiB");
        assert_eq!(ByteSize::new(200 << 20).rounded(), "200 MiB");
        assert_eq!(ByteSize::new(u64::MAX).rounded(), "16777215 TiB");
    }
}
