//! The proof, before anything is written, that what is sealed can be opened again: a sealed byte
//! string goes to each recipient and comes back by the identities at hand, or it does not.

use rand::RngExt as _;

use crate::error::{Error, Result};
use crate::key::{Identities, Recipient};
use crate::seal::{Sealer, open_sealed, seal_to};

/// What the round trip through one recipient showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundTrip {
    /// The recipient, by its fingerprint.
    pub fingerprint: String,
    /// What was sealed to it alone came back. False: no identity here is its own, so nothing is
    /// known of who could open.
    pub is_proven: bool,
}

/// Seals to all recipients together and to each alone, and opens what can be opened.
///
/// It is an error when sealing fails (a plugin that is not there, recipients that exclude each
/// other), and when an identity is a recipient's own and does not open what was sealed to it. A
/// recipient whose identity is not at hand is no error: it is not proven.
pub fn round_trip(
    recipients: &[Recipient],
    identities: Option<&Identities>,
) -> Result<Vec<RoundTrip>> {
    let _together = Sealer::to_recipients(recipients.to_vec())?.begin()?;
    let each = recipients.iter().map(|recipient| {
        let is_proven = match identities {
            Some(identities) => comes_back(recipient, identities)?,
            None => false,
        };
        Ok(RoundTrip {
            fingerprint: recipient.fingerprint().to_owned(),
            is_proven,
        })
    });
    each.collect()
}

fn comes_back(recipient: &Recipient, identities: &Identities) -> Result<bool> {
    let mut sent = [0_u8; 32];
    rand::rng().fill(&mut sent);
    let sealed = seal_to(std::slice::from_ref(recipient), &sent)?;
    let unproven = |reason: String| Error::Key {
        what: recipient.fingerprint().to_owned(),
        reason,
    };
    match open_sealed("round trip", &sealed, identities) {
        Ok(received) if *received == sent => Ok(true),
        Ok(_) => Err(unproven("what was sealed came back changed".to_owned())),
        Err(Error::NoMatchingIdentity { .. }) if !identities.is_of(recipient) => Ok(false),
        Err(error) => Err(unproven(format!(
            "what was sealed to it cannot be opened with the identities here: {error}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> (Recipient, Identities) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity");
        let recipient = crate::key::generate_identity(&path).unwrap();
        (recipient, Identities::load(&path).unwrap())
    }

    #[test]
    fn a_recipient_is_proven_where_its_identity_is_and_only_there() {
        let (ours, identities) = key();
        let (others, _) = key();
        let both = [ours.clone(), others.clone()];
        let told = round_trip(&both, Some(&identities)).unwrap();
        let proven: Vec<bool> = told.iter().map(|one| one.is_proven).collect();
        assert_eq!(proven, [true, false]);
        assert_eq!(told[1].fingerprint, others.fingerprint());
        let told = round_trip(&both, None).unwrap();
        assert!(told.iter().all(|one| !one.is_proven));
        assert!(round_trip(&[], None).is_err(), "nobody is no round trip");
        let twice = [ours.clone(), ours];
        assert!(round_trip(&twice, None).is_err());
    }
}
