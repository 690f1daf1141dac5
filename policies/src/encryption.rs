//! The rule that nothing is written in clear by omission.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Error;

/// Most recipients of one policy: each one is a stanza in every part's header.
pub const RECIPIENTS_MAX: usize = 64;

/// Whether backups are sealed, and to whom.
///
/// In the file this is `encryption: none`, or a section with `recipients` and `recipients_file`.
/// There is no default: a file that says nothing is refused, and so is an empty list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EncryptionRule {
    /// Backups are stored in clear, because the file says so in these words.
    None,
    /// Backups are sealed to each of these; any one of their identities opens them.
    Recipients {
        /// age or ssh recipients, as text.
        recipients: Vec<String>,
        /// A file with further recipients, one a line.
        recipients_file: Option<String>,
    },
}

impl EncryptionRule {
    /// Refuses a rule that would encrypt to nobody.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |rule: &str| {
            Err(Error::Policy {
                setting: "policies.encryption",
                rule: rule.to_owned(),
            })
        };
        match self {
            Self::None => Ok(()),
            Self::Recipients {
                recipients,
                recipients_file,
            } => {
                if recipients.len() > RECIPIENTS_MAX {
                    return refuse("at most 64 recipients");
                }
                if recipients.iter().any(|one| one.trim().is_empty()) {
                    return refuse("a recipient is empty");
                }
                if recipients.is_empty() && recipients_file.is_none() {
                    return refuse(
                        "no recipient is given; name at least one, or write `encryption: none`",
                    );
                }
                Ok(())
            }
        }
    }

    /// The last gate before writing: `sealed_to` is the number of recipients that were read.
    ///
    /// Refuses when backups are to be sealed and nobody could open them.
    pub fn check_sealed_to(&self, sealed_to: usize) -> Result<(), Error> {
        self.check()?;
        let rule = match (self, sealed_to) {
            (Self::Recipients { .. }, 0) => "the recipients file names nobody",
            (Self::None, 1..) => "recipients are at hand although the file says `none`",
            _ => return Ok(()),
        };
        Err(Error::Policy {
            setting: "policies.encryption",
            rule: rule.to_owned(),
        })
    }
}

impl Serialize for EncryptionRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str("none"),
            Self::Recipients {
                recipients,
                recipients_file,
            } => Section {
                recipients: recipients.clone(),
                recipients_file: recipients_file.clone(),
            }
            .serialize(serializer),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    #[serde(default)]
    recipients: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recipients_file: Option<String>,
}

impl<'de> Deserialize<'de> for EncryptionRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RuleVisitor;

        impl<'de> Visitor<'de> for RuleVisitor {
            type Value = EncryptionRule;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the word none, or a section with recipients")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<EncryptionRule, E> {
                match text {
                    "none" => Ok(EncryptionRule::None),
                    _ => Err(E::custom(format!(
                        "unknown encryption {text:?}, expected none"
                    ))),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EncryptionRule, A::Error> {
                let section =
                    Section::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                let rule = EncryptionRule::Recipients {
                    recipients: section.recipients,
                    recipients_file: section.recipients_file,
                };
                rule.check().map_err(serde::de::Error::custom)?;
                Ok(rule)
            }
        }

        deserializer.deserialize_any(RuleVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<EncryptionRule, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn only_the_word_none_turns_encryption_off() {
        assert_eq!(read("\"none\""), Ok(EncryptionRule::None));
        for text in ["null", "\"\"", "\"None\"", "\"off\"", "false", "{}", "[]"] {
            assert!(read(text).is_err(), "{text} was read");
        }
        assert!(
            read(r#"{"recipients": []}"#)
                .unwrap_err()
                .contains("encryption: none")
        );
        assert!(read(r#"{"recipients": [" "]}"#).is_err());
        assert!(
            read(r#"{"recipient": ["age1x"]}"#)
                .unwrap_err()
                .contains("unknown field")
        );
    }

    #[test]
    fn a_rule_reads_back_as_written() {
        for text in [
            "\"none\"",
            r#"{"recipients":["age1x"],"recipients_file":"r.txt"}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(text).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn what_was_read_must_agree_with_the_rule_before_anything_is_written() {
        let from_file = EncryptionRule::Recipients {
            recipients: Vec::new(),
            recipients_file: Some("r.txt".to_owned()),
        };
        assert!(from_file.check_sealed_to(2).is_ok());
        assert!(from_file.check_sealed_to(0).is_err());
        assert!(EncryptionRule::None.check_sealed_to(0).is_ok());
        assert!(EncryptionRule::None.check_sealed_to(1).is_err());
    }
}
