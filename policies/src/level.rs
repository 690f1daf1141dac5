//! How far a backup has been proven.

use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::id::text_serde;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Level of proof a backup has reached; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Manifest committed, every part present at its size.
    L0,
    /// Every byte read back: digests of the parts, decryption, signature and chain hold.
    L1,
    /// Structure decoded; HashKV recomputed from the backup equals the source's.
    L2,
    /// A new logical cluster booted from it and served, bumped and compacted.
    L3,
    /// What is inside was understood: objects decoded and counted, Secrets readable.
    L4,
    /// The operator's own check passed against the booted cluster.
    L5,
}

impl Level {
    /// Every level, lowest first.
    pub const ALL: [Self; 6] = [Self::L0, Self::L1, Self::L2, Self::L3, Self::L4, Self::L5];

    /// The level in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::L0 => "stored",
            Self::L1 => "intact",
            Self::L2 => "consistent",
            Self::L3 => "restored",
            Self::L4 => "understood",
            Self::L5 => "yours",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::L0 => "L0",
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::L3 => "L3",
            Self::L4 => "L4",
            Self::L5 => "L5",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

impl FromStr for Level {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|level| level.text().eq_ignore_ascii_case(text))
            .ok_or_else(|| Error::Level {
                text: text.to_owned(),
            })
    }
}

text_serde!(Level);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_read_back_from_their_text() {
        assert!(Level::ALL.is_sorted());
        for level in Level::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
            assert_eq!(level.to_string().to_lowercase().parse(), Ok(level));
        }
        assert!("L6".parse::<Level>().is_err());
        assert!("".parse::<Level>().is_err());
    }
}
