//! What `holdfast run` with these settings would stumble over, found before anything starts: files
//! that are named and not there, keys that cannot be read, sections that contradict each other.

use std::path::{Path, PathBuf};

use holdfast_restore::Recipient;
use holdfast_restore::source::{EtcdSpec, SourceSpec};

use crate::config::{DrillTarget, Settings};
use crate::failure::{ErrorName, Failure};
use crate::{keys, sources, stores};

/// What is wrong, one line each; empty when everything is as it should be.
pub(crate) fn wrong(settings: &Settings) -> Vec<String> {
    let mut wrong = missing_files(settings);
    let lines = [
        keys_in_use(settings).err(),
        can_drill(settings).err(),
        stores::check(settings).err(),
    ];
    wrong.extend(lines.iter().flatten().map(Failure::line));
    for source in &settings.config.restore.sources {
        if let SourceSpec::Etcd(_) = source.kind {
            wrong.extend(
                sources::open(settings, source, None)
                    .err()
                    .map(|e| e.line()),
            );
        }
    }
    wrong
}

/// What works and may surprise, one line each.
pub(crate) fn notes(settings: &Settings) -> Vec<String> {
    let (Ok(Some(sealed_for)), Ok(identities)) =
        (keys::recipients(settings), keys::identities(settings))
    else {
        return Vec::new();
    };
    let Some(identities) = identities else {
        return vec![format!(
            "there is no age identity at {}: backups are proven to L0 only here, nothing can \
             be rehearsed (`policies.drill.schedule: null` leaves it to another host), and nothing \
             is pruned unless `policies.retention.count_from` is L0",
            settings.identity_file().display()
        )];
    };
    let opens = |one: &Recipient| {
        let mut ours = identities.recipients().iter();
        ours.any(|own| own.text() == one.text())
    };
    if sealed_for.iter().any(opens) {
        return Vec::new();
    }
    vec![format!(
        "the identity {} opens nothing that is sealed with these settings: its recipient is not in \
         `policies.encryption`, so backups are proven to L0 only here",
        settings.identity_file().display()
    )]
}

/// Whether a drill can be begun at all: a rehearsal that this host cannot make says nothing about
/// the backup, and leaves no report.
pub(crate) fn can_drill(settings: &Settings) -> Result<(), Failure> {
    let drills = &settings.config.drills;
    if drills.target == DrillTarget::Holdfast {
        return Ok(());
    }
    let next = "set `drills.etcd_binary` to the `etcd` program, or `drills.target: holdfast`";
    let invalid = |what: String| Err(Failure::new(ErrorName::ConfigInvalid, what).next(next));
    if drills.etcd_binary.as_os_str().is_empty() {
        return invalid("`drills.target` is etcd and `drills.etcd_binary` is not set".to_owned());
    }
    let program = settings.resolve(&drills.etcd_binary);
    if program.is_file() {
        return Ok(());
    }
    invalid(format!(
        "`drills.etcd_binary` {} is not a file",
        program.display()
    ))
}

/// The keys that are used without anybody's asking.
fn keys_in_use(settings: &Settings) -> Result<(), Failure> {
    let are_made_later = settings.makes_keys() && !settings.signing_key_file().exists();
    if !are_made_later {
        keys::signer(settings)?;
    }
    for text in &settings.config.restore.trusted_signers {
        keys::trusted(text)?;
    }
    keys::identities(settings).map(drop)
}

/// Every file that the settings name and that is not there.
fn missing_files(settings: &Settings) -> Vec<String> {
    let mut named: Vec<(String, PathBuf)> = Vec::new();
    if !settings.config.restore.identity_file.as_os_str().is_empty() {
        named.push(("restore.identity_file".to_owned(), settings.identity_file()));
    }
    let copies = settings.config.restore.copies.iter();
    let copies = copies.map(|one| {
        let place = format!("vault of the copy `{}`", one.name);
        (place, settings.resolve_vault(&one.vault))
    });
    let first = ("restore.vault".to_owned(), settings.vault());
    for (place, spec) in std::iter::once(first).chain(copies) {
        let files = spec.files().into_iter();
        named.extend(files.map(|(key, file)| (format!("{place}.{key}"), file)));
    }
    let of_store = stores::flags::files(settings).into_iter();
    named.extend(of_store.map(|(key, file)| (key.to_owned(), file)));
    for source in &settings.config.restore.sources {
        if let SourceSpec::Etcd(spec) = &source.kind {
            let files = files_of(spec).into_iter();
            let place = |key| format!("{key} of the source `{}`", source.name);
            named.extend(files.map(|(key, file)| (place(key), settings.resolve(file))));
        }
    }
    let absent = named.into_iter().filter(|(_, file)| !file.is_file());
    absent
        .map(|(key, file)| format!("`{key}`: there is no file {}", file.display()))
        .collect()
}

fn files_of(spec: &EtcdSpec) -> Vec<(&'static str, &Path)> {
    let mut files = Vec::new();
    if let Some(tls) = &spec.tls {
        files.push(("tls.cacert", tls.cacert.as_path()));
        files.extend(tls.cert.as_deref().map(|file| ("tls.cert", file)));
        files.extend(tls.key.as_deref().map(|file| ("tls.key", file)));
    }
    if let Some(user) = &spec.user {
        files.push(("user.password_file", user.password_file.as_path()));
    }
    files
}
