//! Who may open a backup: public keys.

use std::fmt;
use std::path::Path;

use super::file::read_key_file;
use super::plugin::{Unattended, unresolved};
use super::{abridged, fingerprint};
use crate::error::{Error, Result};

/// Plugins whose recipients withstand a quantum computer.
const POST_QUANTUM: [&str; 2] = ["pq", "tagpq"];

/// Who may open a backup: one age (X25519), ssh or age plugin public key.
#[derive(Clone)]
pub struct Recipient {
    text: String,
    fingerprint: String,
    key: RecipientKey,
}

#[derive(Clone)]
enum RecipientKey {
    X25519(age::x25519::Recipient),
    Ssh(age::ssh::Recipient),
    Plugin(age::plugin::Recipient),
}

impl Recipient {
    /// Reads `age1...`, `age1NAME1...` (a plugin's), `ssh-ed25519 ...` or `ssh-rsa ...`.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        let refused = |reason: &str| Error::Key {
            what: abridged(text),
            reason: reason.to_owned(),
        };
        if text.starts_with("AGE-SECRET-KEY-") || text.starts_with("AGE-PLUGIN-") {
            return Err(Error::Key {
                what: "recipient".to_owned(),
                reason: "this is a secret identity; give its public recipient (age1...)".to_owned(),
            });
        }
        if text.starts_with("age1") {
            return Self::parse_age(text).ok_or_else(|| {
                refused("neither an age X25519 recipient nor one of an age plugin (mistyped?)")
            });
        }
        let key: age::ssh::Recipient = text.parse().map_err(|_reason| {
            refused("neither an age recipient nor an ssh-ed25519 or ssh-rsa public key")
        })?;
        Ok(Self::new("ssh", key.to_string(), RecipientKey::Ssh(key)))
    }

    fn parse_age(text: &str) -> Option<Self> {
        if let Ok(key) = text.parse::<age::x25519::Recipient>() {
            let text = key.to_string();
            return Some(Self::new("x25519", text, RecipientKey::X25519(key)));
        }
        let key: age::plugin::Recipient = text.parse().ok()?;
        let kind = format!("plugin-{}", key.plugin());
        let text = key.to_string();
        Some(Self::new(&kind, text, RecipientKey::Plugin(key)))
    }

    fn new(kind: &str, text: String, key: RecipientKey) -> Self {
        Self {
            fingerprint: fingerprint(kind, &text),
            text,
            key,
        }
    }

    /// The public key in its own text form.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A short name for manifests and messages: kind and 16 hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The name of the plugin it needs, where it needs one.
    pub fn plugin(&self) -> Option<&str> {
        match &self.key {
            RecipientKey::Plugin(key) => Some(key.plugin()),
            RecipientKey::X25519(_) | RecipientKey::Ssh(_) => None,
        }
    }

    /// Whether it is of a kind meant to withstand a quantum computer.
    pub fn is_post_quantum(&self) -> bool {
        self.plugin()
            .is_some_and(|name| POST_QUANTUM.contains(&name))
    }

    /// What wraps a file key for it. A plugin that is not there is an error.
    pub(crate) fn as_age(&self) -> Result<Box<dyn age::Recipient>> {
        Ok(match &self.key {
            RecipientKey::X25519(key) => Box::new(key.clone()),
            RecipientKey::Ssh(key) => Box::new(key.clone()),
            RecipientKey::Plugin(key) => {
                let one = std::slice::from_ref(key);
                let plugin =
                    age::plugin::RecipientPluginV1::new(key.plugin(), one, &[], Unattended)
                        .map_err(|error| unresolved(&self.text, &error))?;
                Box::new(plugin)
            }
        })
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fingerprint)
    }
}

/// Reads a recipients file: one recipient a line, `#` comments.
pub fn load_recipients(path: &Path) -> Result<Vec<Recipient>> {
    let text = read_key_file(path)?;
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(Recipient::parse)
        .collect()
}
