//! Keys in files: age identities and recipients, and the ed25519 key that signs what the vault
//! holds. Secrets are created with mode 0600, never printed and wiped from memory after use.

use std::fmt;
use std::fs;
use std::io::{BufReader, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use age::secrecy::ExposeSecret as _;
use ed25519_dalek::{SigningKey, VerifyingKey};
use holdfast_store::datadir::durable;
use rand::RngExt as _;
use zeroize::{Zeroize as _, Zeroizing};

use crate::digest::Digest;
use crate::error::{Error, Result};

/// Largest key file read, in bytes.
pub const KEY_FILE_BYTES_MAX: u64 = 1 << 20;

const SIGNING_PREFIX: &str = "holdfast-signing-key-v1:";
const VERIFYING_PREFIX: &str = "holdfast-verifying-key-v1:";

/// Who may open a backup: one age (X25519) or ssh public key.
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
}

impl Recipient {
    /// Reads `age1...`, `ssh-ed25519 ...` or `ssh-rsa ...`.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        let refused = |reason: &str| Error::Key {
            what: abridged(text),
            reason: reason.to_owned(),
        };
        if text.starts_with("age1pq1") {
            return Err(refused("post-quantum age recipients are not supported yet"));
        }
        if text.starts_with("AGE-SECRET-KEY-") || text.starts_with("AGE-PLUGIN-") {
            return Err(Error::Key {
                what: "recipient".to_owned(),
                reason: "this is a secret identity; give its public recipient (age1...)".to_owned(),
            });
        }
        if text.starts_with("age1") {
            let key: age::x25519::Recipient = text.parse().map_err(|_reason| {
                refused("not an age X25519 recipient (plugin recipients are not supported)")
            })?;
            let text = key.to_string();
            return Ok(Self {
                fingerprint: fingerprint("x25519", &text),
                text,
                key: RecipientKey::X25519(key),
            });
        }
        let key: age::ssh::Recipient = text
            .parse()
            .map_err(|_reason| refused("neither an age nor a supported ssh recipient"))?;
        let text = key.to_string();
        Ok(Self {
            fingerprint: fingerprint("ssh", &text),
            text,
            key: RecipientKey::Ssh(key),
        })
    }

    /// The public key in its own text form.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A short name for manifests and messages.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub(crate) fn as_age(&self) -> &dyn age::Recipient {
        match &self.key {
            RecipientKey::X25519(key) => key,
            RecipientKey::Ssh(key) => key,
        }
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

/// The private side of one or more recipients.
pub struct Identities {
    keys: Vec<Box<dyn age::Identity + Send + Sync>>,
    recipients: Vec<Recipient>,
}

impl Identities {
    /// Reads an age identity file or an unencrypted ssh private key.
    pub fn load(path: &Path) -> Result<Self> {
        let text = read_key_file(path)?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads the text of an identity file; `what` names it in errors.
    pub fn parse(text: &str, what: &str) -> Result<Self> {
        let refused = |reason: &str| Error::Key {
            what: what.to_owned(),
            reason: reason.to_owned(),
        };
        if text.trim_start().starts_with("-----BEGIN") {
            return Self::parse_ssh(text, what);
        }
        let mut keys: Vec<Box<dyn age::Identity + Send + Sync>> = Vec::new();
        let mut recipients = Vec::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with("AGE-SECRET-KEY-PQ-") {
                return Err(refused("post-quantum age identities are not supported yet"));
            }
            let key: age::x25519::Identity = line
                .parse()
                .map_err(|_reason| refused("a line is not an age X25519 identity"))?;
            recipients.push(Recipient::parse(&key.to_public().to_string())?);
            keys.push(Box::new(key));
        }
        if keys.is_empty() {
            return Err(refused("holds no identity"));
        }
        Ok(Self { keys, recipients })
    }

    fn parse_ssh(text: &str, what: &str) -> Result<Self> {
        let refused = |reason: &str| Error::Key {
            what: what.to_owned(),
            reason: reason.to_owned(),
        };
        let key = age::ssh::Identity::from_buffer(BufReader::new(text.as_bytes()), None)
            .map_err(|_reason| refused("not a readable ssh private key"))?;
        match &key {
            age::ssh::Identity::Unencrypted(_) => {}
            age::ssh::Identity::Encrypted(_) => {
                return Err(refused(
                    "the ssh key has a passphrase; use one without, or an age identity",
                ));
            }
            age::ssh::Identity::Unsupported(_) => {
                return Err(refused("this type of ssh key cannot decrypt"));
            }
        }
        let public = age::ssh::Recipient::try_from(key.clone())
            .map_err(|_reason| refused("this type of ssh key cannot decrypt"))?;
        Ok(Self {
            recipients: vec![Recipient::parse(&public.to_string())?],
            keys: vec![Box::new(key)],
        })
    }

    /// The public sides.
    pub fn recipients(&self) -> &[Recipient] {
        &self.recipients
    }

    pub(crate) fn as_age(&self) -> impl Iterator<Item = &dyn age::Identity> {
        self.keys.iter().map(|key| {
            let key: &dyn age::Identity = key.as_ref();
            key
        })
    }
}

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identities").field(&self.recipients).finish()
    }
}

/// Creates an age identity in a new file of mode 0600 and returns its recipient.
pub fn generate_identity(path: &Path) -> Result<Recipient> {
    let identity = age::x25519::Identity::generate();
    let recipient = Recipient::parse(&identity.to_public().to_string())?;
    let secret = identity.to_string();
    let text = Zeroizing::new(format!(
        "# holdfast age identity: keep a copy away from the backups it opens\n\
         # public key: {}\n{}\n",
        recipient.text(),
        secret.expose_secret()
    ));
    write_secret(path, text.as_bytes())?;
    Ok(recipient)
}

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

fn keyed_line(text: &str, prefix: &str) -> Option<[u8; 32]> {
    let line = text
        .lines()
        .find_map(|line| line.trim_start_matches('#').trim().strip_prefix(prefix))?;
    let mut bytes = [0_u8; 32];
    hex::decode_to_slice(line, &mut bytes).ok()?;
    Some(bytes)
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

fn read_key_file(path: &Path) -> Result<Zeroizing<String>> {
    let file = fs::File::open(path).map_err(Error::io("open key file", path))?;
    let metadata = file.metadata().map_err(Error::io("read", path))?;
    if metadata.len() > KEY_FILE_BYTES_MAX {
        return Err(Error::TooLarge {
            object: path.display().to_string(),
            limit: KEY_FILE_BYTES_MAX,
        });
    }
    let mut text = Zeroizing::new(String::new());
    file.take(KEY_FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(Error::io("read key file", path))?;
    let is_secret = text.contains("SECRET-KEY") || text.contains(SIGNING_PREFIX);
    if is_secret && metadata.mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "secret key file is readable by others");
    }
    Ok(text)
}

/// Writes a secret into a new file (mode 0600) and syncs it; an existing file is never replaced.
fn write_secret(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(Error::io("create key file", path))?;
    file.write_all(bytes)
        .map_err(Error::io("write key file", path))?;
    file.sync_all().map_err(Error::io("sync key file", path))?;
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        durable::sync_dir(folder).map_err(Error::io("sync", folder))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
