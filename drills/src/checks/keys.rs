//! Every key is there, with its revisions, version, lease and value, and no other is.

use holdfast_proto::etcd::kv;

use super::pages::Pages;
use super::{Finding, Subject, failed, keys_text};
use crate::expected::{ExpectedKey, value_digest};

pub(super) async fn check(subject: &Subject) -> Finding {
    let mut expected = subject.expected.keys.iter();
    let mut pages = Pages::new(&subject.client, subject.facts.revision_after);
    let mut compared = 0_u64;
    while let Some(page) = pages.next().await? {
        for found in &page {
            let Some(wanted) = expected.next() else {
                return failed(format!("a key is not in the backup{}", place(found)));
            };
            if let Some(difference) = difference(wanted, found) {
                return failed(format!("{difference}, after {} alike", keys_text(compared)));
            }
            compared += 1;
        }
    }
    match expected.next() {
        Some(missing) => failed(format!(
            "a key is missing (changed at revision {}), {} of {} are there",
            missing.mod_revision,
            compared,
            subject.expected.count()
        )),
        None if compared == 0 && subject.facts.wanted_keys != Some(0) => failed("no key is there"),
        None => Ok(format!(
            "{} alike, with revisions and values",
            keys_text(compared)
        )),
    }
}

/// Reports never hold keys: a key is told by the revision that changed it last.
fn place(found: &kv::KeyValue) -> String {
    format!(" (changed at revision {})", found.mod_revision)
}

fn difference(wanted: &ExpectedKey, found: &kv::KeyValue) -> Option<String> {
    if found.key < wanted.key {
        return Some(format!("a key is not in the backup{}", place(found)));
    }
    if found.key > wanted.key {
        return Some(format!(
            "a key is missing (changed at revision {})",
            wanted.mod_revision
        ));
    }
    let numbers = [
        ("mod_revision", wanted.mod_revision, found.mod_revision),
        (
            "create_revision",
            wanted.create_revision,
            found.create_revision,
        ),
        ("version", wanted.version, found.version),
        ("lease", wanted.lease, found.lease),
    ];
    for (name, wanted, found_number) in numbers {
        if wanted != found_number {
            return Some(format!(
                "{name} is {found_number} instead of {wanted}{}",
                place(found)
            ));
        }
    }
    (value_digest(&found.value) != wanted.value).then(|| format!("another value{}", place(found)))
}
