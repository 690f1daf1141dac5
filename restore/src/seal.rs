//! Sealing with age, in two steps.
//!
//! Every backup has a key of its own: a fresh X25519 identity, made in memory. Parts are sealed to
//! it; the identity itself is sealed to the operator's recipients in a small *envelope* that the
//! manifest carries. So parts seal fast whatever the recipients are, and a changed set of
//! recipients needs a new envelope and not a new upload. `age -d` opens both without us.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use age::secrecy::ExposeSecret as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::key::{Identities, Recipient, within_patience};

/// Largest envelope read, in bytes; one recipient takes about 200.
pub const ENVELOPE_BYTES_MAX: usize = 64 * 1024;

/// Most recipients of one backup.
pub const RECIPIENTS_MAX: usize = 64;

/// What a part's plaintext may shrink to at most behind age, in bytes more than the plain size.
pub(crate) const AGE_OVERHEAD_MAX: usize = 4096;

/// To whom backups are sealed. There is no way to get an unsealed backup by leaving this out.
#[derive(Debug, Clone)]
pub struct Sealer {
    recipients: Option<Vec<Recipient>>,
}

impl Sealer {
    /// Seals to these recipients; none at all is an error, and so is the same one twice.
    pub fn to_recipients(recipients: Vec<Recipient>) -> Result<Self> {
        if recipients.is_empty() {
            return Err(Error::NoRecipients);
        }
        if recipients.len() > RECIPIENTS_MAX {
            let limit = u64::try_from(RECIPIENTS_MAX).unwrap_or(u64::MAX);
            return Err(Error::TooLarge {
                object: "list of recipients".to_owned(),
                limit,
            });
        }
        let mut seen: Vec<&str> = recipients.iter().map(Recipient::fingerprint).collect();
        seen.sort_unstable();
        if let Some(twice) = seen.windows(2).find(|pair| pair.first() == pair.last()) {
            return Err(Error::Key {
                what: twice.first().copied().unwrap_or_default().to_owned(),
                reason: "listed twice among the recipients".to_owned(),
            });
        }
        Ok(Self {
            recipients: Some(recipients),
        })
    }

    /// Stores in clear. Only for an explicit `encryption: none`.
    pub const fn none() -> Self {
        Self { recipients: None }
    }

    /// False only for [`Sealer::none`].
    pub const fn is_encrypting(&self) -> bool {
        self.recipients.is_some()
    }

    /// Makes the key of one backup and its record for the manifest.
    pub(crate) fn begin(&self) -> Result<(PartKey, Encryption)> {
        let Some(recipients) = &self.recipients else {
            return Ok((PartKey::Clear, Encryption::None));
        };
        let identity = age::x25519::Identity::generate();
        let public = identity.to_public();
        let secret = identity.to_string();
        let envelope = seal_to(recipients, secret.expose_secret().as_bytes())?;
        let encryption = Encryption::Age {
            backup_recipient: public.to_string(),
            recipients: recipients
                .iter()
                .map(|one| one.fingerprint().to_owned())
                .collect(),
            envelope: STANDARD.encode(envelope),
        };
        Ok((PartKey::Sealed(Arc::new(identity)), encryption))
    }

    /// Seals an opened backup's key to these recipients: the bytes of a further envelope.
    pub(crate) fn rewrap(&self, key: &PartKey) -> Result<Vec<u8>> {
        let (Some(recipients), PartKey::Sealed(identity)) = (&self.recipients, key) else {
            return Err(Error::Refused {
                reason: "nothing to rewrap: not encrypted".to_owned(),
            });
        };
        let secret = identity.to_string();
        seal_to(recipients, secret.expose_secret().as_bytes())
    }
}

/// How a backup is encrypted, as its manifest says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scheme", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Encryption {
    /// Not encrypted, by explicit choice.
    None,
    /// Parts are age files sealed to a key of this backup.
    Age {
        /// The public side of the backup's own key.
        backup_recipient: String,
        /// Fingerprints of those the backup's key is sealed to.
        recipients: Vec<String>,
        /// The backup's own identity, sealed to them: an age file in base64.
        envelope: String,
    },
}

impl Encryption {
    /// Opens the envelope (or one of the `further` ones a rewrap added).
    pub(crate) fn open(
        &self,
        identities: Option<&Identities>,
        further: &[bytes::Bytes],
    ) -> Result<PartKey> {
        let Self::Age {
            backup_recipient,
            recipients,
            envelope,
        } = self
        else {
            return Ok(PartKey::Clear);
        };
        let Some(identities) = identities else {
            return Err(Error::IdentityNeeded {
                recipients: recipients.clone(),
            });
        };
        let own = STANDARD
            .decode(envelope)
            .map_err(|_reason| Error::malformed("envelope", "not base64"))?;
        let mut damage = None;
        for sealed in std::iter::once(own.as_slice()).chain(further.iter().map(AsRef::as_ref)) {
            match open_envelope(sealed, identities, backup_recipient) {
                Ok(identity) => return Ok(PartKey::Sealed(Arc::new(identity))),
                Err(Error::NoMatchingIdentity { .. }) => {}
                Err(other) => damage = Some(other),
            }
        }
        Err(damage.unwrap_or_else(|| Error::NoMatchingIdentity {
            recipients: recipients.clone(),
        }))
    }

    /// Fingerprints of those who can open it; empty when it is not encrypted.
    pub fn recipients(&self) -> &[String] {
        match self {
            Self::None => &[],
            Self::Age { recipients, .. } => recipients,
        }
    }
}

/// The key of one backup's parts.
#[derive(Clone)]
pub(crate) enum PartKey {
    /// Parts are not encrypted.
    Clear,
    /// Parts are sealed to this identity.
    Sealed(Arc<age::x25519::Identity>),
}

impl PartKey {
    /// A key of no backup.
    #[cfg(test)]
    pub(crate) fn ephemeral() -> Self {
        Self::Sealed(Arc::new(age::x25519::Identity::generate()))
    }

    /// Writes into `fill` what becomes the content of an age file (or plain bytes).
    pub(crate) fn seal_with<F>(&self, capacity: usize, fill: F) -> Result<Vec<u8>>
    where
        F: FnOnce(&mut dyn std::io::Write) -> Result<()>,
    {
        let mut sealed = Vec::with_capacity(capacity);
        match self {
            Self::Clear => fill(&mut sealed)?,
            Self::Sealed(identity) => {
                let public = identity.to_public();
                let recipient: &dyn age::Recipient = &public;
                let encryptor =
                    age::Encryptor::with_recipients(std::iter::once(recipient)).map_err(seal)?;
                let mut writer = encryptor.wrap_output(&mut sealed).map_err(seal)?;
                fill(&mut writer)?;
                writer.finish().map_err(seal)?;
            }
        }
        Ok(sealed)
    }

    /// The whole content of an age file (or the bytes themselves). Nothing is returned before the
    /// end of the file was reached and authenticated.
    pub(crate) fn open(&self, object: &str, sealed: &[u8]) -> Result<Vec<u8>> {
        let Self::Sealed(identity) = self else {
            return Ok(sealed.to_vec());
        };
        let identity: &dyn age::Identity = identity.as_ref();
        let refused = |reason: String| Error::Decrypt {
            object: object.to_owned(),
            reason,
        };
        let decryptor =
            age::Decryptor::new_buffered(sealed).map_err(|error| refused(error.to_string()))?;
        let mut reader = decryptor
            .decrypt(std::iter::once(identity))
            .map_err(|error| refused(error.to_string()))?;
        let mut content = Vec::with_capacity(sealed.len());
        reader
            .read_to_end(&mut content)
            .map_err(|error| refused(error.to_string()))?;
        Ok(content)
    }
}

impl std::fmt::Debug for PartKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Clear => "PartKey::Clear",
            Self::Sealed(_) => "PartKey::Sealed",
        })
    }
}

/// An age file of `content`, which is small, for these recipients.
pub(crate) fn seal_to(recipients: &[Recipient], content: &[u8]) -> Result<Vec<u8>> {
    let uses_plugins = recipients.iter().any(|one| one.plugin().is_some());
    let (recipients, content) = (recipients.to_vec(), Zeroizing::new(content.to_vec()));
    let sealed = within_patience(uses_plugins, move || {
        let wrappers: Vec<Box<dyn age::Recipient>> = recipients
            .iter()
            .map(Recipient::as_age)
            .collect::<Result<_>>()?;
        let each = wrappers.iter().map(AsRef::as_ref);
        let encryptor = age::Encryptor::with_recipients(each).map_err(refusal)?;
        let mut sealed = Vec::new();
        let mut writer = encryptor.wrap_output(&mut sealed).map_err(seal)?;
        writer.write_all(&content).map_err(seal)?;
        writer.finish().map_err(seal)?;
        Ok(sealed)
    })?;
    check_envelope_size(&sealed)?;
    Ok(sealed)
}

/// The content of a small age file.
pub(crate) fn open_sealed(
    object: &str,
    sealed: &[u8],
    identities: &Identities,
) -> Result<Zeroizing<Vec<u8>>> {
    check_envelope_size(sealed)?;
    let uses_plugins = !identities.plugins().is_empty();
    let (object, sealed, identities) = (object.to_owned(), sealed.to_vec(), identities.clone());
    within_patience(uses_plugins, move || {
        let refused = |reason: String| Error::Decrypt {
            object: object.clone(),
            reason,
        };
        let decryptor = age::Decryptor::new_buffered(sealed.as_slice())
            .map_err(|error| refused(error.to_string()))?;
        let mut reader = match decryptor.decrypt(identities.as_age()) {
            Ok(reader) => reader,
            Err(age::DecryptError::NoMatchingKeys) => {
                return Err(Error::NoMatchingIdentity {
                    recipients: Vec::new(),
                });
            }
            Err(other) => return Err(refused(other.to_string())),
        };
        let mut content = Zeroizing::new(Vec::new());
        reader
            .read_to_end(&mut content)
            .map_err(|error| refused(error.to_string()))?;
        Ok(content)
    })
}

fn check_envelope_size(sealed: &[u8]) -> Result<()> {
    if sealed.len() <= ENVELOPE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::TooLarge {
        object: "envelope".to_owned(),
        limit: u64::try_from(ENVELOPE_BYTES_MAX).unwrap_or(u64::MAX),
    })
}

fn open_envelope(
    sealed: &[u8],
    identities: &Identities,
    backup_recipient: &str,
) -> Result<age::x25519::Identity> {
    let refused = |reason: &str| Error::Decrypt {
        object: "envelope".to_owned(),
        reason: reason.to_owned(),
    };
    let secret = open_sealed("envelope", sealed, identities)?;
    let secret = std::str::from_utf8(&secret).map_err(|_reason| refused("holds no key"))?;
    let identity: age::x25519::Identity = secret.trim().parse().map_err(refused)?;
    if identity.to_public().to_string() != backup_recipient {
        return Err(refused("holds another backup's key"));
    }
    Ok(identity)
}

/// Why age will not seal to these recipients together.
fn refusal(error: age::EncryptError) -> Error {
    match error {
        age::EncryptError::IncompatibleRecipients { .. } => Error::Seal {
            reason: "these recipients exclude each other: post-quantum ones must not stand beside \
                     others, which would give away what they protect"
                .to_owned(),
        },
        other => seal(other),
    }
}

fn seal(error: impl std::fmt::Display) -> Error {
    Error::Seal {
        reason: error.to_string(),
    }
}
