//! A time zone by its IANA name.

use std::fmt;
use std::str::FromStr;

use chrono_tz::Tz;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Error;
use crate::id::text_serde;

/// A time zone of the IANA database, such as `Europe/Berlin`; UTC when nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeZone(Tz);

impl TimeZone {
    /// Coordinated universal time.
    pub const UTC: Self = Self(Tz::UTC);

    /// The zone's rules.
    pub fn tz(self) -> Tz {
        self.0
    }
}

impl Default for TimeZone {
    fn default() -> Self {
        Self::UTC
    }
}

impl FromStr for TimeZone {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.parse().map(Self).map_err(|_unknown| Error::TimeZone {
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.name())
    }
}

text_serde!(TimeZone);
