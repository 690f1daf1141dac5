use std::fs;
use std::os::unix::fs::MetadataExt as _;

use age::secrecy::ExposeSecret as _;

use super::*;

#[test]
fn an_identity_file_is_created_once_with_mode_0600_and_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("identity");
    let recipient = generate_identity(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(
        generate_identity(&path).unwrap_err().kind(),
        crate::error::ErrorKind::Conflict
    );
    let read = Identities::load(&path).unwrap();
    assert_eq!(read.recipients()[0].text(), recipient.text());
    assert_eq!(read.recipients()[0].fingerprint(), recipient.fingerprint());
}

#[test]
fn a_signing_key_file_reads_back_and_tells_its_verifier() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("signing");
    let signer = Signer::generate_file(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(Signer::load(&path).unwrap().verifier(), signer.verifier());
    assert_eq!(Verifier::load(&path).unwrap(), signer.verifier());
    assert_eq!(
        Verifier::parse(&signer.verifier().to_text()).unwrap(),
        signer.verifier()
    );
    assert_ne!(Signer::generate().verifier(), signer.verifier());
}

#[test]
fn en10_recipients_that_cannot_be_used_are_refused_without_repeating_a_secret() {
    let secret = age::x25519::Identity::generate()
        .to_string()
        .expose_secret()
        .to_owned();
    for bad in [
        "",
        "age1",
        "age1pq1qqqq",
        "age1yubikey1qqqqqqqqqqqqqqqq",
        "../../bin/sh",
        "age1../x1wfjkx6tsd9jkuaqk0c6mp",
        "ssh-dss AAAA",
        secret.as_str(),
    ] {
        let refused = Recipient::parse(bad).unwrap_err().to_string();
        assert!(
            !refused.contains(secret.trim_start_matches("AGE-SECRET-KEY-1")),
            "{refused}"
        );
    }
}

#[test]
fn an_identity_file_with_one_bad_line_is_refused() {
    let secret = age::x25519::Identity::generate()
        .to_string()
        .expose_secret()
        .to_owned();
    assert!(Identities::parse(&format!("# x\n\n{secret}\n"), "x").is_ok());
    for bad in [
        "",
        "# nothing\n",
        &format!("{secret}\nhello\n"),
        "AGE-SECRET-KEY-PQ-1QQ\n",
    ] {
        let refused = Identities::parse(bad, "the file").unwrap_err().to_string();
        assert!(refused.contains("the file"), "{refused}");
        assert!(
            !refused.contains(secret.trim_start_matches("AGE-SECRET-KEY-1")),
            "{refused}"
        );
    }
}

#[test]
fn debug_output_shows_no_secret() {
    let signer = Signer::generate();
    let text = format!("{signer:?}");
    assert!(!text.contains(&hex::encode(signer.key().as_bytes())));
    assert!(text.contains("ed25519:"));
}

#[test]
fn a_plugins_recipient_has_a_name_of_its_own_and_a_missing_program_is_told() {
    let recipient = Recipient::parse("age1nowhere1wfjkx6tsd9jkuaqn2d8gg").unwrap();
    assert!(recipient.fingerprint().starts_with("plugin-nowhere:"));
    assert_eq!(recipient.plugin(), Some("nowhere"));
    let told = recipient.as_age().err().unwrap().to_string();
    assert!(told.contains("`age-plugin-nowhere`"), "{told}");
    let identity = "AGE-PLUGIN-NOWHERE-1D9JX2MN5D968JCCEC90";
    let told = Identities::parse(identity, "the file").unwrap_err();
    assert!(told.to_string().contains("`age-plugin-nowhere`"), "{told}");
    assert!(!told.to_string().contains("1D9JX2MN5D968JCCEC90"), "{told}");
}
