//! The keys of this host: who may open backups, who can, and who signs.
//!
//! Secrets stay in files of mode 0600; nothing here prints or logs them.

use std::path::{Path, PathBuf};

use holdfast_policies::EncryptionRule;
use holdfast_restore::key::{
    Identities, Keys, Recipient, Signer, Trust, Verifier, generate_identity, load_recipients,
};
use holdfast_restore::{RoundTrip, round_trip};

use crate::config::Settings;
use crate::failure::{ErrorName, Failure, OrFail as _};

/// The file of the age identity in a key folder.
pub(crate) const IDENTITY_FILE: &str = "identity.age";
/// The file of the signing key in a key folder.
pub(crate) const SIGNING_FILE: &str = "signing.key";

/// A pair of keys that was just made.
#[derive(Debug)]
pub(crate) struct NewKeys {
    /// The public side of the identity.
    pub(crate) recipient: Recipient,
    /// The public side of the signing key.
    pub(crate) verifier: Verifier,
    /// Where the secret sides are.
    pub(crate) identity_file: PathBuf,
    /// Where the secret sides are.
    pub(crate) signing_file: PathBuf,
}

/// The keys in `dir` where both are there already, new ones otherwise. Says whether they are new.
pub(crate) fn find_or_generate(dir: &Path) -> Result<(NewKeys, bool), Failure> {
    let (identity_file, signing_file) = (dir.join(IDENTITY_FILE), dir.join(SIGNING_FILE));
    if !(identity_file.exists() && signing_file.exists()) {
        return generate(dir).map(|made| (made, true));
    }
    let unusable = |file: &Path| format!("the key {} cannot be used", file.display());
    let identities = Identities::load(&identity_file).or_fail(unusable(&identity_file))?;
    let recipient = identities.recipients().first().cloned().ok_or_else(|| {
        Failure::new(ErrorName::Denied, unusable(&identity_file)).because_of("it holds no identity")
    })?;
    let verifier = Verifier::load(&signing_file).or_fail(unusable(&signing_file))?;
    let found = NewKeys {
        recipient,
        verifier,
        identity_file,
        signing_file,
    };
    Ok((found, false))
}

/// Makes an age identity and a signing key in `dir`; existing files are refused.
pub(crate) fn generate(dir: &Path) -> Result<NewKeys, Failure> {
    let (identity_file, signing_file) = (dir.join(IDENTITY_FILE), dir.join(SIGNING_FILE));
    for file in [&identity_file, &signing_file] {
        if file.exists() {
            return Err(Failure::new(
                ErrorName::TargetExists,
                format!(
                    "the key file {} exists; keys are never replaced",
                    file.display()
                ),
            )
            .next("name another folder with --dir, or move the old keys away (and keep them)"));
        }
    }
    make_private_dir(dir)?;
    let recipient = generate_identity(&identity_file).or_fail(format!(
        "the age identity {} was not made",
        identity_file.display()
    ))?;
    let signer = Signer::generate_file(&signing_file).or_fail(format!(
        "the signing key {} was not made",
        signing_file.display()
    ))?;
    Ok(NewKeys {
        recipient,
        verifier: signer.verifier(),
        identity_file,
        signing_file,
    })
}

/// Makes the keys of an appliance without a configuration at its first start; later starts find
/// them. Returns what was made.
pub(crate) fn ensure(settings: &Settings) -> Result<Option<NewKeys>, Failure> {
    let (identity, signing) = (settings.identity_file(), settings.signing_key_file());
    if signing.exists() || identity.exists() || !settings.makes_keys() {
        return Ok(None);
    }
    generate(&settings.key_dir()).map(Some)
}

/// Reads the key that signs manifests.
pub(crate) fn signer(settings: &Settings) -> Result<Signer, Failure> {
    let file = settings.signing_key_file();
    Signer::load(&file)
        .or_fail(format!("the signing key {} cannot be used", file.display()))
        .map_err(|failure| {
            failure.next(format!(
                "make keys with `holdfast key generate --dir {}`, or name the key in \
                 `restore.signing_key_file`",
                settings.key_dir().display()
            ))
        })
}

/// Whose signatures count here: our own key's and those of `restore.trusted_signers`.
pub(crate) fn trust(settings: &Settings) -> Result<Trust, Failure> {
    let trust = known_signers(settings)?;
    if trust.keys().is_empty() {
        return Err(Failure::new(
            ErrorName::Denied,
            format!(
                "no signing key at {} and none is trusted by name",
                settings.signing_key_file().display()
            ),
        )
        .next(
            "`holdfast init` makes the keys where backups are to be taken; elsewhere put the public \
             key (`holdfast key show` on the host that takes them) into `restore.trusted_signers`",
        ));
    }
    Ok(trust)
}

/// As [`trust`], and nobody where there is no key.
fn known_signers(settings: &Settings) -> Result<Trust, Failure> {
    let mut keys = Vec::new();
    let file = settings.signing_key_file();
    if file.exists() {
        let own = Verifier::load(&file)
            .or_fail(format!("the signing key {} cannot be used", file.display()))?;
        keys.push(own);
    }
    for text in &settings.config.restore.trusted_signers {
        keys.push(trusted(text)?);
    }
    Ok(Trust::in_keys(keys))
}

/// Reads one entry of `restore.trusted_signers`.
pub(crate) fn trusted(text: &str) -> Result<Verifier, Failure> {
    Verifier::parse(text).or_fail("an entry of `restore.trusted_signers` is wrong")
}

/// Reads the identities that open backups; `None` when this host has none.
pub(crate) fn identities(settings: &Settings) -> Result<Option<Identities>, Failure> {
    let file = settings.identity_file();
    if !file.exists() {
        return Ok(None);
    }
    Identities::load(&file)
        .or_fail(format!(
            "the age identity {} cannot be used",
            file.display()
        ))
        .map(Some)
}

/// Everything that reading backups may need.
pub(crate) fn reading(settings: &Settings) -> Result<Keys, Failure> {
    Ok(Keys {
        trust: trust(settings)?,
        identities: identities(settings)?,
    })
}

/// As [`reading`], with the identity of a file named on the command line before any configured.
pub(crate) fn reading_with(settings: &Settings, identity: Option<&Path>) -> Result<Keys, Failure> {
    trust(settings)?;
    restoring_with(settings, identity)
}

/// As [`reading_with`], on a host that may trust nobody yet: the restore names who signed, and what
/// to say to trust them.
pub(crate) fn restoring_with(
    settings: &Settings,
    identity: Option<&Path>,
) -> Result<Keys, Failure> {
    let trust = known_signers(settings)?;
    let Some(file) = identity else {
        let identities = identities(settings)?;
        return Ok(Keys { trust, identities });
    };
    let loaded = Identities::load(file)
        .or_fail(format!(
            "the age identity {} cannot be used",
            file.display()
        ))
        .map_err(|failure| {
            failure.next(
                "name the file that holds the identity: AGE-SECRET-KEY-1..., AGE-PLUGIN-... or an \
                 ssh private key without a passphrase",
            )
        })?;
    Ok(Keys {
        trust,
        identities: Some(loaded),
    })
}

/// For whom backups are sealed; `None` only where the configuration says `none` in so many words.
pub(crate) fn recipients(settings: &Settings) -> Result<Option<Vec<Recipient>>, Failure> {
    match settings.encryption()? {
        Some(EncryptionRule::None) => Ok(None),
        Some(rule @ EncryptionRule::Recipients { .. }) => {
            named_recipients(settings, &rule).map(Some)
        }
        None => {
            // No configuration at all: the identity made at first start.
            let identities = identities(settings)?.ok_or_else(|| {
                Failure::new(
                    ErrorName::EncryptionNotConfigured,
                    format!("there is no age identity at {}", settings.identity_file().display()),
                )
                .next("start with `holdfast run`, which makes one, or write a configuration with `holdfast init`")
            })?;
            Ok(Some(identities.recipients().to_vec()))
        }
    }
}

fn named_recipients(settings: &Settings, rule: &EncryptionRule) -> Result<Vec<Recipient>, Failure> {
    let EncryptionRule::Recipients {
        recipients,
        recipients_file,
    } = rule
    else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for text in recipients {
        all.push(Recipient::parse(text).or_fail("an entry of `encryption.recipients` is wrong")?);
    }
    if let Some(file) = recipients_file {
        let file = settings.resolve(Path::new(file));
        let named = load_recipients(&file).or_fail(format!(
            "the recipients file {} cannot be used",
            file.display()
        ))?;
        all.extend(named);
    }
    rule.check_sealed_to(all.len()).map_err(|error| {
        Failure::new(
            ErrorName::EncryptionNotConfigured,
            "nobody could open the backups",
        )
        .because(&error)
    })?;
    Ok(all)
}

/// For whom backups are sealed, each tried: a recipient whose identity is here must open what is
/// sealed to it. `None` only where the configuration says `none` in so many words.
pub(crate) fn prove(settings: &Settings) -> Result<Option<Vec<RoundTrip>>, Failure> {
    let Some(recipients) = recipients(settings)? else {
        return Ok(None);
    };
    let identities = identities(settings)?;
    round_trip(&recipients, identities.as_ref())
        .or_fail("backups sealed with these settings could not be opened")
        .map(Some)
}

/// Makes `dir` and its parents, readable by nobody else.
pub(crate) fn make_private_dir(dir: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .or_fail(format!("the folder {} was not made", dir.display()))
}
