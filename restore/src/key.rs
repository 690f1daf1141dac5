//! Keys in files: age identities and recipients, and the ed25519 key that signs what the vault
//! holds. Secrets are created with mode 0600, never printed and wiped from memory after use.

mod file;
mod identity;
mod plugin;
mod recipient;
mod signing;

use crate::digest::Digest;

pub use identity::{Identities, generate_identity};
pub(crate) use plugin::within_patience;
pub use recipient::{Recipient, load_recipients};
pub use signing::{Signer, Verifier};

/// Largest key file read, in bytes.
pub const KEY_FILE_BYTES_MAX: u64 = 1 << 20;

/// What opening a backup may need.
#[derive(Debug, Default)]
pub struct Keys {
    /// Whose signatures count.
    pub trust: Trust,
    /// What can decrypt; without it only stored bytes can be checked.
    pub identities: Option<Identities>,
}

/// Whose signatures count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    keys: Vec<Verifier>,
}

impl Trust {
    /// Only these keys.
    pub fn in_keys(keys: impl IntoIterator<Item = Verifier>) -> Self {
        Self {
            keys: keys.into_iter().collect(),
        }
    }

    /// The keys.
    pub fn keys(&self) -> &[Verifier] {
        &self.keys
    }
}

fn fingerprint(kind: &str, text: &str) -> String {
    let digest = Digest::of(text.as_bytes()).to_string();
    let head: String = digest.chars().take(16).collect();
    format!("{kind}:{head}")
}

/// The beginning of a public text, so that a mistyped secret is not repeated in a message.
fn abridged(text: &str) -> String {
    let head: String = text.chars().take(12).collect();
    if head.len() < text.len() {
        format!("{head}...")
    } else {
        head
    }
}

#[cfg(test)]
mod tests;
