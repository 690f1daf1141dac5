//! Whether the changes between backups are captured, and how often.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Error, Rpo, Span};

/// Shortest interval.
const EVERY_MIN: Span = Span::from_secs(1);

/// Longest interval: whoever wants more needs backups only.
const EVERY_MAX: Span = Span::from_secs(3600);

/// Longest silence of a source without changes.
const HEARTBEAT_MAX: Span = Span::from_secs(300);

/// Whether a source is followed between its backups.
///
/// In the file this is `capture: off`, or a section with `every`. Default: `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CapturePolicy {
    /// Backups alone.
    #[default]
    Off,
    /// What has changed is stored so often, 1 s to 1 h.
    Every(Span),
}

impl CapturePolicy {
    /// The interval, where there is one.
    pub const fn every(self) -> Option<Span> {
        match self {
            Self::Off => None,
            Self::Every(every) => Some(every),
        }
    }

    /// How often something is stored although nothing has changed: the vault alone must show that
    /// `rpo` is kept.
    pub fn heartbeat(self, rpo: Option<Rpo>) -> Span {
        let every = self.every().unwrap_or(EVERY_MIN);
        let promised = rpo.map_or(HEARTBEAT_MAX, |rpo| Span::from(rpo.0.as_duration() / 3));
        promised.min(HEARTBEAT_MAX).max(every)
    }

    /// How old the newest stored change, or the news that there was none, may be before something
    /// is wrong: a heartbeat and some intervals to gather, store and try again.
    pub fn stalled_after(self, rpo: Option<Rpo>) -> Span {
        let every = self.every().unwrap_or(EVERY_MIN).as_duration();
        let tries = (every * 3).max(std::time::Duration::from_mins(1));
        Span::from(self.heartbeat(rpo).as_duration() + tries)
    }

    /// Refuses an interval that is too short or too long.
    pub fn check(self) -> Result<(), Error> {
        match self {
            Self::Every(every) if !(EVERY_MIN..=EVERY_MAX).contains(&every) => Err(Error::Policy {
                setting: "policies.capture.every",
                rule: format!("{every} is not between {EVERY_MIN} and {EVERY_MAX}"),
            }),
            _ => Ok(()),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    every: Span,
}

impl Serialize for CapturePolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Off => serializer.serialize_str("off"),
            Self::Every(every) => Section { every }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for CapturePolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = CapturePolicy;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`off`, or a section such as `{every: 10s}`")
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<CapturePolicy, E> {
                match word {
                    "off" => Ok(CapturePolicy::Off),
                    _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
                }
            }

            /// Older YAML reads `off` as false.
            fn visit_bool<E: serde::de::Error>(self, is_on: bool) -> Result<CapturePolicy, E> {
                if is_on {
                    return Err(E::invalid_value(Unexpected::Bool(is_on), &self));
                }
                Ok(CapturePolicy::Off)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CapturePolicy, A::Error> {
                let section = Section::deserialize(MapAccessDeserializer::new(map))?;
                Ok(CapturePolicy::Every(section.every))
            }
        }
        deserializer.deserialize_any(Words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<CapturePolicy, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn capture_is_off_or_has_an_interval_and_reads_back_as_it_was_written() {
        let every = CapturePolicy::Every(Span::from_secs(10));
        assert_eq!(read(r#"{"every":"10s"}"#), Ok(every));
        assert_eq!(read(r#""off""#), Ok(CapturePolicy::Off));
        assert_eq!(read("false"), Ok(CapturePolicy::Off));
        for policy in [every, CapturePolicy::Off] {
            assert_eq!(read(&serde_json::to_string(&policy).unwrap()), Ok(policy));
        }
        for wrong in [
            r#""on""#,
            "true",
            "{}",
            r#"{"every":10}"#,
            r#"{"every":"10s","a":1}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_interval_is_a_second_to_an_hour() {
        for (seconds, is_good) in [(1, true), (3600, true), (0, false), (3601, false)] {
            let policy = CapturePolicy::Every(Span::from_secs(seconds));
            assert_eq!(policy.check().is_ok(), is_good, "{seconds}");
        }
        assert_eq!(CapturePolicy::Off.check(), Ok(()));
    }

    #[test]
    fn a_silent_source_is_heard_of_often_enough_for_the_objective() {
        let policy = CapturePolicy::Every(Span::from_secs(10));
        let heartbeat = |rpo: u64| policy.heartbeat(Some(Rpo(Span::from_secs(rpo))));
        assert_eq!(policy.heartbeat(None), Span::from_secs(300));
        assert_eq!(heartbeat(7200), Span::from_secs(300));
        assert_eq!(heartbeat(60), Span::from_secs(20));
        assert_eq!(heartbeat(15), Span::from_secs(10));
        assert_eq!(
            policy.stalled_after(Some(Rpo(Span::from_secs(60)))),
            Span::from_secs(80)
        );
    }
}
