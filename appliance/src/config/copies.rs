//! Further vaults: each gets what the first one has.

use std::fmt;
use std::str::FromStr;

use holdfast_restore::vault::VaultSpec;
use serde::{Deserialize, Serialize};

/// What the vault of `restore.vault` is called.
pub(crate) const FIRST: &str = "first";

/// Most copies of one appliance.
pub(super) const COPIES_MAX: usize = 8;

/// Longest name of a vault, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// What a further vault is called in commands, in `status` and in metrics.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct VaultName(String);

impl VaultName {
    /// The name as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VaultName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let is_sound = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.chars().all(is_inner)
            && text.starts_with(|c: char| c.is_ascii_alphanumeric());
        match (is_sound, text) {
            (_, FIRST) => Err(format!(
                "`{FIRST}` is what the vault of `restore.vault` is called"
            )),
            (true, _) => Ok(Self(text.to_owned())),
            (false, _) => Err(format!(
                "`{text}` is no name of a vault: 1 to {NAME_BYTES_MAX} letters, digits, _ and -"
            )),
        }
    }
}

impl TryFrom<String> for VaultName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<VaultName> for String {
    fn from(name: VaultName) -> Self {
        name.0
    }
}

impl fmt::Display for VaultName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A further vault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CopyVault {
    /// Its name.
    pub(crate) name: VaultName,
    /// Where it is.
    pub(crate) vault: VaultSpec,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_plain_word_and_not_that_of_the_first_vault() {
        for good in ["offsite", "b2", "eu-west_1"] {
            assert_eq!(good.parse::<VaultName>().unwrap().as_str(), good);
        }
        for bad in ["", "first", "a/b", "..", "-x", "a b", &"x".repeat(64)] {
            assert!(bad.parse::<VaultName>().is_err(), "{bad}");
        }
    }
}
