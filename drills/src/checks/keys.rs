//! Every key is there, with its revisions, version, lease and value, and no other is.

use std::sync::Arc;

use holdfast_proto::etcd::kv;
use tokio::task::spawn_blocking;

use super::pages::Pages;
use super::{Doubt, Finding, Subject, failed, keys_text};
use crate::expected::{Expected, ExpectedKey, value_digest};

pub(super) async fn check(subject: &Subject) -> Finding {
    let mut pages = Pages::new(&subject.client, subject.facts.revision_after);
    let mut compared = 0;
    let mut page = pages.next().await?;
    while let Some(found) = page {
        let expected = Arc::clone(&subject.expected);
        let comparing = spawn_blocking(move || compare(&expected, compared, &found));
        // The member is asked for the next page meanwhile.
        let (next, outcome) = tokio::join!(pages.next(), comparing);
        compared = outcome.map_err(|error| Doubt::Inconclusive(error.to_string()))??;
        page = next?;
    }
    match subject.expected.keys.get(compared) {
        Some(missing) => failed(format!(
            "a key is missing (changed at revision {}), {compared} of {} are there",
            missing.mod_revision,
            subject.expected.count()
        )),
        None if compared == 0 && !subject.facts.may_be_empty() => failed("no key is there"),
        None => Ok(format!(
            "{} alike, with revisions and values",
            keys_text(count(compared))
        )),
    }
}

/// Compares a page with the keys from the place `compared` on; answers the place after it.
fn compare(expected: &Expected, compared: usize, page: &[kv::KeyValue]) -> Result<usize, Doubt> {
    let mut compared = compared;
    for found in page {
        let Some(wanted) = expected.keys.get(compared) else {
            return failed(format!("a key is not in the backup{}", place(found)));
        };
        if let Some(difference) = difference(wanted, found) {
            let alike = keys_text(count(compared));
            return failed(format!("{difference}, after {alike} alike"));
        }
        compared += 1;
    }
    Ok(compared)
}

fn count(compared: usize) -> u64 {
    u64::try_from(compared).unwrap_or(u64::MAX)
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
