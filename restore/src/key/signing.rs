//! The ed25519 key that signs what the vault holds, and its public side.

use std::fmt;
use std::path::Path;

use ed25519_dalek::{SigningKey, VerifyingKey};
use rand::RngExt as _;
use zeroize::{Zeroize as _, Zeroizing};

use super::file::{read_key_file, write_secret};
use super::{abridged, fingerprint};
use crate::error::{Error, Result};

pub(super) const SIGNING_PREFIX: &str = "holdfast-signing-key-v1:";
const VERIFYING_PREFIX: &str = "holdfast-verifying-key-v1:";

/// Signs manifests, proofs, ledger records and reports.
pub struct Signer {
    key: SigningKey,
}

impl Signer {
    /// A new key, in memory.
    pub fn generate() -> Self {
        let mut seed = [0_u8; 32];
        rand::rng().fill(&mut seed);
        let signer = Self {
            key: SigningKey::from_bytes(&seed),
        };
        seed.zeroize();
        signer
    }

    /// A new key in a new file of mode 0600.
    pub fn generate_file(path: &Path) -> Result<Self> {
        let signer = Self::generate();
        let secret = Zeroizing::new(hex::encode(signer.key.as_bytes()));
        let text = Zeroizing::new(format!(
            "# holdfast signing key\n# {}\n{SIGNING_PREFIX}{}\n",
            signer.verifier().to_text(),
            secret.as_str()
        ));
        write_secret(path, text.as_bytes())?;
        Ok(signer)
    }

    /// Reads a file written by [`Signer::generate_file`].
    pub fn load(path: &Path) -> Result<Self> {
        let text = read_key_file(path)?;
        let seed = keyed_line(&text, SIGNING_PREFIX).ok_or_else(|| Error::Key {
            what: path.display().to_string(),
            reason: "holds no holdfast signing key".to_owned(),
        })?;
        Ok(Self {
            key: SigningKey::from_bytes(&seed),
        })
    }

    /// The public side.
    pub fn verifier(&self) -> Verifier {
        Verifier {
            key: self.key.verifying_key(),
        }
    }

    pub(crate) fn key(&self) -> &SigningKey {
        &self.key
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signer").field(&self.verifier()).finish()
    }
}

/// The public side of a [`Signer`].
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    key: VerifyingKey,
}

impl Verifier {
    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self> {
        let refused = || Error::Key {
            what: abridged(text.trim()),
            reason: "not a holdfast verifying key".to_owned(),
        };
        let bytes = keyed_line(text, VERIFYING_PREFIX).ok_or_else(refused)?;
        Self::from_bytes(&bytes).ok_or_else(refused)
    }

    /// Reads a file that holds the text form, or a signing key file (whose comment holds it).
    pub fn load(path: &Path) -> Result<Self> {
        Self::parse(&read_key_file(path)?)
    }

    pub(crate) fn from_bytes(bytes: &[u8; 32]) -> Option<Self> {
        VerifyingKey::from_bytes(bytes)
            .ok()
            .filter(|key| !key.is_weak())
            .map(|key| Self { key })
    }

    /// The text form: safe to print and to store.
    pub fn to_text(&self) -> String {
        format!("{VERIFYING_PREFIX}{}", hex::encode(self.key.as_bytes()))
    }

    /// A short name for messages.
    pub fn fingerprint(&self) -> String {
        fingerprint("ed25519", &self.to_text())
    }

    pub(crate) fn key(&self) -> &VerifyingKey {
        &self.key
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fingerprint())
    }
}

fn keyed_line(text: &str, prefix: &str) -> Option<[u8; 32]> {
    let line = text
        .lines()
        .find_map(|line| line.trim_start_matches('#').trim().strip_prefix(prefix))?;
    let mut bytes = [0_u8; 32];
    hex::decode_to_slice(line, &mut bytes).ok()?;
    Some(bytes)
}
