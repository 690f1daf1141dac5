//! Typed values of flags, in Go's notations: durations, booleans, sizes.

use std::time::Duration;

use super::UsageError;

/// A boolean as Go's `strconv.ParseBool` takes it.
pub(super) fn boolean(flag: &str, text: &str) -> Result<bool, UsageError> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(invalid(flag, text)),
    }
}

/// A number of the type wanted.
pub(super) fn number<T: std::str::FromStr>(flag: &str, text: &str) -> Result<T, UsageError> {
    text.parse().map_err(|_error| invalid(flag, text))
}

/// A duration as Go writes it: `1h30m`, `500ms`, `1.5s`, `0`.
pub(super) fn duration(flag: &str, text: &str) -> Result<Duration, UsageError> {
    parse_duration(text).ok_or_else(|| invalid(flag, text))
}

/// The message for a value that does not fit its flag.
pub(super) fn invalid(flag: &str, text: &str) -> UsageError {
    UsageError::new(format!("invalid value {text:?} for flag -{flag}"))
}

fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (figure, tail) = rest.split_at_checked(end)?;
        let figure: f64 = figure.parse().ok()?;
        let end = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(end)?;
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(figure * seconds).ok()?)?;
        rest = tail;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::{boolean, parse_duration};
    use std::time::Duration;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("1.5s", 1500),
            ("1h30m", 5_400_000),
            ("2h0m1s", 7_201_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in ["", "5", "s", "1d", "-1s", "1..5s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn booleans_are_read_as_go_writes_them() {
        assert!(boolean("f", "T").unwrap());
        assert!(!boolean("f", "0").unwrap());
        assert!(boolean("f", "yes").is_err());
    }
}
