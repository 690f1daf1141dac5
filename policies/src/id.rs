//! Names of things on the backup side. Each is its own type, so that none is taken for another.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::{Uuid, Version};

use crate::Error;

/// Random bytes a new id is made of, beside its time.
pub const ID_RANDOM_BYTES: usize = 10;

macro_rules! time_ordered_id {
    ($name:ident, $kind:literal, $doc:literal) => {
        #[doc = $doc]
        ///
        /// A version 7 UUID: ids made later sort later (to the millisecond). Text form is the
        /// canonical one, lowercase with hyphens, and no other form is read: an id is also an
        /// object name, and one thing must not have two names.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// Makes an id from the time (milliseconds are kept) and random bytes of the caller.
            ///
            /// Times before 1970 count as 1970.
            pub fn new(at: DateTime<Utc>, random: [u8; ID_RANDOM_BYTES]) -> Self {
                let millis = u64::try_from(at.timestamp_millis()).unwrap_or(0);
                Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
            }

            /// The time the id was made at, as its maker's clock said.
            pub fn made_at(&self) -> Option<DateTime<Utc>> {
                let (seconds, nanos) = self.0.get_timestamp()?.to_unix();
                DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let refused = || Error::Id {
                    kind: $kind,
                    text: text.to_owned(),
                };
                let id = Uuid::try_parse(text).map_err(|_malformed| refused())?;
                let is_canonical = id.hyphenated().to_string() == text;
                if is_canonical && id.get_version() == Some(Version::SortRand) {
                    Ok(Self(id))
                } else {
                    Err(refused())
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0.hyphenated())
            }
        }

        text_serde!($name);
    };
}

/// Serializes a type as its `Display` text and reads it by `FromStr`.
macro_rules! text_serde {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use text_serde;

time_ordered_id!(SnapshotId, "snapshot", "Names one backup in a vault.");
time_ordered_id!(
    DrillId,
    "drill",
    "Names one drill, its scratch directory and its report."
);

/// One unbroken run of backups written by one fenced owner.
///
/// A new owner, and the first backup after a restore, start the next generation; a writer that
/// finds a higher one in the vault has been replaced and stops.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Generation(pub u64);

/// Position of a backup in its vault's chain: the first is 1, each next one is one more.
///
/// The order of backups is this order, whatever any clock said.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Sequence(pub u64);

macro_rules! counter {
    ($name:ident) => {
        impl $name {
            /// The first of a chain.
            pub const FIRST: Self = Self(1);

            /// The one after this; `None` at the end of the numbers.
            #[must_use]
            pub fn next(self) -> Option<Self> {
                self.0.checked_add(1).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(Generation);
counter!(Sequence);

/// Longest cluster name, in bytes.
pub const CLUSTER_NAME_BYTES_MAX: usize = 63;

/// Name of the cluster whose data a vault keeps; also one folder in the vault.
///
/// 1 to 63 of `a-z A-Z 0-9 . _ -`, beginning and ending with a letter or digit: safe as a path
/// part, an object key and a label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(String);

impl ClusterName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClusterName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |rule| {
            Err(Error::ClusterName {
                rule,
                text: text.to_owned(),
            })
        };
        let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if text.is_empty() {
            return refuse("it must not be empty");
        }
        if text.len() > CLUSTER_NAME_BYTES_MAX {
            return refuse("at most 63 characters");
        }
        if !text.chars().all(is_inner) {
            return refuse("only letters, digits and . _ -");
        }
        let is_edge = |c: char| c.is_ascii_alphanumeric();
        if !(text.starts_with(is_edge) && text.ends_with(is_edge)) {
            return refuse("it must begin and end with a letter or digit");
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

text_serde!(ClusterName);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(millis).unwrap()
    }

    #[test]
    fn ids_made_later_sort_later_and_know_their_time() {
        let early = SnapshotId::new(at(1_700_000_000_123), [0xff; ID_RANDOM_BYTES]);
        let late = SnapshotId::new(at(1_700_000_000_124), [0; ID_RANDOM_BYTES]);
        assert!(early < late);
        assert!(early.to_string() < late.to_string());
        assert_eq!(early.made_at(), Some(at(1_700_000_000_123)));
    }

    #[test]
    fn an_id_has_one_text_form_only() {
        let id = SnapshotId::new(at(1_700_000_000_123), [7; ID_RANDOM_BYTES]);
        let text = id.to_string();
        assert_eq!(text.parse(), Ok(id));
        for other in [
            text.to_uppercase(),
            text.replace('-', ""),
            format!("{{{text}}}"),
            format!("urn:uuid:{text}"),
            format!("{text} "),
            "../../etc/passwd".to_owned(),
            "7f1d9a52-0000-4000-8000-000000000000".to_owned(),
            String::new(),
        ] {
            assert!(other.parse::<SnapshotId>().is_err(), "{other:?} was read");
        }
    }

    #[test]
    fn cluster_names_are_safe_as_path_parts() {
        for good in ["a", "prod-eu.1", "A_b", "0", &"x".repeat(63)] {
            assert_eq!(good.parse::<ClusterName>().unwrap().as_str(), good);
        }
        let long = "x".repeat(64);
        for bad in [
            "", ".", "..", "../x", "a/b", "a\\b", "-a", "a-", ".a", "a b", "\u{e9}", &long,
        ] {
            assert!(bad.parse::<ClusterName>().is_err(), "{bad:?} was read");
        }
    }

    #[test]
    fn ids_travel_as_text_in_json() {
        let id = DrillId::new(at(0), [1; ID_RANDOM_BYTES]);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("\"{id}\""));
        assert_eq!(serde_json::from_str::<DrillId>(&json).unwrap(), id);
        assert!(serde_json::from_str::<ClusterName>("\"a/b\"").is_err());
    }
}
