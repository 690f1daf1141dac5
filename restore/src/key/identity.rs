//! What opens backups: the secret sides of recipients.

use std::collections::BTreeMap;
use std::fmt;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use age::secrecy::ExposeSecret as _;
use zeroize::Zeroizing;

use super::Recipient;
use super::file::{read_key_file, write_secret};
use super::plugin::{Unattended, unresolved};
use crate::error::{Error, Result};

/// One secret that age can try.
type Key = Arc<dyn age::Identity + Send + Sync>;

/// The private side of one or more recipients.
#[derive(Clone)]
pub struct Identities {
    /// Those that need no program come first.
    keys: Vec<Key>,
    recipients: Vec<Recipient>,
    plugins: Vec<String>,
}

impl Identities {
    /// Reads an age identity file or an ssh private key without a passphrase.
    pub fn load(path: &Path) -> Result<Self> {
        let text = read_key_file(path)?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads the text of an identity file; `what` names it in errors.
    pub fn parse(text: &str, what: &str) -> Result<Self> {
        let refused = |reason: &str| refusal(what, reason);
        if text.trim_start().starts_with("-----BEGIN") {
            return Self::parse_ssh(text, what);
        }
        let mut keys: Vec<Key> = Vec::new();
        let mut recipients = Vec::new();
        let mut of_plugins: BTreeMap<String, Vec<age::plugin::Identity>> = BTreeMap::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with("AGE-SECRET-KEY-PQ-") {
                return Err(refused(
                    "it holds a post-quantum identity in its native form, which the age library \
                     in use does not read; `age-plugin-pq -identity` turns it into a plugin's",
                ));
            }
            if line.starts_with("AGE-PLUGIN-") {
                let key: age::plugin::Identity = line
                    .parse()
                    .map_err(|_reason| refused("a line is not an identity of an age plugin"))?;
                let of_one = of_plugins.entry(key.plugin().to_owned()).or_default();
                of_one.push(key);
                continue;
            }
            let key: age::x25519::Identity = line
                .parse()
                .map_err(|_reason| refused("a line is not an age identity"))?;
            recipients.push(Recipient::parse(&key.to_public().to_string())?);
            keys.push(Arc::new(key));
        }
        for (plugin, identities) in &of_plugins {
            let opener = age::plugin::IdentityPluginV1::new(plugin, identities, Unattended)
                .map_err(|error| unresolved(what, &error))?;
            keys.push(Arc::new(opener));
        }
        if keys.is_empty() {
            return Err(refused("holds no identity"));
        }
        Ok(Self {
            keys,
            recipients,
            plugins: of_plugins.into_keys().collect(),
        })
    }

    fn parse_ssh(text: &str, what: &str) -> Result<Self> {
        let refused = |reason: &str| refusal(what, reason);
        let key = age::ssh::Identity::from_buffer(BufReader::new(text.as_bytes()), None)
            .map_err(|_reason| refused("not a readable ssh private key"))?;
        match &key {
            age::ssh::Identity::Unencrypted(_) => {}
            age::ssh::Identity::Encrypted(_) => {
                return Err(refused(
                    "the ssh key has a passphrase, and nobody is there to type it; use a key \
                     without one (`ssh-keygen -p -N '' -f COPY`), or an age identity",
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
            keys: vec![Arc::new(key)],
            plugins: Vec::new(),
        })
    }

    /// The public sides that are known; a plugin does not tell those of its identities.
    pub fn recipients(&self) -> &[Recipient] {
        &self.recipients
    }

    /// The plugins that hold some of them.
    pub fn plugins(&self) -> &[String] {
        &self.plugins
    }

    /// Whether one of them is the private side of this recipient beyond doubt.
    pub fn is_of(&self, recipient: &Recipient) -> bool {
        let mut ours = self.recipients.iter();
        ours.any(|own| own.fingerprint() == recipient.fingerprint())
    }

    /// The same without those that plugins hold; `None` when nothing is left.
    pub fn without_plugins(&self) -> Option<Self> {
        let count = self.keys.len().saturating_sub(self.plugins.len());
        let keys: Vec<Key> = self.keys.iter().take(count).cloned().collect();
        (!keys.is_empty()).then(|| Self {
            keys,
            recipients: self.recipients.clone(),
            plugins: Vec::new(),
        })
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
        f.debug_struct("Identities")
            .field("recipients", &self.recipients)
            .field("plugins", &self.plugins)
            .finish_non_exhaustive()
    }
}

fn refusal(what: &str, reason: &str) -> Error {
    Error::Key {
        what: what.to_owned(),
        reason: reason.to_owned(),
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
